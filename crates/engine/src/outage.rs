//! What every service does while the store cannot be used (its server is away, slow, or full): wait and try
//! again. One outage is told once when it begins and once when it is over, however many services wait.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_store::StoreError;
use tokio_util::sync::CancellationToken;

/// Limit: the pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

fn pause(tries: u32) -> Duration {
    (Duration::from_millis(50) * tries).min(LONGEST_PAUSE)
}

/// Shared by the services of one engine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outage {
    /// It has begun, and nobody has been answered since.
    lasts: Arc<AtomicBool>,
}

impl Outage {
    /// Calls until the store answers, or fails for good. None: `stop` came first.
    pub(crate) async fn outlast<T, Call, Answer>(
        &self,
        stop: &CancellationToken,
        mut call: Call,
    ) -> Result<Option<T>, StoreError>
    where
        Call: FnMut() -> Answer,
        Answer: Future<Output = Result<T, StoreError>>,
    {
        let mut tries = 0;
        loop {
            match call().await {
                Err(error) if error.is_retryable() => {
                    if tries == 0 && !self.lasts.swap(true, Ordering::Relaxed) {
                        tracing::warn!(%error, "the store cannot be used now; jobs wait until it can");
                    }
                }
                answer => {
                    // Whoever is answered first tells the end.
                    if tries > 0 && answer.is_ok() && self.lasts.swap(false, Ordering::Relaxed) {
                        tracing::info!(tries, "the store can be used again");
                    }
                    return answer.map(Some);
                }
            }
            tries += 1;
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(pause(tries)) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn away() -> StoreError {
        StoreError::Unavailable {
            server: "Redis at nowhere".into(),
            reason: "a test".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_limit() {
        let (outage, stop, mut left) = (Outage::default(), CancellationToken::new(), 60);
        let begun = Instant::now();
        let answer = outage.outlast(&stop, || {
            left -= 1;
            std::future::ready(if left > 0 { Err(away()) } else { Ok(7) })
        });
        assert_eq!(answer.await.unwrap(), Some(7));
        // 50 + 100 + … + 2,000 ms for 40 pauses, and 19 of 2,000 ms.
        assert_eq!(begun.elapsed().as_millis(), 50 * 40 * 41 / 2 + 19 * 2_000);
        assert!(!outage.lasts.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_stopped_waits_no_longer_but_tried_once() {
        let (outage, stop) = (Outage::default(), CancellationToken::new());
        stop.cancel();
        let answer = outage.outlast(&stop, || std::future::ready(Ok(7)));
        assert_eq!(answer.await.unwrap(), Some(7));
        let answer = outage.outlast::<(), _, _>(&stop, || std::future::ready(Err(away())));
        assert_eq!(answer.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn other_errors_are_not_waited_out() {
        let outage = Outage::default();
        let stop = CancellationToken::new();
        let answer = outage.outlast::<(), _, _>(&stop, || std::future::ready(Err(StoreError::Closed)));
        assert!(matches!(answer.await, Err(StoreError::Closed)));
    }
}
