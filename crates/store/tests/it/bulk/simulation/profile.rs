//! The settings of a simulated world, chosen by the seed.

use tidegate_core::bulk::config::{BulkConfig, Hold, JobTypeConfig, QueueConfig};
use tidegate_core::ids::{JobType, QueueId};
use tidegate_core::limits::quota::Limit;
use tidegate_core::rng::Rng;
use tidegate_core::time::Millis;

/// The choices of one seed.
#[derive(Debug, Clone)]
pub(super) struct Profile {
    pub(super) config: BulkConfig,
    pub(super) groups: u64,
    pub(super) kinds: Vec<JobType>,
    /// One queue and priority, no limits of groups, nothing paused: fairness can be checked pick by pick.
    pub(super) plain: bool,
    /// Groups differ in weight.
    pub(super) weighted: bool,
    /// Finished data is dropped while the simulation runs.
    pub(super) forgetful: bool,
    pub(super) crashes: bool,
    pub(super) clock_steps: bool,
}

impl Profile {
    pub(super) fn of(rng: &mut Rng) -> Self {
        let plain = rng.percent(40);
        let forgetful = rng.percent(20);
        let mut config = BulkConfig::default();
        config.backpressure.global_rps = (rng.between(2, 40) as f64).into();
        config.backpressure.rate_limit_window_sec = *rng.pick(&[1.0, 1.0, 0.5, 3.0]);
        config.backpressure.ready_queue_max_size = rng.between(1, 20) as u32;
        config.backpressure.default_backoff_ms = Millis(200);
        config.backpressure.max_backoff_ms = Millis(2_000);
        config.congestion.base_backoff_ms = Millis(200);
        config.congestion.max_backoff_ms = Millis(5_000);
        config.worker_pool.job_timeout_ms = Millis(1_000);
        config.worker_pool.lease_margin_ms = Millis(500);
        config.worker_pool.max_retry_count = rng.between(1, 4) as u32;
        if rng.percent(50) {
            config.backpressure.hold = Hold::Job;
        }
        if !plain {
            config.backpressure.strict_share = rng.percent(20);
            config.fair_queue.low_min_percent = *rng.pick(&[0, 5, 30]);
        }
        if forgetful {
            config.retention.finished_jobs_max = 20;
            config.retention.finished_batches_max = 5;
        }
        let kind = |name: &str| JobType::new(name).expect("a short name");
        let mut kinds = vec![kind("mail")];
        if !plain {
            kinds.push(kind("push"));
            let queue = QueueId::new("slow queue").expect("a short name");
            let settings = JobTypeConfig {
                queue: Some(queue.clone()),
                ..Default::default()
            };
            config.job_types.insert(kinds[1].clone(), settings);
            config.queues.insert(
                queue,
                QueueConfig {
                    rate: Some(3.0.into()),
                    max_running: rng.percent(30).then(|| rng.between(2, 6) as u32),
                    per_group: Limit {
                        rate: rng.percent(30).then(|| "100/min".parse().expect("a rate")),
                        max_running: rng.percent(30).then(|| rng.between(1, 4) as u32),
                    },
                    ..Default::default()
                },
            );
        }
        Self {
            config,
            groups: rng.between(2, 6),
            kinds,
            plain,
            weighted: rng.percent(40),
            forgetful,
            crashes: rng.percent(70),
            clock_steps: rng.percent(60),
        }
    }

    pub(super) fn queues(&self) -> Vec<QueueId> {
        let mut queues = vec![tidegate_core::bulk::default_queue()];
        queues.extend(self.config.queues.keys().cloned());
        queues
    }

    /// −1,000,000 for every second group of a weighted world.
    pub(super) fn base_priority(&self, group: u64) -> Option<i32> {
        (self.weighted && group % 2 == 1).then_some(-1_000_000)
    }

    /// How long a lease lasts.
    pub(super) fn lease_time(&self) -> Millis {
        Millis(self.config.worker_pool.job_timeout_ms.0 + self.config.worker_pool.lease_margin_ms.0)
    }
}
