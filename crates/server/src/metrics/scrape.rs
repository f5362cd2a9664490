//! One scrape: what was seen last and what was counted, as text.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::text;
use tidegate_api::{Stats, Target, TargetState};
use tidegate_core::bulk::congestion::CongestionLevel;
use tidegate_core::bulk::views::GroupView;
use tidegate_core::time::Timestamp;

use super::budgets::Budgeted;
use super::groups::{BACKOFF_MS, Counts, OTHER};
use super::process::Process;
use super::refresh::Refreshing;
use super::rooms::RoomsSeen;
use super::series::{Buckets, Exposition, Labels};
use super::{Metrics, SETTLED, STOPS};
use crate::state::App;

/// Everything that is looked at, not counted.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub(super) now: Timestamp,
    /// None until the store was reached for the first time.
    pub(super) stats: Option<Stats>,
    pub(super) groups: Arc<Vec<GroupView>>,
    pub(super) targets: Vec<Target>,
    /// Name, calls that were heard, calls that were not.
    pub(super) callbacks: Vec<(String, u64, u64)>,
    /// None without budgets.
    pub(super) budgets: Option<Budgeted>,
    /// None without sources.
    pub(super) refresh: Option<Refreshing>,
    /// None without rooms.
    pub(super) rooms: Option<RoomsSeen>,
    pub(super) event_streams: usize,
    pub(super) process: Process,
}

impl Scrape {
    pub(super) fn take(app: &App) -> Self {
        let (_, groups) = app.sampler.last();
        let most = app.config.server.max_event_streams as usize;
        Self {
            now: app.now(),
            stats: app.sampler.last_stats(app),
            groups,
            targets: app.targets.views(&app.sampler.queues()),
            callbacks: app.callbacks.counts(),
            budgets: Budgeted::take(app),
            refresh: Refreshing::take(app),
            rooms: RoomsSeen::take(app),
            event_streams: most.saturating_sub(app.event_streams.available_permits()),
            process: Process::look(),
        }
    }
}

/// The groups with most to do, at most so many; those with nothing to do are not among them.
pub(super) fn top(groups: &[GroupView], most: usize) -> Vec<&GroupView> {
    let named = |group: &&GroupView| group.counts.unfinished() > 0 && group.id.as_str() != OTHER;
    let mut top: Vec<&GroupView> = groups.iter().filter(named).collect();
    let most_first = |group: &&GroupView| std::cmp::Reverse(group.counts.unfinished());
    if top.len() > most {
        top.select_nth_unstable_by_key(most, most_first);
        top.truncate(most);
    }
    top.sort_unstable_by_key(most_first);
    top
}

fn of(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

pub(super) fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

fn level(level: CongestionLevel) -> &'static str {
    match level {
        CongestionLevel::None => "NONE",
        CongestionLevel::Low => "LOW",
        CongestionLevel::Moderate => "MODERATE",
        CongestionLevel::High => "HIGH",
        CongestionLevel::Critical => "CRITICAL",
    }
}

impl Metrics {
    pub(super) fn text(&self, scrape: &Scrape) -> String {
        let mut all = Exposition::default();
        self.stats(scrape, &mut all);
        self.limits(&mut all);
        self.dispatch(scrape, &mut all);
        self.congested(scrape, &mut all);
        self.service(scrape, &mut all);
        targets(scrape, &mut all);
        if let Some(budgets) = &scrape.budgets {
            budgets.tell(&mut all);
        }
        if let Some(refresh) = &scrape.refresh {
            refresh.tell(&mut all);
        }
        if let Some(rooms) = &scrape.rooms {
            rooms.tell(&mut all);
        }
        self.process(scrape, &mut all);
        let mut told = String::new();
        text::encode(&mut told, &all.0).expect("a string takes everything");
        told
    }

    /// FQ-26.
    fn stats(&self, scrape: &Scrape, all: &mut Exposition) {
        let stats = scrape.stats.as_ref();
        let groups = stats.map(|stats| {
            [
                ("high", stats.high_priority_groups),
                ("normal", stats.normal_priority_groups),
                ("low", stats.low_priority_groups),
            ]
        });
        all.gauges(
            "bulk_action_queue_groups",
            "Groups that stand in the fair order",
            groups
                .into_iter()
                .flatten()
                .map(|(name, count)| (label("priority", name), count as f64)),
        );
        all.counter("bulk_action_enqueue", "Jobs accepted", of(&self.enqueued));
        all.counter("bulk_action_dequeue", "Jobs handed to workers", of(&self.leased));
        let top = top(&scrape.groups, self.max_groups);
        let waiting: u64 = scrape.groups.iter().map(|group| group.counts.waiting).sum();
        let named: u64 = top.iter().map(|group| group.counts.waiting).sum();
        let pending = top.iter().map(|group| (group.id.as_str(), group.counts.waiting));
        all.gauges(
            "bulk_action_group_pending_jobs",
            "Waiting jobs of the groups with most to do",
            pending
                .chain([(OTHER, waiting - named)])
                .map(|(id, jobs)| (label("groupId", id), jobs as f64)),
        );
        all.0.register(
            "bulk_action_lua_duration_ms",
            "How long calls of the store took",
            self.calls.clone(),
        );
        all.0.register(
            "tidegate_store_errors",
            "Calls of the store that failed",
            self.call_errors.clone(),
        );
        let states = stats.map(|stats| {
            let counts = stats.counts;
            [
                ("waiting", counts.waiting),
                ("ready", counts.ready),
                ("running", counts.running),
                ("delayed", counts.delayed),
                ("completed", counts.completed),
                ("dead", counts.dead),
            ]
        });
        all.gauges(
            "tidegate_jobs",
            "Jobs in the store",
            states
                .into_iter()
                .flatten()
                .map(|(state, count)| (label("state", state), count as f64)),
        );
        all.gauge(
            "tidegate_active_groups",
            "Groups with unfinished jobs",
            stats.map(|stats| stats.active_groups as f64),
        );
        let settled = SETTLED.iter().zip(&self.settled);
        all.counters(
            "tidegate_settled",
            "Answers of workers, by what they did",
            settled.map(|(what, count)| (label("result", *what), of(count))),
        );
        all.counters(
            "tidegate_leases_expired",
            "Leases that ran out, by what became of the job",
            [
                (label("result", "delayed"), of(&self.expired_delayed)),
                (label("result", "dead"), of(&self.expired_dead)),
            ],
        );
    }

    /// One counter of every group with a place.
    fn by_group(&self, counter: impl Fn(&Counts) -> &AtomicU64) -> Vec<(Labels, f64)> {
        let mut values = Vec::new();
        self.groups
            .read(|group, counts| values.push((label("groupId", group), of(counter(counts)))));
        values
    }

    /// BP-18, what the rate allowed.
    fn limits(&self, all: &mut Exposition) {
        all.counters(
            "bulk_action_rate_limit_allowed",
            "Starts that the rate allowed",
            self.by_group(|counts| &counts.allowed),
        );
        let reason = |reason: &'static str| {
            move |(mut labels, count): (Labels, f64)| {
                labels.push(("reason", reason.into()));
                (labels, count)
            }
        };
        let global = self.by_group(|counts| &counts.denied_global);
        let share = self.by_group(|counts| &counts.denied_per_group);
        all.counters(
            "bulk_action_rate_limit_denied",
            "Jobs that met a spent window and were delayed",
            global
                .into_iter()
                .map(reason("global"))
                .chain(share.into_iter().map(reason("per_group"))),
        );
        let stops = STOPS.iter().zip(&self.lease_stops);
        all.counters(
            "tidegate_lease_stops",
            "Leases, by why they brought no more jobs",
            stops.map(|(why, count)| (label("reason", *why), of(count))),
        );
    }

    /// BP-18, ready and delayed.
    fn dispatch(&self, scrape: &Scrape, all: &mut Exposition) {
        let stats = scrape.stats.as_ref();
        all.gauge(
            "bulk_action_ready_queue_size",
            "Jobs in ready",
            stats.map(|stats| stats.counts.ready as f64),
        );
        all.gauge(
            "tidegate_ready_queue_max_size",
            "Most jobs in ready of one queue",
            f64::from(self.ready_cap),
        );
        all.gauge(
            "bulk_action_non_ready_queue_size",
            "Jobs in delayed",
            stats.map(|stats| stats.counts.delayed as f64),
        );
        all.counter(
            "bulk_action_dispatch_moved",
            "Delayed jobs whose time came, back in their lines",
            of(&self.moved),
        );
        all.0.register(
            "bulk_action_dispatch_cycle_duration_ms",
            "How long looks of the dispatcher took",
            self.cycles.clone(),
        );
        all.counter(
            "bulk_action_dispatch_skip",
            "Looks of the dispatcher that moved nothing",
            of(&self.skipped),
        );
        all.counters(
            "bulk_action_backpressure_admitted",
            "Jobs that were let into ready, or sent to delayed because of a rate",
            [
                (label("destination", "ready"), of(&self.to_ready)),
                (label("destination", "non_ready"), of(&self.to_non_ready)),
            ],
        );
        all.counter(
            "bulk_action_backpressure_rejected",
            "Looks of the fetcher that found ready full",
            of(&self.rejected),
        );
    }

    /// CC-23.
    fn congested(&self, scrape: &Scrape, all: &mut Exposition) {
        let (mut levels, mut averages, mut non_ready) = (Vec::new(), Vec::new(), Vec::new());
        for state in self.congestion().states() {
            let id = || label("groupId", state.group.as_str());
            let mut labels = id();
            labels.push(("level", level(state.congestion_level).into()));
            levels.push((labels, 1.0));
            averages.push((id(), state.avg_throttle_per_job));
            non_ready.push((id(), state.non_ready_count as f64));
        }
        all.gauges(
            "bulk_action_congestion_level",
            "1 for the level that the group has",
            levels,
        );
        let mut backoffs = Vec::new();
        self.groups.read(|group, counts| {
            let buckets: Vec<u64> = counts
                .backoffs
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect();
            backoffs.push((label("groupId", group), of(&counts.backoff_sum), buckets));
        });
        all.0.register(
            "bulk_action_congestion_backoff_ms",
            "Backoffs of throttled jobs",
            Buckets {
                edges: BACKOFF_MS.map(|edge| edge as f64).into(),
                values: backoffs,
            },
        );
        all.counters(
            "tidegate_congestion_at_max_backoff",
            "Throttled jobs whose backoff was the longest allowed",
            self.by_group(|counts| &counts.at_max),
        );
        all.gauges(
            "bulk_action_congestion_avg_throttle_per_job",
            "Mean throttles of the group's completed jobs",
            averages,
        );
        all.gauges(
            "bulk_action_congestion_non_ready_count",
            "Jobs of the group in delayed, scheduled ones left out",
            non_ready,
        );
        let stats = scrape.stats.as_ref();
        all.counter(
            "bulk_action_congestion_saved_spins",
            "Rounds of waiting at the shortest backoff that estimates spared, since the store was opened",
            stats.map(|stats| stats.saved_spins as f64),
        );
        all.counter(
            "tidegate_throttles",
            "Throttled jobs, since the store was opened",
            stats.map(|stats| stats.throttles as f64),
        );
    }

    fn service(&self, scrape: &Scrape, all: &mut Exposition) {
        let stats = scrape.stats.as_ref();
        all.gauge(
            "tidegate_start_rate",
            "Jobs started per second, over the last seconds",
            stats.map(|stats| stats.start_rate),
        );
        all.gauge(
            "tidegate_limit_rps",
            "Jobs that may start per second",
            stats.map(|stats| stats.global_rps),
        );
        let oldest = |stats: &Stats| {
            let since = stats.oldest_wait.as_ref().map(|oldest| Timestamp(oldest.since.0));
            since.map_or(0.0, |since| scrape.now.since(since).as_secs_f64())
        };
        all.gauge(
            "tidegate_oldest_wait_seconds",
            "Longest time that the next job of a group that is not paused has waited",
            stats.map(oldest),
        );
        let queues = stats.map(|stats| stats.queues.as_slice()).unwrap_or_default();
        all.gauges(
            "tidegate_queue_rate",
            "Jobs that may start per second in the queue",
            queues.iter().map(|queue| (label("queue", &queue.id), queue.rps)),
        );
        all.gauges(
            "tidegate_queue_ready",
            "Jobs in ready of the queue",
            queues
                .iter()
                .map(|queue| (label("queue", &queue.id), queue.ready as f64)),
        );
        let available = stats.is_some_and(|stats| stats.store.available);
        all.gauge(
            "tidegate_store_available",
            "1 while the store can be used",
            f64::from(u8::from(available)),
        );
        all.gauge(
            "tidegate_event_streams",
            "Open streams of events",
            scrape.event_streams as f64,
        );
        all.0.register(
            "tidegate_http_requests",
            "Requests answered",
            self.requests.clone(),
        );
        all.0.register(
            "tidegate_http_request_duration_seconds",
            "How long requests took until their answer began",
            self.request_time.clone(),
        );
    }

    fn process(&self, scrape: &Scrape, all: &mut Exposition) {
        all.gauges(
            "tidegate_build_info",
            "1, with the version of the program",
            [(label("version", env!("CARGO_PKG_VERSION")), 1.0)],
        );
        let process = scrape.process;
        all.gauge(
            "process_resident_memory_bytes",
            "Memory in use",
            process.resident_bytes,
        );
        all.gauge("process_open_fds", "Open files", process.open_fds);
        all.gauge("process_max_fds", "Most open files", process.max_fds);
        all.counter("process_cpu_seconds", "Processor time used", process.cpu_seconds);
        all.gauge(
            "process_start_time_seconds",
            "When the service started, in seconds since 1970",
            self.started_at.0 as f64 / 1_000.0,
        );
    }
}

fn targets(scrape: &Scrape, all: &mut Exposition) {
    let each = |value: fn(&Target) -> f64| {
        let values = scrape.targets.iter();
        values.map(move |target| (label("target", &target.name), value(target)))
    };
    all.gauges(
        "tidegate_target_rate",
        "Calls that the target bears per second",
        each(|target| target.rps),
    );
    all.gauges(
        "tidegate_target_configured_rate",
        "Calls per second that are configured",
        each(|target| target.configured_rps),
    );
    all.gauges(
        "tidegate_target_enabled",
        "0 after an answer 410, or while it is switched off",
        each(|target| f64::from(u8::from(target.state != TargetState::Disabled))),
    );
    all.gauges(
        "tidegate_target_busy",
        "Calls under way",
        each(|target| f64::from(target.busy)),
    );
    all.gauges(
        "tidegate_target_concurrency",
        "Most calls at once",
        each(|target| f64::from(target.concurrency)),
    );
    let results = |target: &Target| {
        let (calls, name) = (target.calls, target.name.clone());
        [
            ("done", calls.done),
            ("failed", calls.failed),
            ("throttled", calls.throttled),
            ("retried", calls.retried),
        ]
        .map(|(result, count)| {
            let labels = vec![("target", name.clone()), ("result", result.into())];
            (labels, count as f64)
        })
    };
    all.counters(
        "tidegate_target_calls",
        "Calls of targets",
        scrape.targets.iter().flat_map(results),
    );
    let told = |(name, told, failed): &(String, u64, u64)| {
        [("told", *told), ("failed", *failed)].map(|(result, count)| {
            let labels = vec![("callback", name.clone()), ("result", result.into())];
            (labels, count as f64)
        })
    };
    all.counters(
        "tidegate_callbacks",
        "Calls that tell of decided batches",
        scrape.callbacks.iter().flat_map(told),
    );
}
