//! Metrics of budgets and of the refresh module, and which of them scrapes leave out once they are old.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::budget::{BudgetConfig, BudgetView};
use tidegate_core::ids::SourceId;
use tidegate_core::refresh::breaker::BreakerState;
use tidegate_core::refresh::dead_letter::FailureReason;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{
    Breakers, CountersView, FreshnessCensus, LagView, Lags, PriorityCounts, TokenCounts, TokensView,
};
use tidegate_engine::{BOUNDS_MS, HistogramView};

use super::Refreshing;
use super::budgets::{Budget, Budgeted};
use crate::metrics::scrape::Scrape;
use crate::metrics::tests::{metrics, samples};
use crate::refresh::SeenBudget;

const BEGAN: Timestamp = Timestamp(1_000_000);
const NOW: Timestamp = Timestamp(1_100_000);

/// One duration of exactly 3 s, and one of an hour.
pub(crate) fn durations() -> HistogramView {
    let mut buckets = vec![0; BOUNDS_MS.len() + 1];
    buckets[BOUNDS_MS.iter().position(|bound| *bound == 3_000).unwrap()] = 1;
    buckets[BOUNDS_MS.len()] = 1;
    HistogramView {
        buckets,
        sum: Duration::from_secs(3_603),
    }
}

fn budget(target: &str, per_day: u64) -> Budget {
    Budget {
        target: target.into(),
        config: BudgetConfig {
            per_day,
            day_reserve: per_day / 10,
            ..BudgetConfig::default()
        },
        counts: TokenCounts {
            acquired: PriorityCounts { high: 7, low: 8 },
            rejected: PriorityCounts { high: 0, low: 3 },
            peak: 12,
        },
        seen: Some(SeenBudget {
            view: BudgetView {
                tokens: 25,
                low_tokens: 9,
                day_used: 15,
                day_left_high: 85,
                day_left_low: 75,
                day_ends: NOW + Millis(1_000),
                hold_until: NOW + Millis(2_500),
            },
            at: NOW - Millis(1_000),
            calls_per_second: Some(4.5),
        }),
    }
}

pub(crate) fn budgeted() -> Budgeted {
    Budgeted {
        now: NOW,
        began: BEGAN,
        budgets: vec![budget("api", 100), budget("endless", 0)],
        taken: TokensView {
            tokens: BTreeMap::new(),
            late: 2,
            store: BreakerState::Open,
            store_calls: durations(),
        },
    }
}

pub(crate) fn refreshing() -> Refreshing {
    let failures = BTreeMap::from([(FailureReason::Api4xx, 5), (FailureReason::TooLarge, 0)]);
    Refreshing {
        now: NOW,
        began: BEGAN,
        counters: CountersView {
            process_high: durations(),
            process_low: durations(),
            failures: failures.clone(),
            dead_letters_by_reason: failures,
            reads: 100,
            cache_hits: 60,
            updated: 3,
            ..CountersView::default()
        },
        breakers: Breakers {
            store: BreakerState::Closed,
            store_calls: durations(),
            database: BreakerState::HalfOpen,
            database_writes: durations(),
        },
        lags: Lags {
            high: LagView::default(),
            low: LagView {
                records: 40,
                oldest: Some(Millis(90_500)),
                milli_rate: 0,
            },
            dead: 6,
            low_paused: true,
            measured_at: Some(NOW - Millis(5_000)),
        },
        lag_fresh_for: Millis(20_000),
        consumers: ["high", "low"].map(|priority| {
            (
                format!("p-update-priority-{priority}"),
                format!("{priority}-worker"),
            )
        }),
        census: BTreeMap::from([(
            SourceId::new("character").unwrap(),
            FreshnessCensus {
                fresh: 10,
                stale: 2,
                missing: 1,
                retrying: 4,
                failed: 5,
                counted_at: NOW - Millis(61_000),
            },
        )]),
    }
}

fn scraped(budgets: Budgeted, refresh: Refreshing) -> BTreeMap<String, f64> {
    samples(&metrics(10).text(&Scrape {
        budgets: Some(budgets),
        refresh: Some(refresh),
        ..Scrape::default()
    }))
}

#[test]
fn names_labels_and_units_are_as_documented() {
    let scraped = scraped(budgeted(), refreshing());
    let low = r#"topic="p-update-priority-low",consumer_group="low-worker",priority="low""#;
    let high = r#"topic="p-update-priority-high",consumer_group="high-worker",priority="high""#;
    for (name, value) in [
        (
            r#"budget_acquired_tokens_total{target="api",priority="high"}"#,
            7.0,
        ),
        (
            r#"budget_acquired_tokens_total{target="api",priority="low"}"#,
            8.0,
        ),
        (r#"budget_rejections_total{target="api",priority="high"}"#, 0.0),
        (r#"budget_rejections_total{target="api",priority="low"}"#, 3.0),
        ("budget_late_tokens_total", 2.0),
        (r#"budget_calls_per_second{target="api"}"#, 4.5),
        (r#"budget_peak_calls_per_second{target="api"}"#, 12.0),
        (r#"budget_hard_limit_calls_per_second{target="api"}"#, 500.0),
        (r#"budget_configured_calls_per_second{target="api"}"#, 450.0),
        (r#"budget_available_tokens{target="api",bucket="global"}"#, 25.0),
        (r#"budget_available_tokens{target="api",bucket="low_cap"}"#, 9.0),
        (r#"budget_day_used_calls{target="endless"}"#, 15.0),
        (r#"budget_day_quota_calls{target="api"}"#, 100.0),
        (r#"budget_day_reserved_calls{target="api"}"#, 10.0),
        (
            r#"budget_day_remaining_calls{target="api",priority="high"}"#,
            85.0,
        ),
        (r#"budget_day_remaining_calls{target="api",priority="low"}"#, 75.0),
        (r#"budget_hold_seconds{target="api"}"#, 2.5),
        (r#"budget_observation_age_seconds{target="api"}"#, 1.0),
        ("store_breaker_state", 2.0),
        ("refresh_store_call_duration_seconds_count", 2.0),
        ("database_breaker_state", 1.0),
        (r#"database_write_duration_seconds_bucket{le="3.0"}"#, 1.0),
        ("database_write_duration_seconds_sum", 3_603.0),
        (
            r#"refresh_event_duration_seconds_bucket{le="2.0",priority="high"}"#,
            0.0,
        ),
        (
            r#"refresh_event_duration_seconds_bucket{le="3.0",priority="high"}"#,
            1.0,
        ),
        (
            r#"refresh_event_duration_seconds_bucket{le="+Inf",priority="low"}"#,
            2.0,
        ),
        (r#"refresh_failed_events_total{reason="api_4xx"}"#, 5.0),
        (r#"refresh_failed_events_total{reason="too_large"}"#, 0.0),
        (r#"refresh_written_dead_letters_total{reason="api_4xx"}"#, 5.0),
        ("refresh_dead_letters", 6.0),
        (&format!("log_lag_events{{{high}}}"), 0.0),
        (&format!("log_lag_events{{{low}}}"), 40.0),
        (&format!("log_lag_seconds{{{high}}}"), 0.0),
        (&format!("log_lag_seconds{{{low}}}"), 90.5),
        ("log_observation_age_seconds", 5.0),
        ("refresh_low_priority_paused", 1.0),
        ("refresh_reads_total", 100.0),
        ("refresh_cache_hits_total", 60.0),
        (r#"refresh_snapshot_writes_total{outcome="updated"}"#, 3.0),
        (r#"refresh_records{source="character",freshness="missing"}"#, 1.0),
        (
            r#"refresh_failing_records{source="character",state="failed"}"#,
            5.0,
        ),
        (r#"refresh_census_age_seconds{source="character"}"#, 61.0),
    ] {
        let name = format!("tidegate_{name}");
        assert_eq!(scraped.get(&name), Some(&value), "{name} in {scraped:#?}");
    }
    let endless = |name: &str| scraped.contains_key(&format!("tidegate_budget_{name}"));
    assert!(
        !endless(r#"day_quota_calls{target="endless"}"#)
            && !endless(r#"day_remaining_calls{target="endless",priority="high"}"#),
        "a day without a limit has no quota"
    );
}

#[test]
fn scrapes_leave_out_old_readings() {
    let (mut budgets, mut refresh) = (budgeted(), refreshing());
    budgets.now = NOW + Millis(60_000);
    refresh.now = NOW + Millis(60_000);
    let scraped = scraped(budgets, refresh);
    for gone in [
        "tidegate_budget_calls_per_second",
        "tidegate_budget_available_tokens",
        "tidegate_budget_day_used_calls",
        "tidegate_budget_day_remaining_calls",
        "tidegate_budget_hold_seconds",
        "tidegate_log_lag",
        "tidegate_refresh_dead_letters",
        "tidegate_refresh_low_priority_paused",
    ] {
        assert!(!scraped.keys().any(|name| name.starts_with(gone)), "{gone}");
    }
    assert_eq!(
        scraped[r#"tidegate_budget_observation_age_seconds{target="api"}"#],
        61.0
    );
    assert_eq!(scraped["tidegate_log_observation_age_seconds"], 65.0);
    // The counters of this process never grow old.
    assert_eq!(
        scraped[r#"tidegate_budget_acquired_tokens_total{target="api",priority="high"}"#],
        7.0
    );
    assert_eq!(
        scraped[r#"tidegate_refresh_written_dead_letters_total{reason="api_4xx"}"#],
        5.0
    );
}

#[test]
fn without_a_reading_the_age_is_that_of_the_process() {
    let (mut budgets, mut refresh) = (budgeted(), refreshing());
    (budgets.budgets[0].seen, refresh.lags) = (None, Lags::default());
    let scraped = scraped(budgets, refresh);
    assert_eq!(
        scraped[r#"tidegate_budget_observation_age_seconds{target="api"}"#],
        100.0
    );
    assert_eq!(scraped["tidegate_log_observation_age_seconds"], 100.0);
    assert!(!scraped.contains_key("tidegate_refresh_dead_letters"));
}

#[test]
fn an_age_that_the_log_does_not_know_is_left_out() {
    let mut refresh = refreshing();
    refresh.lags.low.oldest = None;
    let scraped = scraped(budgeted(), refresh);
    let ages = |priority: &str| {
        let ages = scraped
            .keys()
            .filter(|name| name.starts_with("tidegate_log_lag_seconds"));
        ages.filter(|name| name.contains(priority)).count()
    };
    assert_eq!((ages("high"), ages("low")), (1, 0));
}

#[test]
fn without_budgets_and_sources_their_metrics_are_absent() {
    let text = metrics(10).text(&Scrape::default());
    assert!(!text.contains("tidegate_budget") && !text.contains("tidegate_log"));
}
