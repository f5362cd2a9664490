//! The names of the original design documents, which `[metrics] original_names = true` adds beside the canonical ones.
//!
//! This table is the only place that knows them. Each row derives one name from a canonical metric: it renames labels
//! and their values, turns seconds into milliseconds where the name says so, and may take only some of the series.

use super::series::Labels;

/// One further name of a canonical metric. Names of counters end in `_total`, as scrapers see them.
#[derive(Debug)]
pub(super) struct OriginalName {
    pub(super) canonical: &'static str,
    pub(super) original: &'static str,
    /// Labels that have another name: canonical, then original. All others stay as they are.
    labels: &'static [(&'static str, &'static str)],
    values: Values,
    /// Takes only the series whose label has this value, and leaves the label out.
    only: Option<(&'static str, &'static str)>,
    unit: Unit,
}

/// How the values of one label, given by its canonical name, are spelled.
#[derive(Debug)]
enum Values {
    Same,
    UpperCase(&'static str),
    /// Canonical, then original. All others stay as they are.
    Renamed(&'static str, &'static [(&'static str, &'static str)]),
}

#[derive(Debug)]
enum Unit {
    Same,
    /// From seconds.
    Milliseconds,
}

const GROUP: &[(&str, &str)] = &[("group", "groupId")];

const fn row(canonical: &'static str, original: &'static str) -> OriginalName {
    OriginalName {
        canonical,
        original,
        labels: &[],
        values: Values::Same,
        only: None,
        unit: Unit::Same,
    }
}

impl OriginalName {
    const fn labels(mut self, labels: &'static [(&'static str, &'static str)]) -> Self {
        self.labels = labels;
        self
    }

    const fn values(mut self, values: Values) -> Self {
        self.values = values;
        self
    }

    const fn only(mut self, label: &'static str, value: &'static str) -> Self {
        self.only = Some((label, value));
        self
    }

    const fn milliseconds(mut self) -> Self {
        self.unit = Unit::Milliseconds;
        self
    }

    /// The labels of a series under this name; none if the name leaves the series out.
    pub(super) fn labels_of(&self, labels: &Labels) -> Option<Labels> {
        let only = |(label, value)| {
            labels
                .iter()
                .any(|(name, given)| *name == label && given == value)
        };
        if !self.only.is_none_or(only) {
            return None;
        }
        let remaining = labels
            .iter()
            .filter(|(name, _)| self.only.is_none_or(|(label, _)| *name != label));
        let renamed = remaining.map(|(name, value)| (self.label(name), self.spell(name, value)));
        Some(renamed.collect())
    }

    fn label(&self, name: &'static str) -> &'static str {
        let renamed = self.labels.iter().find(|(canonical, _)| *canonical == name);
        renamed.map_or(name, |(_, original)| *original)
    }

    fn spell(&self, name: &str, value: &str) -> String {
        match &self.values {
            Values::UpperCase(label) if *label == name => value.to_ascii_uppercase(),
            Values::Renamed(label, values) if *label == name => {
                let renamed = values.iter().find(|(canonical, _)| *canonical == value);
                renamed.map_or(value, |(_, original)| original).to_owned()
            }
            _ => value.to_owned(),
        }
    }

    pub(super) fn value_of(&self, value: f64) -> f64 {
        match self.unit {
            Unit::Same => value,
            Unit::Milliseconds => value * 1_000.0,
        }
    }
}

/// The further names of a canonical metric, whose name may be given without `_total`.
pub(super) fn of(name: &str) -> impl Iterator<Item = &'static OriginalName> + use<> {
    let name = name.to_owned();
    TABLE
        .iter()
        .filter(move |row| row.canonical.strip_suffix("_total").unwrap_or(row.canonical) == name)
}

pub(super) static TABLE: &[OriginalName] = &[
    row("tidegate_bulk_queued_groups", "bulk_action_queue_groups"),
    row("tidegate_bulk_enqueued_jobs_total", "bulk_action_enqueue_total"),
    row("tidegate_bulk_leased_jobs_total", "bulk_action_dequeue_total"),
    row(
        "tidegate_bulk_group_waiting_jobs",
        "bulk_action_group_pending_jobs",
    )
    .labels(GROUP),
    row(
        "tidegate_store_call_duration_seconds",
        "bulk_action_lua_duration_ms",
    )
    .labels(&[("operation", "script")])
    .values(Values::Renamed("operation", &[("lease", "dequeue")]))
    .milliseconds(),
    row(
        "tidegate_bulk_rate_limit_allowed_total",
        "bulk_action_rate_limit_allowed_total",
    )
    .labels(GROUP),
    row(
        "tidegate_bulk_rate_limit_denied_total",
        "bulk_action_rate_limit_denied_total",
    )
    .labels(GROUP),
    row("tidegate_bulk_jobs", "bulk_action_ready_queue_size").only("state", "ready"),
    row("tidegate_bulk_jobs", "bulk_action_non_ready_queue_size").only("state", "delayed"),
    row(
        "tidegate_bulk_dispatch_moved_jobs_total",
        "bulk_action_dispatch_moved_total",
    ),
    row(
        "tidegate_bulk_dispatch_cycle_duration_seconds",
        "bulk_action_dispatch_cycle_duration_ms",
    )
    .milliseconds(),
    row(
        "tidegate_bulk_dispatch_empty_cycles_total",
        "bulk_action_dispatch_skip_total",
    ),
    row(
        "tidegate_bulk_backpressure_admitted_jobs_total",
        "bulk_action_backpressure_admitted_total",
    )
    .values(Values::Renamed("destination", &[("delayed", "non_ready")])),
    row(
        "tidegate_bulk_backpressure_rejections_total",
        "bulk_action_backpressure_rejected_total",
    ),
    row("tidegate_bulk_congestion_level", "bulk_action_congestion_level")
        .labels(GROUP)
        .values(Values::UpperCase("level")),
    row(
        "tidegate_bulk_congestion_backoff_seconds",
        "bulk_action_congestion_backoff_ms",
    )
    .labels(GROUP)
    .milliseconds(),
    row(
        "tidegate_bulk_congestion_throttles_per_job",
        "bulk_action_congestion_avg_throttle_per_job",
    )
    .labels(GROUP),
    row(
        "tidegate_bulk_congestion_delayed_jobs",
        "bulk_action_congestion_non_ready_count",
    )
    .labels(GROUP),
    row(
        "tidegate_bulk_congestion_saved_spins_total",
        "bulk_action_congestion_saved_spins_total",
    ),
    row(
        "tidegate_budget_acquired_tokens_total",
        "rate_limiter_acquired_total",
    ),
    row("tidegate_budget_rejections_total", "rate_limiter_rejected_total"),
    row("tidegate_budget_calls_per_second", "rate_limiter_rps"),
    row("tidegate_log_lag_events", "kafka_consumer_lag").labels(&[("consumer_group", "group")]),
    row(
        "tidegate_log_send_failures_total",
        "kafka_producer_send_failed_total",
    ),
    row(
        "tidegate_refresh_coalesced_requests_total",
        "dedup_coalesce_hit_total",
    ),
    row("tidegate_refresh_upgraded_requests_total", "dedup_upgrade_total"),
    row(
        "tidegate_refresh_claim_conflicts_total",
        "dedup_lock_conflict_total",
    ),
    row(
        "tidegate_refresh_event_duration_seconds",
        "update_process_duration_seconds",
    ),
    row(
        "tidegate_refresh_failed_events_total",
        "update_process_error_total",
    )
    .values(Values::UpperCase("reason")),
    row(
        "tidegate_refresh_obsolete_events_total",
        "obsolete_event_skipped_total",
    ),
    row("tidegate_database_breaker_state", "db_circuit_breaker_state"),
    row(
        "tidegate_database_write_duration_seconds",
        "db_upsert_duration_seconds",
    ),
    row("tidegate_store_breaker_state", "redis_circuit_breaker_state"),
    row(
        "tidegate_refresh_store_call_duration_seconds",
        "redis_command_duration_seconds",
    ),
    row("tidegate_refresh_dead_letters", "dlq_message_count"),
];
