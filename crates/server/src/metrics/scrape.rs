//! One scrape: renders the counters and the last readings of the service as text.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tidegate_api::{Stats, Target, TargetState};
use tidegate_core::bulk::congestion::CongestionLevel;
use tidegate_core::bulk::views::GroupView;
use tidegate_core::time::Timestamp;

use super::process::Process;
use super::series::{Buckets, Exposition, Labels};
use super::{Metrics, SETTLED, STOPS};
use crate::bulk::metrics::groups::{BACKOFF_MS, Counts, OTHER};
use crate::refresh::metrics::Refreshing;
use crate::refresh::metrics::budgets::Budgeted;
use crate::room::metrics::RoomsSeen;
use crate::state::App;

/// The values that a scrape reads elsewhere, because the metrics do not count them.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    pub(crate) now: Timestamp,
    /// `None` until the store has answered for the first time.
    pub(crate) stats: Option<Stats>,
    pub(crate) groups: Arc<Vec<GroupView>>,
    pub(crate) targets: Vec<Target>,
    /// Name, delivered calls, failed calls.
    pub(crate) callbacks: Vec<(String, u64, u64)>,
    /// `None` without budgets.
    pub(crate) budgets: Option<Budgeted>,
    /// `None` without sources.
    pub(crate) refresh: Option<Refreshing>,
    /// `None` without rooms.
    pub(crate) rooms: Option<RoomsSeen>,
    pub(crate) event_streams: usize,
    pub(crate) process: Process,
}

impl Scrape {
    pub(crate) fn take(app: &App) -> Self {
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
            process: Process::read(),
        }
    }
}

/// The busiest groups, at most `most`. Groups without unfinished jobs are not among them.
pub(crate) fn top(groups: &[GroupView], most: usize) -> Vec<&GroupView> {
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

pub(crate) fn label(name: &'static str, value: impl Into<String>) -> Labels {
    vec![(name, value.into())]
}

fn level(level: CongestionLevel) -> &'static str {
    match level {
        CongestionLevel::None => "none",
        CongestionLevel::Low => "low",
        CongestionLevel::Moderate => "moderate",
        CongestionLevel::High => "high",
        CongestionLevel::Critical => "critical",
    }
}

impl Metrics {
    pub(crate) fn text(&self, scrape: &Scrape) -> String {
        let mut all = Exposition::new(self.original_names);
        self.jobs(scrape, &mut all);
        self.store(scrape, &mut all);
        self.limits(scrape, &mut all);
        self.dispatch(&mut all);
        self.congested(scrape, &mut all);
        queues(scrape, self.ready_cap, &mut all);
        targets(scrape, &mut all);
        if let Some(budgets) = &scrape.budgets {
            budgets.render(&mut all);
        }
        if let Some(refresh) = &scrape.refresh {
            refresh.render(&mut all);
        }
        if let Some(rooms) = &scrape.rooms {
            rooms.render(&mut all);
        }
        self.http(scrape, &mut all);
        self.process(scrape, &mut all);
        all.text()
    }

    /// Jobs and groups.
    fn jobs(&self, scrape: &Scrape, all: &mut Exposition) {
        let stats = scrape.stats.as_ref();
        let groups = stats.map(|stats| {
            [
                ("high", stats.high_priority_groups),
                ("normal", stats.normal_priority_groups),
                ("low", stats.low_priority_groups),
            ]
        });
        all.gauges(
            "tidegate_bulk_queued_groups",
            "Groups in the fair order of a priority",
            groups
                .into_iter()
                .flatten()
                .map(|(name, count)| (label("priority", name), count as f64)),
        );
        all.gauge(
            "tidegate_bulk_active_groups",
            "Groups with unfinished jobs",
            stats.map(|stats| stats.active_groups as f64),
        );
        all.counter(
            "tidegate_bulk_enqueued_jobs",
            "Jobs that the service accepted",
            of(&self.enqueued),
        );
        all.counter(
            "tidegate_bulk_leased_jobs",
            "Jobs that workers leased",
            of(&self.leased),
        );
        let top = top(&scrape.groups, self.max_groups);
        let waiting: u64 = scrape.groups.iter().map(|group| group.counts.waiting).sum();
        let named: u64 = top.iter().map(|group| group.counts.waiting).sum();
        let pending = top.iter().map(|group| (group.id.as_str(), group.counts.waiting));
        all.gauges(
            "tidegate_bulk_group_waiting_jobs",
            "Waiting jobs of the groups with the most unfinished jobs",
            pending
                .chain([(OTHER, waiting - named)])
                .map(|(id, jobs)| (label("group", id), jobs as f64)),
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
            "tidegate_bulk_jobs",
            "Jobs in the store",
            states
                .into_iter()
                .flatten()
                .map(|(state, count)| (label("state", state), count as f64)),
        );
        let settled = SETTLED.iter().zip(&self.settled);
        all.counters(
            "tidegate_bulk_settled_jobs",
            "Jobs that workers settled, by outcome",
            settled.map(|(outcome, count)| (label("outcome", *outcome), of(count))),
        );
        all.counters(
            "tidegate_bulk_expired_leases",
            "Leases that expired, by what became of the job",
            [
                (label("outcome", "delayed"), of(&self.expired_delayed)),
                (label("outcome", "dead"), of(&self.expired_dead)),
            ],
        );
    }

    fn store(&self, scrape: &Scrape, all: &mut Exposition) {
        let calls = self.calls.read().unwrap_or_else(PoisonError::into_inner);
        let times = calls
            .iter()
            .map(|(operation, calls)| (label("operation", *operation), &calls.time));
        all.histogram(
            "tidegate_store_call_duration_seconds",
            "How long calls of the store took, by operation",
            Buckets::timers(times),
        );
        let errors = calls
            .iter()
            .map(|(operation, calls)| (label("operation", *operation), of(&calls.errors)));
        all.counters(
            "tidegate_store_call_errors",
            "Calls of the store that failed, by operation",
            errors,
        );
        let available = scrape.stats.as_ref().is_some_and(|stats| stats.store.available);
        all.gauge(
            "tidegate_store_available",
            "1 while the store is available, else 0",
            f64::from(u8::from(available)),
        );
    }

    /// One counter of every group with a label.
    fn by_group(&self, counter: impl Fn(&Counts) -> &AtomicU64) -> Vec<(Labels, f64)> {
        let mut values = Vec::new();
        self.groups
            .read(|group, counts| values.push((label("group", group), of(counter(counts)))));
        values
    }

    /// The rate: how many jobs start, how many may start, and how many it denied.
    fn limits(&self, scrape: &Scrape, all: &mut Exposition) {
        let stats = scrape.stats.as_ref();
        all.gauge(
            "tidegate_bulk_starts_per_second",
            "Jobs that started per second, over the last seconds",
            stats.map(|stats| stats.start_rate),
        );
        all.gauge(
            "tidegate_bulk_start_limit_per_second",
            "Jobs that may start per second",
            stats.map(|stats| stats.global_rps),
        );
        all.counters(
            "tidegate_bulk_rate_limit_allowed",
            "Starts that the rate limit allowed",
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
            "tidegate_bulk_rate_limit_denied",
            "Jobs that the rate limit delayed",
            global
                .into_iter()
                .map(reason("global"))
                .chain(share.into_iter().map(reason("per_group"))),
        );
        let stops = STOPS.iter().zip(&self.lease_stops);
        all.counters(
            "tidegate_bulk_lease_stops",
            "Lease calls, by the reason why they returned no more jobs",
            stops.map(|(why, count)| (label("reason", *why), of(count))),
        );
    }

    /// The dispatcher, which returns delayed jobs to their flows, and the fetcher, which fills ready.
    fn dispatch(&self, all: &mut Exposition) {
        all.counter(
            "tidegate_bulk_dispatch_moved_jobs",
            "Delayed jobs that came due and that the dispatcher moved back",
            of(&self.moved),
        );
        all.histogram(
            "tidegate_bulk_dispatch_cycle_duration_seconds",
            "How long cycles of the dispatcher took",
            Buckets::timers([(Labels::new(), &self.cycles)]),
        );
        all.counter(
            "tidegate_bulk_dispatch_empty_cycles",
            "Cycles of the dispatcher that moved nothing",
            of(&self.skipped),
        );
        all.counters(
            "tidegate_bulk_backpressure_admitted_jobs",
            "Jobs that the fetcher admitted to ready, or that a rate sent to delayed",
            [
                (label("destination", "ready"), of(&self.to_ready)),
                (label("destination", "delayed"), of(&self.to_delayed)),
            ],
        );
        all.counter(
            "tidegate_bulk_backpressure_rejections",
            "Cycles of the fetcher that found ready full",
            of(&self.rejected),
        );
    }

    fn congested(&self, scrape: &Scrape, all: &mut Exposition) {
        let (mut levels, mut throttles, mut delayed) = (Vec::new(), Vec::new(), Vec::new());
        for state in self.congestion().states() {
            let id = || label("group", state.group.as_str());
            let mut labels = id();
            labels.push(("level", level(state.congestion_level).into()));
            levels.push((labels, 1.0));
            throttles.push((id(), state.avg_throttle_per_job));
            delayed.push((id(), state.non_ready_count as f64));
        }
        all.gauges(
            "tidegate_bulk_congestion_level",
            "1 for the congestion level of the group",
            levels,
        );
        let mut backoffs = Vec::new();
        self.groups.read(|group, counts| {
            let buckets: Vec<u64> = counts
                .backoffs
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect();
            let sum = of(&counts.backoff_sum_ms) / 1_000.0;
            backoffs.push((label("group", group), sum, buckets));
        });
        all.histogram(
            "tidegate_bulk_congestion_backoff_seconds",
            "Backoffs of throttled jobs",
            Buckets {
                edges: BACKOFF_MS.map(|edge| edge as f64 / 1_000.0).into(),
                values: backoffs,
            },
        );
        all.counters(
            "tidegate_bulk_congestion_max_backoffs",
            "Throttled jobs that got the longest backoff",
            self.by_group(|counts| &counts.at_max),
        );
        all.gauges(
            "tidegate_bulk_congestion_throttles_per_job",
            "Mean number of throttles of the group's completed jobs",
            throttles,
        );
        all.gauges(
            "tidegate_bulk_congestion_delayed_jobs",
            "Delayed jobs of the group, without those scheduled for later",
            delayed,
        );
        let stats = scrape.stats.as_ref();
        all.counter(
            "tidegate_bulk_congestion_saved_spins",
            "Retries at the shortest backoff that the estimates saved, since the store was opened",
            stats.map(|stats| stats.saved_spins as f64),
        );
        all.counter(
            "tidegate_bulk_throttles",
            "Times that a job was throttled, since the store was opened",
            stats.map(|stats| stats.throttles as f64),
        );
    }

    fn http(&self, scrape: &Scrape, all: &mut Exposition) {
        all.counted(
            "tidegate_http_requests",
            "Requests that the service answered",
            self.requests.clone(),
        );
        all.counted(
            "tidegate_http_request_duration_seconds",
            "How long requests took until their response began",
            self.request_time.clone(),
        );
        all.gauge(
            "tidegate_http_event_streams",
            "Open event streams",
            scrape.event_streams as f64,
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
            "Resident memory in bytes",
            process.resident_bytes,
        );
        all.gauge("process_open_fds", "Open file descriptors", process.open_fds);
        all.gauge("process_max_fds", "Most open file descriptors", process.max_fds);
        all.counter(
            "process_cpu_seconds",
            "User and system CPU time in seconds",
            process.cpu_seconds,
        );
        all.gauge(
            "process_start_time_seconds",
            "Start time of the service, in seconds since 1970",
            self.started_at.0 as f64 / 1_000.0,
        );
    }
}

fn queues(scrape: &Scrape, max_ready: u32, all: &mut Exposition) {
    let stats = scrape.stats.as_ref();
    let oldest = |stats: &Stats| {
        let since = stats.oldest_wait.as_ref().map(|oldest| Timestamp(oldest.since.0));
        since.map_or(0.0, |since| scrape.now.since(since).as_secs_f64())
    };
    all.gauge(
        "tidegate_bulk_oldest_wait_seconds",
        "Longest time that the next job of a group has waited; paused groups do not count",
        stats.map(oldest),
    );
    let queues = stats.map(|stats| stats.queues.as_slice()).unwrap_or_default();
    all.gauges(
        "tidegate_bulk_queue_start_limit_per_second",
        "Jobs of the queue that may start per second",
        queues.iter().map(|queue| (label("queue", &queue.id), queue.rps)),
    );
    let of_state = |queue: &tidegate_api::Queue| {
        let counts = [
            ("waiting", queue.waiting),
            ("running", queue.running),
            ("delayed", queue.delayed),
        ];
        let id = queue.id.clone();
        counts.map(move |(state, count)| {
            let labels = vec![("queue", id.clone()), ("state", state.into())];
            (labels, count as f64)
        })
    };
    all.gauges(
        "tidegate_bulk_queue_jobs",
        "Unfinished jobs of the queue; ready ones count as waiting",
        queues.iter().flat_map(of_state),
    );
    let age = |queue: &tidegate_api::Queue| {
        let since = queue.oldest_waiting_since.map(|at| Timestamp(at.0));
        since.map_or(0.0, |since| scrape.now.since(since).as_secs_f64())
    };
    all.gauges(
        "tidegate_bulk_queue_oldest_wait_seconds",
        "Age of the oldest job of the queue that goes next",
        queues.iter().map(|queue| (label("queue", &queue.id), age(queue))),
    );
    all.gauges(
        "tidegate_bulk_queue_ready_jobs",
        "Ready jobs of the queue",
        queues
            .iter()
            .map(|queue| (label("queue", &queue.id), queue.ready as f64)),
    );
    all.gauge(
        "tidegate_bulk_queue_max_ready_jobs",
        "Most ready jobs of one queue",
        f64::from(max_ready),
    );
}

fn targets(scrape: &Scrape, all: &mut Exposition) {
    let each = |value: fn(&Target) -> f64| {
        let values = scrape.targets.iter();
        values.map(move |target| (label("target", &target.name), value(target)))
    };
    all.gauges(
        "tidegate_bulk_target_call_limit_per_second",
        "Calls per second that the target currently bears",
        each(|target| target.rps),
    );
    all.gauges(
        "tidegate_bulk_target_configured_call_limit_per_second",
        "Calls per second that the settings allow the target",
        each(|target| target.configured_rps),
    );
    all.gauges(
        "tidegate_bulk_target_enabled",
        "0 after the target answered 410 or an operator disabled it, else 1",
        each(|target| f64::from(u8::from(target.state != TargetState::Disabled))),
    );
    all.gauges(
        "tidegate_bulk_target_running_calls",
        "Calls of the target that this process is making",
        each(|target| f64::from(target.busy)),
    );
    all.gauges(
        "tidegate_bulk_target_max_running_calls",
        "Most calls of the target that one process makes at once",
        each(|target| f64::from(target.concurrency)),
    );
    let outcomes = |target: &Target| {
        let (calls, name) = (target.calls, target.name.clone());
        [
            ("completed", calls.completed),
            ("failed", calls.failed),
            ("throttled", calls.throttled),
            ("retried", calls.retried),
        ]
        .map(|(outcome, count)| {
            let labels = vec![("target", name.clone()), ("outcome", outcome.into())];
            (labels, count as f64)
        })
    };
    all.counters(
        "tidegate_bulk_target_calls",
        "Calls of the target, by outcome",
        scrape.targets.iter().flat_map(outcomes),
    );
    let outcomes = |(name, delivered, failed): &(String, u64, u64)| {
        [("delivered", *delivered), ("failed", *failed)].map(|(outcome, count)| {
            let labels = vec![("callback", name.clone()), ("outcome", outcome.into())];
            (labels, count as f64)
        })
    };
    all.counters(
        "tidegate_bulk_callback_calls",
        "Calls that report finished batches, by outcome",
        scrape.callbacks.iter().flat_map(outcomes),
    );
}
