//! The refresh part as `/metrics` tells it: the log, the coalescer, the work, the database, dead letters and how fresh
//! the records are (MX-02 to MX-05, MX-07, MX-08).

use std::collections::BTreeMap;

use tidegate_core::ids::SourceId;
use tidegate_core::refresh::dead_letter::FailureReason;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{Breakers, CountersView, FreshnessCensus, LagView, Lags, reason_name};
use tidegate_log::Topic;

use super::budgets::{by_priority, state, with};
use super::scrape::label;
use super::series::{Buckets, Exposition, Labels};
use crate::state::App;

/// The lag is told until this many looks at it were missed.
const MISSED_LOOKS: u64 = 3;

#[derive(Debug)]
pub(super) struct Refreshing {
    /// The store's time.
    pub(super) now: Timestamp,
    pub(super) began: Timestamp,
    pub(super) counters: CountersView,
    pub(super) breakers: Breakers,
    pub(super) lags: Lags,
    /// A look at the lag that is older is not told any more.
    pub(super) lag_told_for: Millis,
    /// Topic and group of high, then of low.
    pub(super) consumers: [(String, String); 2],
    pub(super) mix: BTreeMap<SourceId, FreshnessCensus>,
}

impl Refreshing {
    pub(super) fn take(app: &App) -> Option<Self> {
        let handle = app.refresh.as_ref()?;
        let (log, work) = (&app.config.refresh.log, &app.config.refresh.work);
        let topic = |topic: Topic| format!("{}{topic}", log.prefix);
        Some(Self {
            now: handle.now(),
            began: app.metrics.started_at,
            counters: handle.counters(),
            breakers: handle.breakers(),
            lags: handle.lags(),
            lag_told_for: Millis(app.config.refresh.watch.lag_every_ms.0 * (MISSED_LOOKS + 1)),
            consumers: [
                (topic(Topic::High), work.high_group.clone()),
                (topic(Topic::Low), work.low_group.clone()),
            ],
            mix: handle.census(),
        })
    }

    pub(super) fn tell(&self, all: &mut Exposition) {
        self.log(all);
        self.requests(all);
        self.work(all);
        self.ends(all);
        self.database(all);
        self.dead_letters(all);
        self.records(all);
    }

    /// The lag, if it was seen lately.
    fn recent(&self) -> Option<Lags> {
        let at = self.lags.looked_at?;
        (self.now.since(at) <= self.lag_told_for).then_some(self.lags)
    }

    /// MX-02.
    fn log(&self, all: &mut Exposition) {
        let lags = self.recent();
        let each = |lags: Lags| {
            let lines = [("high", lags.high), ("low", lags.low)].into_iter();
            lines
                .zip(&self.consumers)
                .map(|((priority, lag), (topic, group))| {
                    let labels = [
                        ("topic", topic.as_str()),
                        ("group", group),
                        ("priority", priority),
                    ];
                    (labels.map(|(name, value)| (name, value.to_owned())).into(), lag)
                })
        };
        let lines: Vec<(Labels, LagView)> = lags.into_iter().flat_map(each).collect();
        let records = lines
            .iter()
            .map(|(labels, lag)| (labels.clone(), lag.records as f64));
        all.gauges(
            "tidegate_kafka_consumer_lag",
            "Events that wait in the log",
            records,
        );
        let oldest = |(labels, lag): &(Labels, LagView)| {
            let age = match lag.records {
                0 => Some(Millis(0)),
                _ => lag.oldest,
            };
            Some((labels.clone(), age?.as_secs_f64()))
        };
        all.gauges(
            "tidegate_kafka_consumer_lag_seconds",
            "How long the oldest event has waited in the log",
            lines.iter().filter_map(oldest),
        );
        let at = self.lags.looked_at.unwrap_or(self.began);
        all.gauge(
            "tidegate_kafka_seen_age_seconds",
            "How long ago the log was last seen",
            self.now.since(at).as_secs_f64(),
        );
        all.counter(
            "tidegate_kafka_producer_send_failed",
            "Events that the log did not take",
            self.counters.send_failed as f64,
        );
        all.gauge(
            "tidegate_refresh_low_paused",
            "1 while low priority stands back for high",
            lags.map(|lags| f64::from(u8::from(lags.low_paused))),
        );
        all.counter(
            "tidegate_refresh_low_pauses",
            "Times that low priority began to stand back",
            self.counters.low_pauses as f64,
        );
    }

    /// MX-03, and reads.
    fn requests(&self, all: &mut Exposition) {
        let counters = &self.counters;
        for (name, help, value) in [
            ("tidegate_refresh_reads", "Records read", counters.reads),
            (
                "tidegate_refresh_cache_hits",
                "Of these, answered from memory",
                counters.cache_hits,
            ),
            (
                "tidegate_refresh_read_errors",
                "Reads that the database did not answer in time",
                counters.read_errors,
            ),
            (
                "tidegate_dedup_coalesce_hit",
                "Requests for a record that was on its way already",
                counters.coalesced,
            ),
            (
                "tidegate_dedup_just_refreshed",
                "Requests for a record that was refreshed while they were under way",
                counters.just_refreshed,
            ),
            (
                "tidegate_dedup_upgrade",
                "Requests of high priority that replaced one of low",
                counters.upgraded,
            ),
            (
                "tidegate_dedup_lock_conflict",
                "Events whose record another worker was fetching",
                counters.conflicts,
            ),
            (
                "tidegate_refresh_refused",
                "Requests that could not be queued",
                counters.asks_refused,
            ),
            (
                "tidegate_refresh_prefetched",
                "Records asked for before anybody did",
                counters.prefetched,
            ),
            (
                "tidegate_refresh_due_retries",
                "Records asked for because their retry was due",
                counters.due_retries,
            ),
        ] {
            all.counter(name, help, value as f64);
        }
        all.counters(
            "tidegate_refresh_published",
            "Events that were published",
            by_priority(&Labels::new(), counters.published),
        );
    }

    /// MX-04 and MX-08.
    fn work(&self, all: &mut Exposition) {
        let counters = &self.counters;
        let none = Labels::new();
        all.0.register(
            "tidegate_update_process_duration_seconds",
            "How long events took from delivery to their end",
            Buckets::durations([
                (label("priority", "high"), &counters.process_high),
                (label("priority", "low"), &counters.process_low),
            ]),
        );
        all.counters(
            "tidegate_update_process_error",
            "Events that failed",
            by_reason(&counters.failures),
        );
        all.counters(
            "tidegate_refresh_calls",
            "Calls of upstreams",
            by_priority(&none, counters.attempts),
        );
        all.counters(
            "tidegate_refresh_settled",
            "Events that came to their end",
            by_priority(&none, counters.settled),
        );
        let written = [
            ("updated", counters.updated),
            ("unchanged", counters.unchanged),
            ("superseded", counters.superseded),
        ];
        all.counters(
            "tidegate_refresh_written",
            "Answers of upstreams, by what became of the snapshot",
            written.map(|(result, count)| (label("result", result), count as f64)),
        );
    }

    /// How events end that are not simply refreshed.
    fn ends(&self, all: &mut Exposition) {
        let counters = &self.counters;
        for (name, help, value) in [
            (
                "tidegate_obsolete_event_skipped",
                "Events that something newer had made obsolete",
                counters.obsolete,
            ),
            (
                "tidegate_refresh_throttled",
                "Answers of upstreams that asked to wait",
                counters.throttled,
            ),
            (
                "tidegate_refresh_retried",
                "Calls of upstreams after the first one for an event",
                counters.retried,
            ),
            (
                "tidegate_refresh_parked",
                "Events put aside because their wait was long",
                counters.parked,
            ),
            (
                "tidegate_refresh_claims_lost",
                "Claims that ran out while the work went on",
                counters.claims_lost,
            ),
        ] {
            all.counter(name, help, value as f64);
        }
    }

    /// MX-05.
    fn database(&self, all: &mut Exposition) {
        all.gauge(
            "tidegate_db_circuit_breaker_state",
            "Breaker around the database: 0 closed, 1 half-open, 2 open",
            state(self.breakers.database),
        );
        all.0.register(
            "tidegate_db_upsert_duration_seconds",
            "How long writes to the database took, a batch each",
            Buckets::durations([(Labels::new(), &self.breakers.database_writes)]),
        );
    }

    /// MX-07.
    fn dead_letters(&self, all: &mut Exposition) {
        all.gauge(
            "tidegate_dlq_messages",
            "Dead letters that are kept",
            self.recent().map(|lags| lags.dead as f64),
        );
        all.counters(
            "tidegate_dlq_written",
            "Dead letters written",
            by_reason(&self.counters.dead_letters_by_reason),
        );
        all.counter(
            "tidegate_dlq_absent",
            "Of the dead letters written, those of records that do not exist",
            self.counters.absent as f64,
        );
        all.counter(
            "tidegate_dlq_replayed",
            "Dead letters replayed",
            self.counters.replayed as f64,
        );
    }

    fn records(&self, all: &mut Exposition) {
        let each = |counts: fn(&FreshnessCensus) -> Vec<(&'static str, u64)>, name: &'static str| {
            let of = move |(source, mix): (&SourceId, &FreshnessCensus)| {
                let labels = label("source", source.as_str());
                let counts = counts(mix).into_iter();
                counts.map(move |(value, count)| (with(&labels, name, value), count as f64))
            };
            self.mix.iter().flat_map(of)
        };
        let fresh = |mix: &FreshnessCensus| {
            vec![
                ("fresh", mix.fresh),
                ("stale", mix.stale),
                ("missing", mix.missing),
            ]
        };
        all.gauges(
            "tidegate_refresh_records",
            "Records, by how fresh they were when they were last counted",
            each(fresh, "freshness"),
        );
        all.gauges(
            "tidegate_refresh_failing_records",
            "Records whose last refresh did not work, when they were last counted",
            each(
                |mix| vec![("retrying", mix.retrying), ("failed", mix.failed)],
                "state",
            ),
        );
        let age = |(source, mix): (&SourceId, &FreshnessCensus)| {
            let age = self.now.since(mix.counted_at).as_secs_f64();
            (label("source", source.as_str()), age)
        };
        all.gauges(
            "tidegate_refresh_records_age_seconds",
            "How long ago the count of the records was begun",
            self.mix.iter().map(age),
        );
    }
}

fn by_reason(counts: &BTreeMap<FailureReason, u64>) -> impl Iterator<Item = (Labels, f64)> {
    let counts = counts.iter();
    counts.map(|(reason, count)| (label("reason", reason_name(*reason)), *count as f64))
}
