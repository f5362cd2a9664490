//! Runs the archive once a day.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::budget::DayZone;
use tidegate_core::clock::Clock;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::archive::{Archive, ArchiveError, ArchiveReport};
use tokio_util::sync::CancellationToken;

/// Limit: how long the task sleeps before it reads the clock again, because somebody may set the clock.
const CLOCK_CHECK: Duration = Duration::from_secs(30);
/// The pause after a failure that may pass.
const RETRY_PAUSE: Duration = Duration::from_secs(600);
const ATTEMPTS: u32 = 6;

/// Runs the archive whenever a day of `zone` begins, until `stop`. If several processes do so, they do the same work twice,
/// which does no harm.
pub async fn archive_daily(archive: Archive, zone: DayZone, clock: Arc<dyn Clock>, stop: CancellationToken) {
    let mut due = next(zone, clock.now());
    loop {
        while clock.now() < due {
            let wait = Duration::from(due.since(clock.now())).min(CLOCK_CHECK);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
        tokio::select! {
            () = once(|| async { archive.run(clock.now(), &|_| {}).await }) => {}
            () = stop.cancelled() => return,
        }
        due = next(zone, clock.now());
    }
}

/// The time of the next run after `now`.
fn next(zone: DayZone, now: Timestamp) -> Timestamp {
    zone.start(zone.day(now) + 1)
}

/// Runs until the archive has done its work, or a retry does not help.
async fn once<Run>(mut run: impl FnMut() -> Run)
where
    Run: Future<Output = Result<ArchiveReport, ArchiveError>>,
{
    for _ in 0..ATTEMPTS {
        match run().await {
            Ok(report) => {
                let (rows, objects, moved) = (report.rows, report.objects, report.moved);
                tracing::info!(rows, objects, moved, "archived the history");
                return;
            }
            Err(error) if error.is_retryable() => {
                tracing::warn!(%error, "failed to archive the history; the service retries");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(%error, "failed to archive the history");
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const MINUTE: u64 = 60_000;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;

    #[test]
    fn the_next_run_is_at_the_configured_time_in_the_zone() {
        let at_three = |utc_offset_minutes| DayZone {
            utc_offset_minutes,
            day_starts_at_minutes: 180,
        };
        let day = 20_000 * DAY;
        for (zone, now, expected) in [
            (at_three(0), day, day + 3 * HOUR),
            (at_three(0), day + 3 * HOUR, day + DAY + 3 * HOUR),
            (at_three(0), day + 4 * HOUR, day + DAY + 3 * HOUR),
            // 03:00 in Seoul is 18:00 UTC on the previous day.
            (at_three(540), day, day + 18 * HOUR),
            (at_three(-480), day, day + 11 * HOUR),
        ] {
            let due = next(zone, Timestamp(now));
            assert_eq!(due, Timestamp(expected), "{zone:?} at {now}");
        }
    }

    /// How often it runs with these results, and how long that takes.
    async fn runs(mut results: Vec<Result<ArchiveReport, ArchiveError>>) -> (usize, Duration) {
        let (begun, all) = (Instant::now(), results.len());
        results.reverse();
        once(|| std::future::ready(results.pop().expect("no further run"))).await;
        (all - results.len(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_repeated_while_that_may_help() {
        let unavailable = || {
            Err(ArchiveError::Storage {
                place: "s3://bucket".into(),
                object: "warm/1".into(),
                reason: "a test".into(),
            })
        };
        let done = || Ok(ArchiveReport::default());
        let wrong = || Err(ArchiveError::Settings("a test".into()));
        assert_eq!(runs(vec![done(), done()]).await, (1, Duration::ZERO));
        assert_eq!(runs(vec![unavailable(), done(), done()]).await, (2, RETRY_PAUSE));
        assert_eq!(runs(vec![wrong(), done()]).await, (1, Duration::ZERO));
        let (count, took) = runs((0..10).map(|_| unavailable()).collect()).await;
        assert_eq!(
            (count, took),
            (6, RETRY_PAUSE * 6),
            "then it waits for the next day"
        );
    }
}
