//! The Prometheus metrics of `/metrics`.
//!
//! The service counts events where they happen, and takes gauges from the sampler's last reading, so a scrape never calls the
//! store. Names are `tidegate_<part>_<what>_<unit>`. The part is `bulk`, `refresh` or `room`, or a component that the whole
//! process shares. `docs/metrics.md` documents every name. `metrics.max_groups` bounds the series of groups, and the
//! configuration bounds all others.

mod original_names;
mod process;
pub(crate) mod scrape;
pub(crate) mod series;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use scrape::Scrape;
use series::Timer;
use tidegate_core::bulk::config::CongestionConfig;
use tidegate_core::bulk::views::GroupView;
use tidegate_core::bulk::{
    AdmitOutcome, DelayReason, EnqueueOutcome, Enqueued, ExpireLeasesOutcome, ReleaseDueOutcome, Settled,
    Stop,
};
use tidegate_core::ids::GroupId;
use tidegate_core::time::Timestamp;
use tidegate_store::bulk::BulkStore;

use crate::bulk::metrics::congestion::{self, Congestion};
use crate::bulk::metrics::groups::Groups;
use crate::config::Config;
use crate::state::App;

const REQUEST_SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Why a lease or an admission stopped.
const STOPS: [&str; 7] = ["enough", "empty", "full", "limited", "held", "more", "busy"];
/// What became of jobs that workers settled.
const SETTLED: [&str; 5] = ["completed", "delayed", "dead", "released", "stale"];

/// The calls of one operation of the store.
#[derive(Debug, Default)]
struct Calls {
    time: Timer,
    errors: AtomicU64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    method: &'static str,
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: &'static str,
    route: String,
    status: u16,
}

/// The counters of this process. [`scrape`] adds the values that it reads elsewhere.
#[derive(Debug)]
pub(crate) struct Metrics {
    max_groups: usize,
    original_names: bool,
    congestion_config: CongestionConfig,
    ready_cap: u32,
    pub(crate) started_at: Timestamp,
    groups: Groups,
    congestion: Mutex<Congestion>,
    /// By operation.
    calls: RwLock<BTreeMap<&'static str, Calls>>,
    enqueued: AtomicU64,
    leased: AtomicU64,
    lease_stops: [AtomicU64; 6],
    settled: [AtomicU64; 5],
    expired_delayed: AtomicU64,
    expired_dead: AtomicU64,
    moved: AtomicU64,
    skipped: AtomicU64,
    cycles: Timer,
    to_ready: AtomicU64,
    to_delayed: AtomicU64,
    rejected: AtomicU64,
    requests: Family<Answered, Counter>,
    request_time: Family<Route, Histogram, fn() -> Histogram>,
}

pub(crate) fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl Metrics {
    pub(crate) fn new(config: &Config, now: Timestamp) -> Self {
        let max_groups = config.metrics.max_groups as usize;
        Self {
            max_groups,
            original_names: config.metrics.original_names,
            congestion_config: config.congestion.clone(),
            ready_cap: config.backpressure.ready_queue_max_size,
            started_at: now,
            groups: Groups::new(max_groups),
            congestion: Mutex::default(),
            calls: RwLock::default(),
            enqueued: AtomicU64::default(),
            leased: AtomicU64::default(),
            lease_stops: Default::default(),
            settled: Default::default(),
            expired_delayed: AtomicU64::default(),
            expired_dead: AtomicU64::default(),
            moved: AtomicU64::default(),
            skipped: AtomicU64::default(),
            cycles: Timer::default(),
            to_ready: AtomicU64::default(),
            to_delayed: AtomicU64::default(),
            rejected: AtomicU64::default(),
            requests: Family::default(),
            request_time: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
        }
    }

    /// Counts a call of the store.
    pub(crate) fn called(&self, operation: &'static str, took: Duration, succeeded: bool) {
        let count = |calls: &Calls| {
            calls.time.observe(took);
            add(&calls.errors, usize::from(!succeeded));
        };
        {
            let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(calls) = calls.get(operation) {
                return count(calls);
            }
        }
        let mut calls = self.calls.write().unwrap_or_else(PoisonError::into_inner);
        count(calls.entry(operation).or_default());
    }

    pub(crate) fn enqueued(&self, outcome: &EnqueueOutcome) {
        let accepted = |job: &&Enqueued| matches!(job, Enqueued::Accepted(_));
        add(&self.enqueued, outcome.jobs.iter().filter(accepted).count());
    }

    /// Counts jobs of these groups that workers leased. A lease charges the rate, so the rate allowed these jobs.
    pub(crate) fn leased<'a>(&self, groups: impl ExactSizeIterator<Item = &'a GroupId>, stop: Stop) {
        let stop = match stop {
            Stop::Enough => 0,
            Stop::Empty => 1,
            Stop::Full => 2,
            Stop::Limited { .. } => 3,
            Stop::Held { .. } => 4,
            Stop::More => 5,
            Stop::Busy => 6,
        };
        add(&self.lease_stops[stop], 1);
        add(&self.leased, groups.len());
        self.groups
            .count_each(groups, |counts, jobs| add(&counts.allowed, jobs));
    }

    pub(crate) fn admitted(&self, outcome: &AdmitOutcome) {
        add(&self.to_ready, outcome.admitted.len());
        add(&self.to_delayed, outcome.denied.len());
        if outcome.stop == Stop::Full {
            add(&self.rejected, 1);
        }
        let (global, share): (Vec<_>, Vec<_>) = outcome
            .denied
            .iter()
            .partition(|denied| denied.global.0 >= denied.global.1);
        let groups = global.iter().map(|denied| &denied.group);
        self.groups
            .count_each(groups, |counts, jobs| add(&counts.denied_global, jobs));
        let groups = share.iter().map(|denied| &denied.group);
        self.groups
            .count_each(groups, |counts, jobs| add(&counts.denied_per_group, jobs));
    }

    pub(crate) fn settled(&self, outcome: &[Settled]) {
        let mut counts = [0; SETTLED.len()];
        let mut throttled = 0;
        for settled in outcome {
            let what = match settled {
                Settled::Completed { .. } => 0,
                Settled::Delayed { reason, .. } => {
                    throttled += usize::from(*reason == DelayReason::ApiThrottled);
                    1
                }
                Settled::Dead { .. } => 2,
                Settled::Released => 3,
                Settled::Stale => 4,
            };
            counts[what] += 1;
        }
        add(&self.to_delayed, throttled);
        for (counter, count) in self.settled.iter().zip(counts) {
            add(counter, count);
        }
    }

    pub(crate) fn expired(&self, outcome: ExpireLeasesOutcome) {
        add(&self.expired_delayed, outcome.delayed as usize);
        add(&self.expired_dead, outcome.dead as usize);
    }

    pub(crate) fn released(&self, outcome: ReleaseDueOutcome, took: Duration) {
        add(&self.moved, outcome.released as usize);
        add(&self.skipped, usize::from(outcome.released == 0));
        self.cycles.observe(took);
    }

    /// Counts an answered request. `route` is the pattern that matched, never the path that the client sent.
    pub(crate) fn request(&self, method: &Method, route: Option<&str>, status: u16, took: Duration) {
        let (method, route) = (named(method), route.unwrap_or("none").to_owned());
        let time = Route {
            method,
            route: route.clone(),
        };
        self.request_time.get_or_create(&time).observe(took.as_secs_f64());
        let answered = Answered {
            method,
            route,
            status,
        };
        self.requests.get_or_create(&answered).inc();
    }

    /// Decides which groups get labels, and reads their congestion. The sampler calls it after every reading.
    pub(crate) async fn refresh(&self, store: &dyn BulkStore, groups: &[GroupView]) {
        let top = scrape::top(groups, self.max_groups);
        self.groups
            .refresh(top.iter().map(|group| &group.id), Instant::now());
        let wanted = self.congestion().wanted(&top);
        let states = congestion::read_states(store, wanted).await;
        let mut congestion = self.congestion();
        for state in states {
            let seen = congestion.put(state, self.started_at);
            self.groups.throttled(&seen, &self.congestion_config);
        }
    }

    fn congestion(&self) -> MutexGuard<'_, Congestion> {
        self.congestion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renders a scrape as text.
    pub(crate) fn render(&self, app: &App) -> String {
        self.text(&Scrape::take(app))
    }
}

/// Clients may invent methods: only those of HTTP become labels.
fn named(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod name_tests;
#[cfg(test)]
pub(crate) mod tests;
