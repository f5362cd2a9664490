//! Metrics of the refresh module: log, requests, events, database, dead letters, and the freshness of records.

pub(crate) mod budgets;

use std::collections::BTreeMap;

use tidegate_core::ids::SourceId;
use tidegate_core::refresh::dead_letter::FailureReason;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{Breakers, CountersView, FreshnessCensus, LagView, Lags, reason_name};
use tidegate_log::Topic;

use self::budgets::{by_priority, state, with};
use crate::metrics::scrape::label;
use crate::metrics::series::{Buckets, Exposition, Labels};
use crate::state::App;

/// Scrapes leave the lag out after this many missed readings.
const MISSED_READINGS: u64 = 3;

#[derive(Debug)]
pub(crate) struct Refreshing {
    /// The store's time.
    pub(crate) now: Timestamp,
    pub(crate) began: Timestamp,
    pub(crate) counters: CountersView,
    pub(crate) breakers: Breakers,
    pub(crate) lags: Lags,
    /// Scrapes leave out a lag that is older than this.
    pub(crate) lag_fresh_for: Millis,
    /// Topic and consumer group of high, then of low.
    pub(crate) consumers: [(String, String); 2],
    pub(crate) census: BTreeMap<SourceId, FreshnessCensus>,
}

impl Refreshing {
    pub(crate) fn take(app: &App) -> Option<Self> {
        let handle = app.refresh.as_ref()?;
        let (log, work) = (&app.config.refresh.log, &app.config.refresh.work);
        let topic = |topic: Topic| format!("{}{topic}", log.prefix);
        Some(Self {
            now: handle.now(),
            began: app.metrics.started_at,
            counters: handle.counters(),
            breakers: handle.breakers(),
            lags: handle.lags(),
            lag_fresh_for: Millis(app.config.refresh.watch.lag_every_ms.0 * (MISSED_READINGS + 1)),
            consumers: [
                (topic(Topic::High), work.high_group.clone()),
                (topic(Topic::Low), work.low_group.clone()),
            ],
            census: handle.census(),
        })
    }

    pub(crate) fn render(&self, all: &mut Exposition) {
        self.log(all);
        self.requests(all);
        self.work(all);
        self.ends(all);
        self.database(all);
        self.dead_letters(all);
        self.records(all);
    }

    /// The lag, if its last reading is fresh.
    fn recent(&self) -> Option<Lags> {
        let at = self.lags.measured_at?;
        (self.now.since(at) <= self.lag_fresh_for).then_some(self.lags)
    }

    fn log(&self, all: &mut Exposition) {
        let lags = self.recent();
        let each = |lags: Lags| {
            let priorities = [("high", lags.high), ("low", lags.low)].into_iter();
            priorities
                .zip(&self.consumers)
                .map(|((priority, lag), (topic, group))| {
                    let labels = [
                        ("topic", topic.as_str()),
                        ("consumer_group", group),
                        ("priority", priority),
                    ];
                    (labels.map(|(name, value)| (name, value.to_owned())).into(), lag)
                })
        };
        let views: Vec<(Labels, LagView)> = lags.into_iter().flat_map(each).collect();
        let records = views
            .iter()
            .map(|(labels, lag)| (labels.clone(), lag.records as f64));
        all.gauges("tidegate_log_lag_events", "Events that wait in the log", records);
        let oldest = |(labels, lag): &(Labels, LagView)| {
            let age = match lag.records {
                0 => Some(Millis(0)),
                _ => lag.oldest,
            };
            Some((labels.clone(), age?.as_secs_f64()))
        };
        all.gauges(
            "tidegate_log_lag_seconds",
            "How long the oldest event has waited in the log",
            views.iter().filter_map(oldest),
        );
        let at = self.lags.measured_at.unwrap_or(self.began);
        all.gauge(
            "tidegate_log_observation_age_seconds",
            "How long ago this process last read the lag",
            self.now.since(at).as_secs_f64(),
        );
        all.counter(
            "tidegate_log_send_failures",
            "Events that the log did not accept",
            self.counters.send_failed as f64,
        );
        all.gauge(
            "tidegate_refresh_low_priority_paused",
            "1 while events of low priority pause in favour of high, else 0",
            lags.map(|lags| f64::from(u8::from(lags.low_paused))),
        );
        all.counter(
            "tidegate_refresh_low_priority_pauses",
            "Times that events of low priority began to pause",
            self.counters.low_pauses as f64,
        );
    }

    /// Reads, and the requests that follow from them.
    fn requests(&self, all: &mut Exposition) {
        let counters = &self.counters;
        for (name, help, value) in [
            ("tidegate_refresh_reads", "Reads of records", counters.reads),
            (
                "tidegate_refresh_cache_hits",
                "Reads that the cache in memory answered",
                counters.cache_hits,
            ),
            (
                "tidegate_refresh_read_errors",
                "Reads that the database did not answer in time",
                counters.read_errors,
            ),
            (
                "tidegate_refresh_coalesced_requests",
                "Requests that joined a refresh of their record that was under way",
                counters.coalesced,
            ),
            (
                "tidegate_refresh_just_refreshed_requests",
                "Requests whose record was refreshed before they were published",
                counters.just_refreshed,
            ),
            (
                "tidegate_refresh_upgraded_requests",
                "Requests of high priority that replaced one of low",
                counters.upgraded,
            ),
            (
                "tidegate_refresh_claim_conflicts",
                "Events whose record another worker was fetching",
                counters.conflicts,
            ),
            (
                "tidegate_refresh_refused_requests",
                "Requests that could not be queued",
                counters.requests_refused,
            ),
            (
                "tidegate_refresh_prefetched_records",
                "Records that the service requested before anybody read them",
                counters.prefetched,
            ),
            (
                "tidegate_refresh_due_retries",
                "Records that the service requested again because their retry was due",
                counters.due_retries,
            ),
        ] {
            all.counter(name, help, value as f64);
        }
        all.counters(
            "tidegate_refresh_published_events",
            "Events that this process published",
            by_priority(&Labels::new(), counters.published),
        );
    }

    fn work(&self, all: &mut Exposition) {
        let counters = &self.counters;
        let none = Labels::new();
        all.histogram(
            "tidegate_refresh_event_duration_seconds",
            "How long events took from delivery to their end",
            Buckets::durations([
                (label("priority", "high"), &counters.process_high),
                (label("priority", "low"), &counters.process_low),
            ]),
        );
        all.counters(
            "tidegate_refresh_failed_events",
            "Events that failed, by reason",
            by_reason(&counters.failures),
        );
        all.counters(
            "tidegate_refresh_upstream_calls",
            "Calls of upstreams",
            by_priority(&none, counters.attempts),
        );
        all.counters(
            "tidegate_refresh_settled_events",
            "Events that came to their end",
            by_priority(&none, counters.settled),
        );
        let written = [
            ("updated", counters.updated),
            ("unchanged", counters.unchanged),
            ("superseded", counters.superseded),
        ];
        all.counters(
            "tidegate_refresh_snapshot_writes",
            "Responses of upstreams, by what became of the snapshot",
            written.map(|(outcome, count)| (label("outcome", outcome), count as f64)),
        );
    }

    /// Other outcomes of events.
    fn ends(&self, all: &mut Exposition) {
        let counters = &self.counters;
        for (name, help, value) in [
            (
                "tidegate_refresh_obsolete_events",
                "Events that workers skipped because something newer had made them obsolete",
                counters.obsolete,
            ),
            (
                "tidegate_refresh_throttled_calls",
                "Calls of upstreams whose response asked to wait",
                counters.throttled,
            ),
            (
                "tidegate_refresh_retried_calls",
                "Calls of upstreams after the first one for an event",
                counters.retried,
            ),
            (
                "tidegate_refresh_parked_events",
                "Events that workers put aside because their wait was long",
                counters.parked,
            ),
            (
                "tidegate_refresh_lost_claims",
                "Claims that expired while the work went on",
                counters.claims_lost,
            ),
        ] {
            all.counter(name, help, value as f64);
        }
    }

    fn database(&self, all: &mut Exposition) {
        all.gauge(
            "tidegate_database_breaker_state",
            "Circuit breaker around the database: 0 closed, 1 half-open, 2 open",
            state(self.breakers.database),
        );
        all.histogram(
            "tidegate_database_write_duration_seconds",
            "How long writes to the database took, several snapshots each",
            Buckets::durations([(Labels::new(), &self.breakers.database_writes)]),
        );
    }

    fn dead_letters(&self, all: &mut Exposition) {
        all.gauge(
            "tidegate_refresh_dead_letters",
            "Dead letters in the log, handled or not",
            self.recent().map(|lags| lags.dead as f64),
        );
        all.counters(
            "tidegate_refresh_written_dead_letters",
            "Dead letters that this process wrote, by reason",
            by_reason(&self.counters.dead_letters_by_reason),
        );
        all.counter(
            "tidegate_refresh_not_found_dead_letters",
            "Dead letters that this process wrote for records that do not exist",
            self.counters.absent as f64,
        );
        all.counter(
            "tidegate_refresh_replayed_dead_letters",
            "Dead letters that operators replayed",
            self.counters.replayed as f64,
        );
    }

    fn records(&self, all: &mut Exposition) {
        let each = |counts: fn(&FreshnessCensus) -> Vec<(&'static str, u64)>, name: &'static str| {
            let of = move |(source, census): (&SourceId, &FreshnessCensus)| {
                let labels = label("source", source.as_str());
                let counts = counts(census).into_iter();
                counts.map(move |(value, count)| (with(&labels, name, value), count as f64))
            };
            self.census.iter().flat_map(of)
        };
        let fresh = |census: &FreshnessCensus| {
            vec![
                ("fresh", census.fresh),
                ("stale", census.stale),
                ("missing", census.missing),
            ]
        };
        all.gauges(
            "tidegate_refresh_records",
            "Records, by how fresh they were at the last census",
            each(fresh, "freshness"),
        );
        all.gauges(
            "tidegate_refresh_failing_records",
            "Records whose last refresh had failed at the last census",
            each(
                |census| vec![("retrying", census.retrying), ("failed", census.failed)],
                "state",
            ),
        );
        let age = |(source, census): (&SourceId, &FreshnessCensus)| {
            let age = self.now.since(census.counted_at).as_secs_f64();
            (label("source", source.as_str()), age)
        };
        all.gauges(
            "tidegate_refresh_census_age_seconds",
            "How long ago the census of the records began",
            self.census.iter().map(age),
        );
    }
}

fn by_reason(counts: &BTreeMap<FailureReason, u64>) -> impl Iterator<Item = (Labels, f64)> {
    let counts = counts.iter();
    counts.map(|(reason, count)| {
        (
            label("reason", reason_name(*reason).to_ascii_lowercase()),
            *count as f64,
        )
    })
}

#[cfg(test)]
pub(crate) mod tests;
