//! The configuration as the scripts read it: numbers only, defaults resolved.

use serde_json::{Map, Value, json};
use tidegate_core::bulk::config::{BulkConfig, FairPolicy, Hold, JobTypeConfig};
use tidegate_core::bulk::{default_queue, policy};
use tidegate_core::time::Millis;

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
            let settings = json!({
                "rps": settings.rps,
            });
            // Absent, not null: the scripts treat null as a value.
            let Value::Object(mut settings) = settings else {
                unreachable!("an object was made")
            };
            settings.retain(|_, value| !value.is_null());
            (name.to_string(), Value::Object(settings))
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
        "known_only": limits.known_job_types_only,
        "job_age": ms(keep.finished_job_ms),
        "jobs_max": keep.finished_jobs_max.min(MAX_NUMBER),
        "jobs_max_group": keep.finished_jobs_max_per_group.min(MAX_NUMBER),
        "batch_age": ms(keep.finished_batch_ms),
        "batches_max": keep.finished_batches_max.min(MAX_NUMBER),
        "rps": pressure.global_rps,
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
