//! The settings of a store: as the scripts read them (numbers only, defaults resolved), and as processes compare them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};
use tidegate_core::bulk::config::{BulkConfig, FairPolicy, Hold, JobTypeConfig};
use tidegate_core::bulk::record::LimitsRecord;
use tidegate_core::bulk::{default_queue, policy};
use tidegate_core::limits::quota::{Limit, Quota};
use tidegate_core::time::Millis;

use super::stored_settings::Difference;

/// Limit: numbers that a double holds exactly, with room to add a time.
pub(super) const MAX_NUMBER: u64 = 1 << 52;

fn ms(span: Millis) -> u64 {
    span.0.min(MAX_NUMBER)
}

fn kind(config: &BulkConfig, settings: &JobTypeConfig) -> Value {
    let (pool, pressure) = (&config.worker_pool, &config.backpressure);
    let queue = settings.queue.clone().unwrap_or_else(default_queue);
    json!({
        "queue": queue.as_str(),
        "retries": settings.max_retry_count.unwrap_or(pool.max_retry_count),
        "timeout": ms(settings.timeout_ms.unwrap_or(pool.job_timeout_ms)),
        "backoff": ms(settings.backoff_ms.unwrap_or(pressure.default_backoff_ms)),
        "most": ms(settings.max_backoff_ms.unwrap_or(pressure.max_backoff_ms)),
    })
}

/// The limits of a queue. What is absent is left out: the scripts treat null as a value.
fn queue(rate: Option<Quota>, max_running: Option<u32>, per_group: Limit) -> Value {
    let rps = |rate: Option<Quota>| rate.map(|rate| Value::from(rate.per_second()));
    let fields = [
        ("rps", rps(rate)),
        ("running", max_running.map(Value::from)),
        ("grps", rps(per_group.rate)),
        ("grun", per_group.max_running.map(Value::from)),
    ];
    let present = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(present.collect())
}

/// What limits set at run time override, as JSON.
pub(super) fn overrides(limits: &LimitsRecord) -> String {
    let queues: Map<String, Value> = limits
        .queues
        .iter()
        .map(|(name, set)| (name.to_string(), queue(set.rate, set.max_running, set.per_group)))
        .collect();
    let mut all = Map::new();
    if let Some(rate) = limits.global_rps {
        all.insert("rps".to_owned(), rate.per_second().into());
    }
    if let Some(adaptive) = limits.adaptive {
        all.insert("adaptive".to_owned(), adaptive.into());
    }
    all.insert("queues".to_owned(), Value::Object(queues));
    Value::Object(all).to_string()
}

/// As JSON.
pub(super) fn for_scripts(config: &BulkConfig) -> String {
    let (fair, pressure) = (&config.fair_queue, &config.backpressure);
    let (congestion, keep, limits) = (&config.congestion, &config.retention, &config.limits);
    let kinds: Map<String, Value> = config
        .job_types
        .iter()
        .map(|(name, settings)| (name.to_string(), kind(config, settings)))
        .collect();
    let queues: Map<String, Value> = config
        .queues
        .iter()
        .map(|(name, settings)| {
            let limits = queue(settings.rate, settings.max_running, settings.per_group);
            (name.to_string(), limits)
        })
        .collect();
    json!({
        "window": pressure.window().0,
        "hold_job": pressure.hold == Hold::Job,
        "strict": pressure.strict_share,
        "score": fair.policy == FairPolicy::Score,
        "alpha": fair.alpha,
        "normal_min": fair.normal_min_percent,
        "low_min": fair.low_min_percent,
        "ready_max": pressure.ready_queue_max_size,
        "retry_after": ms(pressure.max_retry_after_ms),
        "cong": congestion.enabled,
        "adaptive": congestion.enabled && congestion.adaptive,
        "base": ms(congestion.base_backoff_ms),
        "cmax": ms(congestion.max_backoff_ms),
        "stats_age": ms(congestion.stats_retention_ms),
        "margin": ms(config.worker_pool.lease_margin_ms),
        "queued": limits.max_queued_jobs.min(MAX_NUMBER),
        "queued_group": limits.max_queued_jobs_per_group.min(MAX_NUMBER),
        "known_only": limits.known_job_types_only,
        "job_age": ms(keep.finished_job_ms),
        "jobs_max": keep.finished_jobs_max.min(MAX_NUMBER),
        "jobs_max_group": keep.finished_jobs_max_per_group.min(MAX_NUMBER),
        "batch_age": ms(keep.finished_batch_ms),
        "batches_max": keep.finished_batches_max.min(MAX_NUMBER),
        "rps": pressure.global_rps.per_second(),
        "kind": kind(config, &JobTypeConfig::default()),
        "kinds": kinds,
        "queues": queues,
    })
    .to_string()
}

/// The advance of a group's tag per pick.
pub(super) fn step(base_priority: i32) -> u64 {
    policy::step(base_priority)
}

/// The settings that belong to the store, as they are stored and compared.
pub(super) fn compared(config: &BulkConfig) -> String {
    serde_json::to_string(&config.of_store()).expect("settings are plain values")
}

/// Settings that another process stored.
pub(super) fn stored(text: &str) -> Result<BulkConfig, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// Each field that differs, with both values.
pub(super) fn differences(stored: &BulkConfig, here: &BulkConfig) -> Vec<Difference> {
    let fields = |config: &BulkConfig| {
        // Through text, so that a number has the same rounding on both sides.
        let value = serde_json::from_str(&compared(config)).expect("just written");
        let mut fields = BTreeMap::new();
        flatten(&value, String::new(), &mut fields);
        fields
    };
    let (stored, here) = (fields(stored), fields(here));
    let names: BTreeSet<&String> = stored.keys().chain(here.keys()).collect();
    let shown = |value: Option<&Value>| value.map_or_else(|| "not set".to_owned(), Value::to_string);
    names
        .into_iter()
        .filter(|&name| stored.get(name) != here.get(name))
        .map(|name| Difference {
            field: name.clone(),
            stored: shown(stored.get(name)),
            here: shown(here.get(name)),
        })
        .collect()
}

/// The settings by the names that they have in the file. Absent ones are left out.
fn flatten(value: &Value, name: String, fields: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let name = match name.as_str() {
                    "" => key.clone(),
                    section => format!("{section}.{key}"),
                };
                flatten(value, name, fields);
            }
        }
        Value::Null => {}
        Value::Number(number) if number.as_f64().is_some_and(|number| number.fract() == 0.0) => {
            // 20 and 20.0 are one value.
            let whole = number.as_f64().unwrap_or_default();
            fields.insert(name, json!(whole as i64));
        }
        value => {
            fields.insert(name, value.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_core::bulk::config::QueueConfig;
    use tidegate_core::ids::QueueId;

    use super::*;

    #[test]
    fn differences_name_the_fields_of_the_file_and_both_values() {
        let here = BulkConfig::default();
        let mut there = BulkConfig::default();
        there.backpressure.global_rps = 20.0.into();
        there.fair_queue.alpha = 0.1 + 0.2;
        there.worker_pool.worker_count = 99;
        let mail = QueueConfig {
            rate: Some("30/min".parse().unwrap()),
            ..QueueConfig::default()
        };
        there.queues.insert(QueueId::new("mail").unwrap(), mail);
        let there = stored(&compared(&there)).unwrap();
        let seen: Vec<String> = differences(&there, &here)
            .iter()
            .map(Difference::to_string)
            .collect();
        assert_eq!(
            seen,
            [
                "backpressure.global_rps is \"20/s\" in the store and \"10000/s\" here",
                "fair_queue.alpha is 0.30000000000000004 in the store and 10000 here",
                "queues.mail.rate is \"30/min\" in the store and not set here",
            ]
        );
        assert_eq!(differences(&here, &here), []);
    }
}
