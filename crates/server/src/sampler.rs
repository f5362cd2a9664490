//! Looks at the store every second: for the dashboard, for metrics, and to know whether it is there.
//!
//! What was seen last is kept, so that there is an answer while the store is away.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_api::{OldestWait, Queue, Sample, Stats, StoreState, Workers};
use tidegate_core::bulk::views::{BulkStats, Cursor, GroupView, LimitsView, Query, QueueView, View};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::{Store, StoreError, StoreExt};
use tokio::sync::broadcast;

use crate::convert::{self, time};
use crate::problem::{ApiError, ApiResult, UNAVAILABLE};
use crate::state::App;

const INTERVAL_MS: u64 = 1_000;
/// While the store is away.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// A store that does not answer within this is away.
const PATIENCE: Duration = Duration::from_secs(3);
/// Limit: ten minutes of samples.
const SAMPLES: usize = 600;
/// Limit: groups looked at per second, and in one walk over them.
const GROUPS_PER_LOOK: u32 = 500;
const MAX_GROUPS: usize = 100_000;
/// Windows up to this are counted whole.
const LONGEST_WINDOW: Millis = Millis(2_000);
/// The rate is that of the last seconds.
const RATE_OVER: usize = 5;

#[derive(Debug)]
pub(crate) struct Sampler {
    seen: Mutex<Seen>,
    news: broadcast::Sender<Arc<Stats>>,
    kind: &'static str,
}

#[derive(Debug, Default)]
struct Seen {
    samples: VecDeque<Sample>,
    last: Option<Look>,
    /// Starts counted, and when, over the last seconds.
    started: VecDeque<Counted>,
    away_since: Option<Timestamp>,
    /// Looks in a row that met no store.
    failures: u32,
    groups: Walk,
}

/// One look at the store.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) at: Timestamp,
    pub(crate) stats: BulkStats,
    pub(crate) queues: Vec<QueueView>,
    pub(crate) limits: LimitsView,
}

/// All groups, seen page by page: a look at thousands of them at once would hold up everybody else.
#[derive(Debug, Default)]
struct Walk {
    next: Option<Cursor>,
    under_way: Vec<GroupView>,
    complete: Arc<Vec<GroupView>>,
}

impl Sampler {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self {
            seen: Mutex::default(),
            news: broadcast::Sender::new(16),
            kind,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until the service stops.
    pub(crate) async fn run(app: App) {
        let this = &app.sampler;
        loop {
            let pause = match this.look(&app).await {
                Ok(()) => {
                    app.metrics.refresh(&*app.store, &this.last().1).await;
                    until_next_look(app.now())
                }
                Err(error) => {
                    let mut seen = this.seen();
                    seen.failures += 1;
                    // One slow answer is no outage.
                    if seen.failures >= 2 && seen.away_since.is_none() && !app.stopping.is_cancelled() {
                        tracing::warn!(error = %error.detail, "the store is away; reads are answered with what was seen last");
                        seen.away_since = Some(app.now());
                    }
                    LOOK_AGAIN
                }
            };
            let _nobody_listens = this.last_stats(&app).map(|stats| this.news.send(Arc::new(stats)));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = app.stopping.cancelled() => return,
            }
        }
    }

    async fn look(&self, app: &App) -> ApiResult<()> {
        let look = collect(app).await?;
        let after = self.seen().groups.next;
        let page = patiently(app.store.call(Query::Groups {
            after,
            max: GROUPS_PER_LOOK,
        }))
        .await?;
        let mut seen = self.seen();
        seen.failures = 0;
        if seen.away_since.take().is_some() {
            tracing::info!("the store is back");
        }
        if let Ok(View::Groups(page)) = page {
            let walk = &mut seen.groups;
            walk.under_way.extend(page.items);
            walk.next = page.next;
            if page.next.is_none() || walk.under_way.len() >= MAX_GROUPS {
                walk.complete = Arc::new(std::mem::take(&mut walk.under_way));
                walk.next = None;
            }
        }
        seen.started.push_back(Counted {
            at: look.at,
            window: look.limits.window_ms,
            started: look.stats.started,
            in_window: look.queues.iter().map(|queue| queue.started).sum(),
        });
        if seen.started.len() > RATE_OVER + 1 {
            seen.started.pop_front();
        }
        let sample = Sample {
            at: time(look.at),
            start_rate: seen.rate(2),
            global_rps: look.limits.global_rps,
            counts: convert::counts(look.stats.counts),
            active_groups: look.stats.active_groups,
        };
        seen.samples.push_back(sample);
        if seen.samples.len() > SAMPLES {
            seen.samples.pop_front();
        }
        seen.last = Some(look);
        Ok(())
    }

    pub(crate) fn away_since(&self) -> Option<Timestamp> {
        self.seen().away_since
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.seen().samples.iter().copied().collect()
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Stats>> {
        self.news.subscribe()
    }

    /// The last look, and all groups as they were last walked over; for metrics.
    pub(crate) fn last(&self) -> (Option<Look>, Arc<Vec<GroupView>>) {
        let seen = self.seen();
        (seen.last.clone(), seen.groups.complete.clone())
    }

    pub(crate) fn queues(&self) -> Vec<QueueView> {
        self.seen()
            .last
            .as_ref()
            .map(|look| look.queues.clone())
            .unwrap_or_default()
    }

    /// As it is at this moment, or as it was last seen if the store is away.
    pub(crate) async fn stats(&self, app: &App) -> ApiResult<Stats> {
        if self.away_since().is_none() {
            match collect(app).await {
                Ok(look) => self.seen().last = Some(look),
                Err(refused) if refused.kind != UNAVAILABLE => return Err(refused),
                Err(_) => {}
            }
        }
        self.last_stats(app)
            .ok_or_else(|| ApiError::new(UNAVAILABLE, "the store has not been reached yet"))
    }

    /// As it was last seen.
    pub(crate) fn last_stats(&self, app: &App) -> Option<Stats> {
        let seen = self.seen();
        let look = seen.last.as_ref()?;
        let stats = &look.stats;
        Some(Stats {
            at: time(look.at),
            counts: convert::counts(stats.counts),
            active_groups: stats.active_groups,
            groups: stats.groups_kept,
            high_priority_groups: stats.high_priority_groups,
            normal_priority_groups: stats.normal_priority_groups,
            low_priority_groups: stats.low_priority_groups,
            start_rate: seen.rate(RATE_OVER + 1),
            global_rps: look.limits.global_rps,
            limit_per_window: stats.limit_per_window,
            most_started_per_window: stats.most_started_per_window,
            started: stats.started,
            throttles: stats.throttles,
            saved_spins: stats.saved_spins,
            oldest_wait: oldest(&seen.groups.complete),
            queues: look.queues.iter().map(|view| queue(app, view)).collect(),
            store: StoreState {
                kind: self.kind.into(),
                available: seen.away_since.is_none(),
                away_since: seen.away_since.map(time),
            },
            version: env!("CARGO_PKG_VERSION").into(),
        })
    }
}

impl Seen {
    /// Starts per second over the last `looks`.
    fn rate(&self, looks: usize) -> f64 {
        let skip = self.started.len().saturating_sub(looks);
        match (self.started.get(skip), self.started.back()) {
            (Some(from), Some(to)) => to.rate_since(from),
            _ => 0.0,
        }
    }
}

/// Starts counted up to a moment.
#[derive(Debug, Clone, Copy)]
struct Counted {
    at: Timestamp,
    window: Millis,
    started: u64,
    /// Of these, in the window that was under way.
    in_window: u64,
}

impl Counted {
    /// Starts per second. Counted over whole windows, because starts bunch at the beginning of each: a look that
    /// comes a little late would see the bunch of two windows in the time of one, and tell of a limit exceeded that
    /// was not. Windows of many seconds would tell too late; there the time is what counts.
    fn rate_since(&self, from: &Counted) -> f64 {
        let (starts, span) = if self.window <= LONGEST_WINDOW {
            let windows = (self.at.0 / self.window.0).saturating_sub(from.at.0 / self.window.0);
            let complete = |counted: &Counted| counted.started.saturating_sub(counted.in_window);
            // After a restart of the store its count begins again.
            let starts = complete(self).saturating_sub(complete(from));
            (starts, Millis(windows * self.window.0))
        } else {
            (self.started.saturating_sub(from.started), self.at.since(from.at))
        };
        if span.0 == 0 {
            return 0.0;
        }
        (starts as f64 / span.as_secs_f64() * 10.0).round() / 10.0
    }
}

fn oldest(groups: &[GroupView]) -> Option<OldestWait> {
    let waiting = groups.iter().filter(|group| !group.paused);
    let (since, group) = waiting
        .filter_map(|group| Some((group.waiting_since?, group)))
        .min_by_key(|(since, _)| *since)?;
    Some(OldestWait {
        group: group.id.as_str().to_owned(),
        since: time(since),
    })
}

fn queue(app: &App, view: &QueueView) -> Queue {
    let (asking, target) = (app.queues.of(&view.id), app.targets.view(&view.id));
    Queue {
        id: view.id.as_str().to_owned(),
        configured_rps: view.configured_rps,
        rps: view.rps,
        started: view.started,
        ready: view.ready,
        groups_waiting: view.groups_waiting,
        last_cut_at: view.last_cut_at.map(time),
        workers: Workers {
            push: target.as_ref().map_or(0, |target| target.concurrency),
            push_busy: target.as_ref().map_or(0, |target| target.busy),
            pull_waiting: asking.waiting,
            pull_last_at: asking.last.map(time),
        },
    }
}

/// To the middle of the next second: starts bunch at the beginning of a window, and looks that drift over that
/// moment would see two windows in one second and none in another, a rate over the limit that never was.
fn until_next_look(now: Timestamp) -> Duration {
    let pause = INTERVAL_MS - (now.0 + INTERVAL_MS / 2) % INTERVAL_MS;
    // After a look that came late one second is left out: half of one would say nothing.
    let late = pause < INTERVAL_MS / 2;
    Duration::from_millis(if late { pause + INTERVAL_MS } else { pause })
}

async fn collect(app: &App) -> ApiResult<Look> {
    let store: &dyn Store = &*app.store;
    let (stats, queues, limits) = tokio::join!(
        patiently(store.call(Query::BulkStats)),
        patiently(store.call(Query::Queues)),
        patiently(store.call(Query::Limits)),
    );
    match (stats??, queues??, limits??) {
        (View::BulkStats(stats), View::Queues(queues), View::Limits(limits)) => Ok(Look {
            at: app.now(),
            stats,
            queues,
            limits,
        }),
        other => unreachable!("statistics are answered with statistics, not {other:?}"),
    }
}

async fn patiently<T>(call: impl Future<Output = Result<T, StoreError>>) -> ApiResult<T> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::new(
            UNAVAILABLE,
            format!("the store has not answered within {} ms", PATIENCE.as_millis()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(at: u64, window: u64, started: u64, in_window: u64) -> Counted {
        Counted {
            at: Timestamp(at),
            window: Millis(window),
            started,
            in_window,
        }
    }

    /// 120 starts at the beginning of every second, and looks that come early or late.
    #[test]
    fn a_late_look_tells_of_no_limit_exceeded() {
        let look = |at: u64| counted(at, 1_000, (at / 1_000 + 1) * 120, 120);
        for (from, to) in [(1_500, 2_500), (1_950, 3_010), (1_010, 1_990), (1_500, 5_400)] {
            let rate = look(to).rate_since(&look(from));
            assert!(rate == 120.0 || rate == 0.0, "{from} to {to}: {rate}");
        }
    }

    #[test]
    fn long_windows_are_told_by_time() {
        let rate = counted(3_000, 60_000, 50, 50).rate_since(&counted(1_000, 60_000, 30, 30));
        assert_eq!(rate, 10.0);
    }

    #[test]
    fn a_count_that_begins_again_is_no_rate() {
        assert_eq!(
            counted(2_500, 1_000, 5, 0).rate_since(&counted(1_500, 1_000, 500, 0)),
            0.0
        );
    }
}
