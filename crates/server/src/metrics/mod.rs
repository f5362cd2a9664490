//! What `/metrics` tells: counted where it happens, or seen last by the sampler; a scrape asks the store nothing.
//!
//! PathParams and labels of the bulk part are the original's, those of the refresh part too, after `tidegate_`;
//! `docs/metrics.md` documents all of them. Everything that users can make more of is bounded: groups by
//! `metrics.max_groups`, the rest by the configuration.

mod budgets;
mod congestion;
mod groups;
mod process;
mod refresh;
mod rooms;
mod scrape;
mod series;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tidegate_core::bulk::views::GroupView;
use tidegate_core::bulk::{AdmitOutcome, DelayReason, EnqueueOutcome, Enqueued, ExpireLeasesOutcome};
use tidegate_core::bulk::{ReleaseDueOutcome, Settled, Stop};
use tidegate_core::config::CongestionConfig;
use tidegate_core::ids::GroupId;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;

use crate::config::Config;
use crate::state::App;
use congestion::Congestion;
use groups::Groups;
use scrape::Scrape;

/// From a tenth of a millisecond, what a store in memory takes, to what a store that is away takes.
const CALL_MS: [f64; 13] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1_000.0, 10_000.0,
];
const REQUEST_SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];
/// Why a lease or an admission stopped.
const STOPS: [&str; 6] = ["enough", "empty", "full", "limited", "held", "more"];
/// What came of answers.
const SETTLED: [&str; 5] = ["done", "delayed", "dead", "returned", "stale"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Script {
    script: &'static str,
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

/// Counts of this process; see [`scrape`] for what is only looked at.
#[derive(Debug)]
pub(crate) struct Metrics {
    max_groups: usize,
    congestion_config: CongestionConfig,
    ready_cap: u32,
    started_at: Timestamp,
    groups: Groups,
    congestion: Mutex<Congestion>,
    calls: Family<Script, Histogram, fn() -> Histogram>,
    call_errors: Family<Script, Counter>,
    enqueued: AtomicU64,
    leased: AtomicU64,
    lease_stops: [AtomicU64; 6],
    settled: [AtomicU64; 5],
    expired_delayed: AtomicU64,
    expired_dead: AtomicU64,
    moved: AtomicU64,
    skipped: AtomicU64,
    cycles: Histogram,
    to_ready: AtomicU64,
    to_non_ready: AtomicU64,
    rejected: AtomicU64,
    requests: Family<Answered, Counter>,
    request_time: Family<Route, Histogram, fn() -> Histogram>,
}

fn add(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

fn ms(took: Duration) -> f64 {
    took.as_secs_f64() * 1_000.0
}

impl Metrics {
    pub(crate) fn new(config: &Config, now: Timestamp) -> Self {
        let max_groups = config.metrics.max_groups as usize;
        Self {
            max_groups,
            congestion_config: config.congestion.clone(),
            ready_cap: config.backpressure.ready_queue_max_size,
            started_at: now,
            groups: Groups::new(max_groups),
            congestion: Mutex::default(),
            calls: Family::new_with_constructor(|| Histogram::new(CALL_MS)),
            call_errors: Family::default(),
            enqueued: AtomicU64::default(),
            leased: AtomicU64::default(),
            lease_stops: Default::default(),
            settled: Default::default(),
            expired_delayed: AtomicU64::default(),
            expired_dead: AtomicU64::default(),
            moved: AtomicU64::default(),
            skipped: AtomicU64::default(),
            cycles: Histogram::new(CALL_MS),
            to_ready: AtomicU64::default(),
            to_non_ready: AtomicU64::default(),
            rejected: AtomicU64::default(),
            requests: Family::default(),
            request_time: Family::new_with_constructor(|| Histogram::new(REQUEST_SECONDS)),
        }
    }

    /// A call of the store that took so long, well or not.
    pub(crate) fn called(&self, script: &'static str, took: Duration, well: bool) {
        let labels = Script { script };
        self.calls.get_or_create(&labels).observe(ms(took));
        if !well {
            self.call_errors.get_or_create(&labels).inc();
        }
    }

    pub(crate) fn enqueued(&self, outcome: &EnqueueOutcome) {
        let accepted = |job: &&Enqueued| matches!(job, Enqueued::Accepted(_));
        add(&self.enqueued, outcome.jobs.iter().filter(accepted).count());
    }

    /// Jobs of these groups were handed to workers. The rate is charged here, so they are what it allowed.
    pub(crate) fn leased<'a>(&self, groups: impl ExactSizeIterator<Item = &'a GroupId>, stop: Stop) {
        let stop = match stop {
            Stop::Enough => 0,
            Stop::Empty => 1,
            Stop::Full => 2,
            Stop::Limited { .. } => 3,
            Stop::Held { .. } => 4,
            Stop::More => 5,
        };
        add(&self.lease_stops[stop], 1);
        add(&self.leased, groups.len());
        self.groups
            .count_each(groups, |counts, jobs| add(&counts.allowed, jobs));
    }

    pub(crate) fn admitted(&self, outcome: &AdmitOutcome) {
        add(&self.to_ready, outcome.admitted.len());
        add(&self.to_non_ready, outcome.denied.len());
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
        add(&self.to_non_ready, throttled);
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
        self.cycles.observe(ms(took));
    }

    /// A request was answered. `route` is the pattern that matched, never what was asked for.
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

    /// After every look of the sampler: who gets labels, and how congested they are.
    pub(crate) async fn refresh(&self, store: &dyn Store, groups: &[GroupView]) {
        let top = scrape::top(groups, self.max_groups);
        self.groups
            .refresh(top.iter().map(|group| &group.id), Instant::now());
        let wanted = self.congestion().wanted(&top);
        let states = congestion::ask(store, wanted).await;
        let mut congestion = self.congestion();
        for state in states {
            let seen = congestion.put(state, self.started_at);
            self.groups.throttled(&seen, &self.congestion_config);
        }
    }

    fn congestion(&self) -> MutexGuard<'_, Congestion> {
        self.congestion.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self, app: &App) -> String {
        self.text(&Scrape::take(app))
    }
}

/// Clients may make up methods: those of HTTP have names.
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
mod refresh_tests;
#[cfg(test)]
mod room_tests;
#[cfg(test)]
mod tests;
