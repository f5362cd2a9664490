//! Every metric's name follows the naming rule, and the setting adds the names of the original design documents.

use std::collections::BTreeSet;

use super::original_names::TABLE;
use super::scrape::Scrape;
use super::tests::{exercised, full, names, samples};
use super::*;

/// The words after `tidegate_`: a module, or a component that the whole process shares.
const PARTS: [&str; 9] = [
    "bulk", "refresh", "room", "budget", "build", "database", "http", "log", "store",
];
/// The last word of a gauge's name: what it counts or measures, or the state that it shows.
const GAUGES: [&str; 21] = [
    "seconds",
    "per_second",
    "per_job",
    "jobs",
    "groups",
    "calls",
    "tokens",
    "events",
    "records",
    "dead_letters",
    "people",
    "seats",
    "slots",
    "streams",
    "available",
    "enabled",
    "open",
    "paused",
    "level",
    "state",
    "info",
];
/// Words that name a product, or a unit that Prometheus does not use.
const AVOIDED: [&str; 10] = [
    "lua", "redis", "kafka", "db", "sql", "dlq", "ms", "millis", "rps", "action",
];
/// Labels whose values users, operators or HTTP choose.
const FOREIGN: [&str; 13] = [
    "group",
    "queue",
    "target",
    "callback",
    "room",
    "source",
    "topic",
    "consumer_group",
    "method",
    "route",
    "status",
    "version",
    "le",
];

fn is_snake_case(word: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    word.starts_with(|c: char| c.is_ascii_lowercase()) && word.chars().all(letters)
}

/// Whether the name ends in one of these words.
fn ends_in(name: &str, words: &[&str]) -> bool {
    words.iter().any(|word| name.ends_with(&format!("_{word}")))
}

#[test]
fn every_name_follows_the_naming_rule() {
    let all = names(&exercised().text(&full()));
    // Client libraries of Prometheus fix the names of process metrics.
    let ours: Vec<_> = all
        .iter()
        .filter(|(name, _)| !name.starts_with("process_"))
        .collect();
    assert!(ours.len() > 100, "only {} metrics", ours.len());
    for (name, kind) in ours {
        assert!(is_snake_case(name), "{name}");
        let rest = name.strip_prefix("tidegate_").unwrap_or_default();
        let part = rest.split('_').next().unwrap_or_default();
        assert!(PARTS.contains(&part), "{name} belongs to no part");
        let avoided = name.split('_').find(|word| AVOIDED.contains(word));
        assert!(avoided.is_none(), "{name} says {avoided:?}");
        let base = name.strip_suffix("_total");
        assert_eq!(base.is_some(), kind == "counter", "{name} is a {kind}");
        let unit = match kind.as_str() {
            "counter" => !base.unwrap_or_default().ends_with("_total"),
            "histogram" => ends_in(name, &["seconds", "bytes"]),
            _ => ends_in(name, &GAUGES),
        };
        assert!(unit, "{name} is a {kind} and has no unit");
    }
}

/// Parses the labels of a sample.
fn labels(sample: &str) -> Vec<(String, String)> {
    let Some((_, rest)) = sample.split_once('{') else {
        return Vec::new();
    };
    let pairs = rest.trim_end_matches('}').trim_end_matches('"').split("\",");
    let read = pairs.map(|pair| {
        let (name, value) = pair.split_once("=\"").unwrap();
        (name.to_owned(), value.to_owned())
    });
    read.collect()
}

#[test]
fn labels_and_their_values_are_in_snake_case() {
    for sample in samples(&exercised().text(&full())).keys() {
        for (label, value) in labels(sample) {
            assert!(is_snake_case(&label), "{label} of {sample}");
            let ours = !FOREIGN.contains(&label.as_str());
            assert!(!ours || is_snake_case(&value), "{label} of {sample}");
        }
    }
}

/// Metrics and a scrape with a distinct value behind every original name.
fn distinct() -> (Metrics, Scrape) {
    let (metrics, mut scrape) = (exercised(), full());
    metrics.called("lease", Duration::from_millis(2), true);
    metrics.cycles.observe(Duration::from_millis(25));
    for (counter, count) in [
        (&metrics.enqueued, 11),
        (&metrics.leased, 12),
        (&metrics.moved, 13),
        (&metrics.skipped, 14),
        (&metrics.to_ready, 15),
        (&metrics.to_delayed, 16),
        (&metrics.rejected, 17),
    ] {
        add(counter, count);
    }
    let a = GroupId::new("a").unwrap();
    let (groups, jobs) = (&metrics.groups, |count| std::iter::repeat_n(&a, count));
    groups.count_each(jobs(18), |counts, jobs| add(&counts.allowed, jobs));
    groups.count_each(jobs(19), |counts, jobs| add(&counts.denied_global, jobs));
    groups.count_each(jobs(20), |counts, jobs| add(&counts.denied_per_group, jobs));
    let stats = scrape.stats.as_mut().unwrap();
    (stats.counts.ready, stats.counts.delayed) = (21, 22);
    let counters = &mut scrape.refresh.as_mut().unwrap().counters;
    counters.send_failed = 23;
    counters.coalesced = 24;
    counters.upgraded = 25;
    counters.conflicts = 26;
    counters.obsolete = 27;
    (metrics, scrape)
}

/// At least one sample of every original name.
const EXPECTED: &[(&str, f64)] = &[
    (r#"bulk_action_queue_groups{priority="high"}"#, 1.0),
    (r#"bulk_action_queue_groups{priority="normal"}"#, 2.0),
    (r#"bulk_action_queue_groups{priority="low"}"#, 3.0),
    ("bulk_action_enqueue_total", 11.0),
    ("bulk_action_dequeue_total", 12.0),
    (r#"bulk_action_group_pending_jobs{groupId="a"}"#, 3.0),
    (r#"bulk_action_lua_duration_ms_sum{script="enqueue"}"#, 1.0),
    (r#"bulk_action_lua_duration_ms_count{script="dequeue"}"#, 1.0),
    (r#"bulk_action_lua_duration_ms_sum{script="dequeue"}"#, 2.0),
    (
        r#"bulk_action_lua_duration_ms_bucket{le="1.0",script="dequeue"}"#,
        0.0,
    ),
    (
        r#"bulk_action_lua_duration_ms_bucket{le="2.5",script="dequeue"}"#,
        1.0,
    ),
    (r#"bulk_action_rate_limit_allowed_total{groupId="a"}"#, 18.0),
    (
        r#"bulk_action_rate_limit_denied_total{groupId="a",reason="global"}"#,
        19.0,
    ),
    (
        r#"bulk_action_rate_limit_denied_total{groupId="a",reason="per_group"}"#,
        20.0,
    ),
    ("bulk_action_ready_queue_size", 21.0),
    ("bulk_action_non_ready_queue_size", 22.0),
    ("bulk_action_dispatch_moved_total", 13.0),
    ("bulk_action_dispatch_cycle_duration_ms_sum", 25.0),
    (r#"bulk_action_dispatch_cycle_duration_ms_bucket{le="10.0"}"#, 0.0),
    (r#"bulk_action_dispatch_cycle_duration_ms_bucket{le="25.0"}"#, 1.0),
    ("bulk_action_dispatch_skip_total", 14.0),
    (
        r#"bulk_action_backpressure_admitted_total{destination="ready"}"#,
        15.0,
    ),
    (
        r#"bulk_action_backpressure_admitted_total{destination="non_ready"}"#,
        16.0,
    ),
    ("bulk_action_backpressure_rejected_total", 17.0),
    (
        r#"bulk_action_congestion_level{groupId="a",level="CRITICAL"}"#,
        1.0,
    ),
    (r#"bulk_action_congestion_backoff_ms_count{groupId="a"}"#, 2.0),
    (r#"bulk_action_congestion_backoff_ms_sum{groupId="a"}"#, 3_000.0),
    (
        r#"bulk_action_congestion_backoff_ms_bucket{le="1000.0",groupId="a"}"#,
        0.0,
    ),
    (
        r#"bulk_action_congestion_backoff_ms_bucket{le="2000.0",groupId="a"}"#,
        2.0,
    ),
    (
        r#"bulk_action_congestion_avg_throttle_per_job{groupId="a"}"#,
        1.25,
    ),
    (r#"bulk_action_congestion_non_ready_count{groupId="a"}"#, 7.0),
    ("bulk_action_congestion_saved_spins_total", 7.0),
    (
        r#"rate_limiter_acquired_total{target="api",priority="high"}"#,
        7.0,
    ),
    (r#"rate_limiter_rejected_total{target="api",priority="low"}"#, 3.0),
    (r#"rate_limiter_rps{target="api"}"#, 4.5),
    (
        r#"kafka_consumer_lag{topic="p-update-priority-low",group="low-worker",priority="low"}"#,
        40.0,
    ),
    ("kafka_producer_send_failed_total", 23.0),
    ("dedup_coalesce_hit_total", 24.0),
    ("dedup_upgrade_total", 25.0),
    ("dedup_lock_conflict_total", 26.0),
    (
        r#"update_process_duration_seconds_bucket{le="3.0",priority="high"}"#,
        1.0,
    ),
    (r#"update_process_duration_seconds_sum{priority="low"}"#, 3_603.0),
    (r#"update_process_error_total{reason="API_4XX"}"#, 5.0),
    ("obsolete_event_skipped_total", 27.0),
    ("db_circuit_breaker_state", 1.0),
    ("db_upsert_duration_seconds_sum", 3_603.0),
    ("redis_circuit_breaker_state", 2.0),
    (r#"redis_command_duration_seconds_bucket{le="3.0"}"#, 1.0),
    ("redis_command_duration_seconds_count", 2.0),
    ("dlq_message_count", 6.0),
];

/// The name of a sample's metric, if it is one of the table.
fn original(sample: &str) -> Option<&'static str> {
    let name = sample.split('{').next().unwrap_or_default();
    let of = |suffix: &str| {
        let name = name.strip_suffix(suffix)?;
        TABLE.iter().find(|row| row.original == name)
    };
    let row = ["", "_bucket", "_sum", "_count"].into_iter().find_map(of)?;
    Some(row.original)
}

#[test]
fn the_setting_adds_every_original_name_with_its_value() {
    let (mut metrics, scrape) = distinct();
    let without = samples(&metrics.text(&scrape));
    metrics.original_names = true;
    let text = metrics.text(&scrape);
    let with = samples(&text);
    for (name, value) in EXPECTED {
        assert_eq!(with.get(*name), Some(value), "{name} in {with:#?}");
    }
    let table: BTreeSet<&str> = TABLE.iter().map(|row| row.original).collect();
    assert_eq!(table.len(), TABLE.len(), "a name is there twice");
    let expected: BTreeSet<&str> = EXPECTED.iter().filter_map(|(name, _)| original(name)).collect();
    assert_eq!(expected, table);
    let kinds = names(&text);
    for row in TABLE {
        let kind = |name: &str| {
            kinds
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, kind)| kind)
        };
        assert!(kind(row.canonical).is_some(), "there is no {}", row.canonical);
        assert_eq!(kind(row.original), kind(row.canonical), "{}", row.original);
    }
    // The setting adds nothing else, and removes nothing.
    let added: Vec<&String> = with.keys().filter(|name| !without.contains_key(*name)).collect();
    assert!(added.iter().all(|name| original(name).is_some()), "{added:?}");
    assert!(without.keys().all(|name| with.contains_key(name)));
}

#[test]
fn without_the_setting_no_original_name_is_there() {
    assert!(!Config::default().metrics.original_names);
    let (metrics, scrape) = distinct();
    let samples = samples(&metrics.text(&scrape));
    let found: Vec<&String> = samples.keys().filter(|name| original(name).is_some()).collect();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn every_original_name_is_documented() {
    let document = include_str!("../../../../docs/metrics.md");
    for row in TABLE {
        let (original, canonical) = (format!("| `{}", row.original), format!("| `{}", row.canonical));
        let documented = |line: &str| line.contains(&original) && line.contains(&canonical);
        assert!(document.lines().any(documented), "{original}` has no row");
    }
}
