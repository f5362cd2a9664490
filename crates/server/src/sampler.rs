//! Reads the store every second: for the dashboard, for metrics, and to detect an outage.
//!
//! The sampler keeps its last reading, so that the service can answer while the store is unavailable.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_api::{OldestWait, Queue, Sample, Stats, StoreBackend, StoreState, Workers};
use tidegate_core::bulk::views::{
    BulkStats, Cursor, GroupView, LimitsView, Query, QueueBacklog, QueueView, View,
};
use tidegate_core::limits::start_rate::{StartCount, StartRate};
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio::sync::broadcast;

use crate::bulk::convert::{self, time};
use crate::problem::{ApiError, ApiResult, UNAVAILABLE};
use crate::state::App;

const INTERVAL_MS: u64 = 1_000;
/// How long the sampler waits before it tries an unavailable store again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The sampler counts a call as failed when the store does not answer within this.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Limit: ten minutes of samples.
const SAMPLES: usize = 600;
/// Limit: groups that the sampler reads per second, and in one pass over all of them.
const GROUPS_PER_READING: u32 = 500;
const MAX_GROUPS: usize = 100_000;

#[derive(Debug)]
pub(crate) struct Sampler {
    seen: Mutex<Seen>,
    updates: broadcast::Sender<Arc<Stats>>,
    backend: StoreBackend,
}

#[derive(Debug, Default)]
struct Seen {
    samples: VecDeque<Sample>,
    last: Option<Reading>,
    start_rate: StartRate,
    unavailable_since: Option<Timestamp>,
    /// Readings in a row that the store did not answer.
    failures: u32,
    groups: Walk,
}

/// The state of the store at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) at: Timestamp,
    pub(crate) stats: BulkStats,
    pub(crate) queues: Vec<QueueView>,
    pub(crate) backlog: Vec<QueueBacklog>,
    pub(crate) limits: LimitsView,
}

/// All groups. The sampler reads them page by page, because reading thousands at once would delay other callers.
#[derive(Debug, Default)]
struct Walk {
    next: Option<Cursor>,
    under_way: Vec<GroupView>,
    complete: Arc<Vec<GroupView>>,
}

impl Sampler {
    pub(crate) fn new(backend: StoreBackend) -> Self {
        Self {
            seen: Mutex::default(),
            updates: broadcast::Sender::new(16),
            backend,
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Samples until the service stops.
    pub(crate) async fn run(app: App) {
        let this = &app.sampler;
        loop {
            let pause = match this.sample(&app).await {
                Ok(()) => {
                    app.metrics.refresh(&*app.store, &this.last().1).await;
                    until_next_sample(app.now())
                }
                Err(error) => {
                    let mut seen = this.seen();
                    seen.failures += 1;
                    // One slow answer is not an outage.
                    if seen.failures >= 2 && seen.unavailable_since.is_none() && !app.stopping.is_cancelled()
                    {
                        tracing::warn!(error = %error.detail, "the store is unavailable; reads return the last known state");
                        seen.unavailable_since = Some(app.now());
                    }
                    RETRY_PAUSE
                }
            };
            let _nobody_listens = this
                .last_stats(&app)
                .map(|stats| this.updates.send(Arc::new(stats)));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = app.stopping.cancelled() => return,
            }
        }
    }

    async fn sample(&self, app: &App) -> ApiResult<()> {
        let reading = collect(app).await?;
        let after = self.seen().groups.next;
        let page = within_timeout(app.store.call(Query::Groups {
            after,
            max: GROUPS_PER_READING,
        }))
        .await?;
        let mut seen = self.seen();
        seen.failures = 0;
        if seen.unavailable_since.take().is_some() {
            tracing::info!("the store is available again");
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
        seen.start_rate.observe(StartCount {
            at: reading.at,
            window: reading.limits.window_ms,
            started: reading.stats.started,
            in_window: reading.queues.iter().map(|queue| queue.started).sum(),
        });
        let sample = Sample {
            at: time(reading.at),
            start_rate: seen.start_rate.over(1),
            global_rps: reading.limits.global_rps,
            counts: convert::counts(reading.stats.counts),
            active_groups: reading.stats.active_groups,
        };
        seen.samples.push_back(sample);
        if seen.samples.len() > SAMPLES {
            seen.samples.pop_front();
        }
        seen.last = Some(reading);
        Ok(())
    }

    pub(crate) fn unavailable_since(&self) -> Option<Timestamp> {
        self.seen().unavailable_since
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.seen().samples.iter().copied().collect()
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Stats>> {
        self.updates.subscribe()
    }

    /// The last reading, and the groups of the last complete pass. Metrics use both.
    pub(crate) fn last(&self) -> (Option<Reading>, Arc<Vec<GroupView>>) {
        let seen = self.seen();
        (seen.last.clone(), seen.groups.complete.clone())
    }

    pub(crate) fn queues(&self) -> Vec<QueueView> {
        self.seen()
            .last
            .as_ref()
            .map(|reading| reading.queues.clone())
            .unwrap_or_default()
    }

    /// Reads the current statistics; returns the last known ones if the store is unavailable.
    pub(crate) async fn stats(&self, app: &App) -> ApiResult<Stats> {
        if self.unavailable_since().is_none() {
            match collect(app).await {
                Ok(reading) => self.seen().last = Some(reading),
                Err(refused) if refused.kind != UNAVAILABLE => return Err(refused),
                Err(_) => {}
            }
        }
        self.last_stats(app).ok_or_else(|| {
            ApiError::new(
                UNAVAILABLE,
                "the store has not answered since the service started",
            )
        })
    }

    /// The last known statistics.
    pub(crate) fn last_stats(&self, app: &App) -> Option<Stats> {
        let seen = self.seen();
        let reading = seen.last.as_ref()?;
        let stats = &reading.stats;
        Some(Stats {
            at: time(reading.at),
            counts: convert::counts(stats.counts),
            active_groups: stats.active_groups,
            groups: stats.groups_in_memory,
            high_priority_groups: stats.high_priority_groups,
            normal_priority_groups: stats.normal_priority_groups,
            low_priority_groups: stats.low_priority_groups,
            start_rate: seen.start_rate.over(StartRate::LONGEST),
            global_rps: reading.limits.global_rps,
            limit_per_window: stats.limit_per_window,
            most_started_per_window: stats.most_started_per_window,
            started: stats.started,
            throttles: stats.throttles,
            saved_spins: stats.saved_spins,
            oldest_wait: oldest(&seen.groups.complete),
            queues: reading
                .queues
                .iter()
                .map(|view| queue(app, view, &reading.backlog))
                .collect(),
            store: StoreState {
                backend: self.backend,
                available: seen.unavailable_since.is_none(),
                unavailable_since: seen.unavailable_since.map(time),
            },
            version: env!("CARGO_PKG_VERSION").into(),
        })
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

fn queue(app: &App, view: &QueueView, backlog: &[QueueBacklog]) -> Queue {
    // A queue of the configuration has none before its first job.
    let backlog = backlog.iter().find(|backlog| backlog.queue == view.id);
    let (pull, target) = (app.queues.of(&view.id), app.targets.view(&view.id));
    Queue {
        id: view.id.as_str().to_owned(),
        configured_rps: view.configured_rps,
        rps: view.rps,
        started: view.started,
        ready: view.ready,
        waiting: backlog.map_or(0, |backlog| backlog.waiting),
        delayed: backlog.map_or(0, |backlog| backlog.delayed),
        oldest_waiting_since: backlog.and_then(|backlog| backlog.oldest_waiting_since).map(time),
        groups_waiting: view.groups_waiting,
        running: view.running,
        max_running: view.max_running,
        last_cut_at: view.last_cut_at.map(time),
        held_until: view.held_until.map(time),
        workers: Workers {
            push: target.as_ref().map_or(0, |target| target.concurrency),
            push_busy: target.as_ref().map_or(0, |target| target.busy),
            pull_waiting: pull.waiting,
            pull_last_at: pull.last.map(time),
        },
    }
}

/// The time until the middle of the next second.
///
/// Starts bunch at the beginning of a window. Readings that drift over that moment would count two windows in one second
/// and none in another, and report a rate that never was.
fn until_next_sample(now: Timestamp) -> Duration {
    let pause = INTERVAL_MS - (now.0 + INTERVAL_MS / 2) % INTERVAL_MS;
    // After a late reading the sampler skips one second: half a second is too short for a rate.
    let late = pause < INTERVAL_MS / 2;
    Duration::from_millis(if late { pause + INTERVAL_MS } else { pause })
}

async fn collect(app: &App) -> ApiResult<Reading> {
    let store: &dyn BulkStore = &*app.store;
    let (stats, queues, backlog, limits) = tokio::join!(
        within_timeout(store.call(Query::BulkStats)),
        within_timeout(store.call(Query::Queues)),
        within_timeout(store.call(Query::Backlog)),
        within_timeout(store.call(Query::Limits)),
    );
    match (stats??, queues??, backlog??, limits??) {
        (View::BulkStats(stats), View::Queues(queues), View::Backlog(backlog), View::Limits(limits)) => {
            Ok(Reading {
                at: app.now(),
                stats,
                queues,
                backlog,
                limits,
            })
        }
        other => unreachable!("a query for statistics returned {other:?}"),
    }
}

async fn within_timeout<T>(call: impl Future<Output = Result<T, StoreError>>) -> ApiResult<T> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ApiError::new(
            UNAVAILABLE,
            format!("the store did not answer within {} ms", CALL_TIMEOUT.as_millis()),
        )),
    }
}
