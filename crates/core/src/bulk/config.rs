//! Every setting of the bulk part: meaning, unit, default, and the relations that must hold.
//!
//! Each section has its own defaults, so a file that sets one field of a section keeps the others. The parser
//! rejects unknown fields.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, ensure};
use crate::ids::{JobType, QueueId};
use crate::limits::quota::{Limit, Quota, Unit};
use crate::limits::rate::Rate;
use crate::time::Millis;

/// Limit: attempts are counted in 16 bits, and a job that fails that often never works.
pub const MAX_RETRIES: u32 = 10_000;

/// Settings of the bulk part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BulkConfig {
    pub fair_queue: FairQueueConfig,
    pub backpressure: BackpressureConfig,
    pub congestion: CongestionConfig,
    pub worker_pool: WorkerPoolConfig,
    pub retention: RetentionConfig,
    pub limits: LimitsConfig,
    /// Settings of individual job types; a type not named here uses the defaults and the queue `default`.
    pub job_types: BTreeMap<JobType, JobTypeConfig>,
    /// Settings of individual queues.
    pub queues: BTreeMap<QueueId, QueueConfig>,
}

/// Which group goes next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FairQueueConfig {
    /// `fair` (start-time fair queueing) or `score` (age, base priority and served share).
    pub policy: FairPolicy,
    /// Weight of the served share in the `score` policy, in milliseconds of waiting. Above 0 spreads, below 0
    /// prefers groups that are nearly finished, 0 switches the term off.
    pub alpha: f64,
    /// Of 100 picks, the minimum for priority normal while it waits. 0 = strict order.
    pub normal_min_percent: u32,
    /// Of 100 picks, the minimum for priority low while it waits. 0 = strict order.
    pub low_min_percent: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FairPolicy {
    #[default]
    Fair,
    Score,
}

impl Default for FairQueueConfig {
    fn default() -> Self {
        Self {
            policy: FairPolicy::Fair,
            alpha: 10_000.0,
            normal_min_percent: 5,
            low_min_percent: 5,
        }
    }
}

/// How fast jobs may start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BackpressureConfig {
    /// Starts over the whole system: a number per second, or a text such as "500/min".
    pub global_rps: Quota,
    /// Upper cap on jobs in ready, per queue.
    pub ready_queue_max_size: u32,
    /// Length of the aligned window that the rate is counted in, in seconds.
    pub rate_limit_window_sec: f64,
    /// Longest time between two dispatcher runs, in milliseconds.
    pub dispatch_interval_ms: Millis,
    /// Maximum jobs that one dispatcher run releases.
    pub dispatch_batch_size: u32,
    /// First backoff after a transient error, in milliseconds; doubles with each attempt.
    pub default_backoff_ms: Millis,
    /// Longest backoff after a transient error or an expired lease, in milliseconds.
    pub max_backoff_ms: Millis,
    /// Longest Retry-After that is honoured, in milliseconds.
    pub max_retry_after_ms: Millis,
    /// What happens to the next job when a window is spent.
    pub hold: Hold,
    /// Gives every group floor(rate / active groups) as a limit of its own.
    pub strict_share: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// No job moves until the window turns.
    #[default]
    Group,
    /// The denied job goes to delayed with an estimate of its start and counts one throttle.
    Job,
}

impl Default for BackpressureConfig {
    fn default() -> Self {
        Self {
            global_rps: Quota::new(10_000.0, Unit::Second),
            ready_queue_max_size: 10_000,
            rate_limit_window_sec: 1.0,
            dispatch_interval_ms: Millis(100),
            dispatch_batch_size: 100,
            default_backoff_ms: Millis(1_000),
            max_backoff_ms: Millis(60_000),
            max_retry_after_ms: Millis(86_400_000),
            hold: Hold::Group,
            strict_share: false,
        }
    }
}

impl BackpressureConfig {
    pub fn window(&self) -> Millis {
        Millis((self.rate_limit_window_sec * 1000.0).round() as u64)
    }

    /// The configured rate of the whole system.
    pub fn rate(&self) -> Rate {
        self.global_rps.in_windows(self.window())
    }

    /// The most starts that any window allows.
    pub fn limit_per_window(&self) -> u64 {
        self.rate().most()
    }
}

/// How long throttled jobs wait, and how long their history is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CongestionConfig {
    /// Off: every throttled job waits `base_backoff_ms`, and downstream responses never lower the rate.
    pub enabled: bool,
    /// Whether responses of a downstream that is overloaded lower the rate of its queue, or of a group in it.
    pub adaptive: bool,
    /// Shortest backoff of a throttled job, in milliseconds.
    pub base_backoff_ms: Millis,
    /// Longest backoff of a throttled job, in milliseconds.
    pub max_backoff_ms: Millis,
    /// How long congestion history is kept, in milliseconds.
    pub stats_retention_ms: Millis,
    /// Time between two entries of the history, in milliseconds.
    pub snapshot_interval_ms: Millis,
}

impl Default for CongestionConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            adaptive: true,
            base_backoff_ms: Millis(1_000),
            max_backoff_ms: Millis(120_000),
            stats_retention_ms: Millis(3_600_000),
            snapshot_interval_ms: Millis(10_000),
        }
    }
}

/// The worker pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerPoolConfig {
    /// Jobs that run at once, per queue.
    pub worker_count: u32,
    /// Longest time between two fetcher runs, in milliseconds.
    pub fetch_interval_ms: Millis,
    /// Maximum jobs that one fetcher run admits.
    pub fetch_batch_size: u32,
    /// Longest time an idle worker waits before it polls again, in seconds.
    pub worker_timeout_sec: f64,
    /// Longest run of one job, in milliseconds.
    pub job_timeout_ms: Millis,
    /// Retries after the first attempt before a job is dead.
    pub max_retry_count: u32,
    /// How long shutdown waits for running jobs, in milliseconds.
    pub shutdown_grace_period_ms: Millis,
    /// How much longer than `job_timeout_ms` a lease lasts, in milliseconds: time to report the outcome.
    pub lease_margin_ms: Millis,
}

impl Default for WorkerPoolConfig {
    fn default() -> Self {
        Self {
            worker_count: 10,
            fetch_interval_ms: Millis(200),
            fetch_batch_size: 50,
            worker_timeout_sec: 5.0,
            job_timeout_ms: Millis(30_000),
            max_retry_count: 3,
            shutdown_grace_period_ms: Millis(30_000),
            lease_margin_ms: Millis(5_000),
        }
    }
}

/// How long finished data is kept. Duplicates are detected for as long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetentionConfig {
    /// Finished jobs, by age in milliseconds (24 hours).
    pub finished_job_ms: Millis,
    /// Finished jobs, by count.
    pub finished_jobs_max: u64,
    /// Finished jobs of one group, by count, so that one group does not push out what others want to look up.
    pub finished_jobs_max_per_group: u64,
    /// Finished batches and idle groups, by age in milliseconds (7 days).
    pub finished_batch_ms: Millis,
    /// Finished batches, by count.
    pub finished_batches_max: u64,
}

impl Default for RetentionConfig {
    fn default() -> Self {
        Self {
            finished_job_ms: Millis(86_400_000),
            finished_jobs_max: 200_000,
            finished_jobs_max_per_group: 50_000,
            finished_batch_ms: Millis(604_800_000),
            finished_batches_max: 10_000,
        }
    }
}

/// Size limits of one store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Largest payload of a job in bytes (256 KiB).
    pub max_payload_bytes: u64,
    /// Largest result of a job in bytes; a larger one fails the job.
    pub max_result_bytes: u64,
    /// Maximum unfinished jobs in the store; further jobs are rejected as full.
    pub max_queued_jobs: u64,
    /// Maximum unfinished jobs of one group, so that one group does not fill the store for all.
    pub max_queued_jobs_per_group: u64,
    /// Maximum jobs in one enqueue call.
    pub max_enqueue_batch: u64,
    /// Reject job types that `job_types` does not name.
    pub known_job_types_only: bool,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            max_payload_bytes: 256 * 1024,
            max_result_bytes: 256 * 1024,
            max_queued_jobs: 20_000_000,
            max_queued_jobs_per_group: 5_000_000,
            max_enqueue_batch: 10_000,
            known_job_types_only: false,
        }
    }
}

/// Settings of one job type; absent values come from the sections above.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobTypeConfig {
    pub queue: Option<QueueId>,
    pub max_retry_count: Option<u32>,
    pub timeout_ms: Option<Millis>,
    pub backoff_ms: Option<Millis>,
    pub max_backoff_ms: Option<Millis>,
}

/// Settings of one queue.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// Starts of this queue, such as "30/min"; the global rate if absent.
    pub rate: Option<Quota>,
    /// Jobs of this queue that run at once, over all processes; no limit if absent.
    pub max_running: Option<u32>,
    /// The limit of every group in this queue, unless the group has one of its own there.
    #[serde(skip_serializing_if = "Limit::is_none")]
    pub per_group: Limit,
    /// Workers of this queue; `worker_pool.worker_count` if absent.
    pub worker_count: Option<u32>,
}

impl BulkConfig {
    /// Every queue that has settings or job types, and the default one.
    pub fn queue_names(&self) -> BTreeSet<QueueId> {
        let of_types = self.job_types.values().filter_map(|kind| kind.queue.as_ref());
        let named = self.queues.keys().chain(of_types).cloned();
        named.chain([super::default_queue()]).collect()
    }

    /// Checks every value and every relation; the message names the values and what would be valid.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_rates()?;
        self.validate_backoffs()?;
        let fq = &self.fair_queue;
        ensure!(
            fq.alpha.is_finite(),
            "fair_queue.alpha = {}: it must be a finite number",
            fq.alpha
        );
        let minimums = u64::from(fq.normal_min_percent) + u64::from(fq.low_min_percent);
        ensure!(
            minimums <= 100,
            "fair_queue.normal_min_percent + fair_queue.low_min_percent = {minimums}: together at most 100"
        );
        let pool = &self.worker_pool;
        for (name, value) in [
            ("worker_pool.worker_count", pool.worker_count),
            ("worker_pool.fetch_batch_size", pool.fetch_batch_size),
            (
                "backpressure.dispatch_batch_size",
                self.backpressure.dispatch_batch_size,
            ),
            (
                "backpressure.ready_queue_max_size",
                self.backpressure.ready_queue_max_size,
            ),
        ] {
            ensure!(value > 0, "{name} = 0: it must be at least 1");
        }
        for (name, value) in [
            ("worker_pool.fetch_interval_ms", pool.fetch_interval_ms),
            ("worker_pool.job_timeout_ms", pool.job_timeout_ms),
            ("worker_pool.lease_margin_ms", pool.lease_margin_ms),
            (
                "backpressure.dispatch_interval_ms",
                self.backpressure.dispatch_interval_ms,
            ),
            (
                "congestion.snapshot_interval_ms",
                self.congestion.snapshot_interval_ms,
            ),
        ] {
            ensure!(value > Millis(0), "{name} = 0: it must be at least 1 ms");
        }
        let of_types = self.job_types.iter().filter_map(|(kind, settings)| {
            Some((
                format!("job_types.{kind}.max_retry_count"),
                settings.max_retry_count?,
            ))
        });
        let of_all = ("worker_pool.max_retry_count".to_owned(), pool.max_retry_count);
        for (name, retries) in of_types.chain([of_all]) {
            ensure!(
                retries <= MAX_RETRIES,
                "{name} = {retries}: at most {MAX_RETRIES}"
            );
        }
        ensure!(
            pool.worker_timeout_sec.is_finite()
                && pool.worker_timeout_sec > 0.0
                && pool.worker_timeout_sec <= 86_400.0,
            "worker_pool.worker_timeout_sec = {}: it must be above 0 and at most 86400",
            pool.worker_timeout_sec
        );
        for (name, value) in [
            ("limits.max_payload_bytes", self.limits.max_payload_bytes),
            ("limits.max_queued_jobs", self.limits.max_queued_jobs),
            (
                "limits.max_queued_jobs_per_group",
                self.limits.max_queued_jobs_per_group,
            ),
            ("limits.max_enqueue_batch", self.limits.max_enqueue_batch),
        ] {
            ensure!(value > 0, "{name} = 0: it must be at least 1");
        }
        Ok(())
    }

    fn validate_rates(&self) -> Result<(), ConfigError> {
        let bp = &self.backpressure;
        let (rate, window) = (bp.global_rps, bp.rate_limit_window_sec);
        ensure!(
            window.is_finite() && bp.window().0 >= 1 && window <= 86_400.0,
            "backpressure.rate_limit_window_sec = {window}: it must be from 0.001 to 86400"
        );
        let check = |name: String, rate: Option<Quota>| match rate.and_then(|rate| rate.error(bp.window())) {
            Some(right) => Err(ConfigError(format!(
                "{name} = {}: {right}",
                rate.map_or_else(String::new, |rate| rate.to_string())
            ))),
            None => Ok(()),
        };
        check("backpressure.global_rps".to_owned(), Some(rate))?;
        for (queue, settings) in &self.queues {
            check(format!("queues.{queue}.rate"), settings.rate)?;
            check(format!("queues.{queue}.per_group.rate"), settings.per_group.rate)?;
            ensure!(
                settings.max_running != Some(0),
                "queues.{queue}.max_running = 0: it must be at least 1"
            );
            ensure!(
                settings.per_group.max_running != Some(0),
                "queues.{queue}.per_group.max_running = 0: it must be at least 1"
            );
            ensure!(
                settings.worker_count != Some(0),
                "queues.{queue}.worker_count = 0: it must be at least 1"
            );
        }
        Ok(())
    }

    fn validate_backoffs(&self) -> Result<(), ConfigError> {
        let (bp, cc) = (&self.backpressure, &self.congestion);
        let mut pairs = vec![
            (
                "backpressure.default_backoff_ms".to_owned(),
                bp.default_backoff_ms,
                "backpressure.max_backoff_ms".to_owned(),
                bp.max_backoff_ms,
            ),
            (
                "congestion.base_backoff_ms".to_owned(),
                cc.base_backoff_ms,
                "congestion.max_backoff_ms".to_owned(),
                cc.max_backoff_ms,
            ),
        ];
        for (kind, settings) in &self.job_types {
            pairs.push((
                format!("job_types.{kind}.backoff_ms"),
                settings.backoff_ms.unwrap_or(bp.default_backoff_ms),
                format!("job_types.{kind}.max_backoff_ms"),
                settings.max_backoff_ms.unwrap_or(bp.max_backoff_ms),
            ));
            ensure!(
                settings.timeout_ms != Some(Millis(0)),
                "job_types.{kind}.timeout_ms = 0: it must be at least 1 ms"
            );
        }
        for (base_name, base, max_name, max) in pairs {
            ensure!(base > Millis(0), "{base_name} = 0: it must be at least 1 ms");
            ensure!(
                max >= base,
                "{max_name} = {} is shorter than {base_name} = {}: it must be at least as long",
                max.0,
                base.0
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut BulkConfig)) -> String {
        let mut config = BulkConfig::default();
        change(&mut config);
        config
            .validate()
            .expect_err("the setting should be refused")
            .to_string()
    }

    #[test]
    fn defaults_are_valid() {
        BulkConfig::default().validate().unwrap();
        assert_eq!(BulkConfig::default().backpressure.limit_per_window(), 10_000);
    }

    #[test]
    fn the_limit_is_rate_times_window() {
        let limit = |rps: f64, window| {
            BackpressureConfig {
                global_rps: rps.into(),
                rate_limit_window_sec: window,
                ..Default::default()
            }
            .limit_per_window()
        };
        assert_eq!(limit(5.0, 10.0), 50);
        assert_eq!(limit(0.5, 10.0), 5);
        assert_eq!(limit(10_000.0, 0.1), 1_000);
        assert_eq!(limit(0.1 * 3.0, 10.0), 3);
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_values() {
        for (message, text) in [
            (
                refused(|c| c.backpressure.global_rps = 0.0.into()),
                "global_rps = 0/s: it must be from 0.00001/s to 1000000000/s",
            ),
            (
                refused(|c| c.backpressure.global_rps = (-1.0).into()),
                "global_rps = -1/s: it must be from 0.00001/s to 1000000000/s",
            ),
            (
                refused(|c| c.backpressure.global_rps = f64::NAN.into()),
                "global_rps = NaN",
            ),
            (
                refused(|c| c.backpressure.rate_limit_window_sec = 0.0),
                "from 0.001 to 86400",
            ),
            (
                refused(|c| c.congestion.base_backoff_ms = Millis(0)),
                "base_backoff_ms = 0",
            ),
            (
                refused(|c| c.congestion.max_backoff_ms = Millis(10)),
                "max_backoff_ms = 10 is shorter than",
            ),
            (
                refused(|c| c.backpressure.max_backoff_ms = Millis(1)),
                "max_backoff_ms = 1 is shorter than",
            ),
            (refused(|c| c.worker_pool.worker_count = 0), "worker_count = 0"),
            (
                refused(|c| c.worker_pool.max_retry_count = 70_000),
                "max_retry_count = 70000: at most 10000",
            ),
            (
                refused(|c| c.fair_queue.low_min_percent = 96),
                "together at most 100",
            ),
            (
                refused(|c| {
                    let queue = QueueConfig {
                        rate: Some((-3.0).into()),
                        ..Default::default()
                    };
                    c.queues.insert(QueueId::new("mail").unwrap(), queue);
                }),
                "queues.mail.rate = -3/s",
            ),
        ] {
            assert!(message.contains(text), "{message:?} should contain {text:?}");
        }
    }
}
