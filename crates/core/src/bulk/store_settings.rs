//! Which settings belong to the store, and are the same in every process that uses it, and which each process decides
//! for itself.

use super::config::BulkConfig;

impl BulkConfig {
    /// Only what belongs to the store: the rest has its default.
    pub fn of_store(&self) -> Self {
        self.with_own(&Self::default())
    }

    /// Follows the store where it decides, and these settings elsewhere.
    pub fn following(&self, store: &Self) -> Self {
        store.with_own(self)
    }

    /// These settings with what a process decides for itself taken from `own`.
    fn with_own(&self, own: &Self) -> Self {
        let mut config = self.clone();
        let (pressure, pool, limits) = (&own.backpressure, &own.worker_pool, &own.limits);
        config.backpressure.dispatch_interval_ms = pressure.dispatch_interval_ms;
        config.backpressure.dispatch_batch_size = pressure.dispatch_batch_size;
        config.congestion.snapshot_interval_ms = own.congestion.snapshot_interval_ms;
        config.worker_pool.worker_count = pool.worker_count;
        config.worker_pool.fetch_interval_ms = pool.fetch_interval_ms;
        config.worker_pool.fetch_batch_size = pool.fetch_batch_size;
        config.worker_pool.worker_timeout_sec = pool.worker_timeout_sec;
        config.worker_pool.shutdown_grace_period_ms = pool.shutdown_grace_period_ms;
        config.limits.max_payload_bytes = limits.max_payload_bytes;
        config.limits.max_result_bytes = limits.max_result_bytes;
        config.limits.max_enqueue_batch = limits.max_enqueue_batch;
        for queue in config.queues.values_mut() {
            queue.worker_count = None;
        }
        for (name, queue) in &own.queues {
            if queue.worker_count.is_some() {
                config.queues.entry(name.clone()).or_default().worker_count = queue.worker_count;
            }
        }
        // A queue or type without settings is as good as one that is not named.
        config.queues.retain(|_, queue| *queue != Default::default());
        config.job_types.retain(|_, kind| *kind != Default::default());
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulk::config::QueueConfig;
    use crate::ids::QueueId;

    #[test]
    fn a_process_keeps_its_workers_and_follows_the_rates() {
        let mail = QueueId::new("mail").unwrap();
        let mut here = BulkConfig::default();
        here.worker_pool.worker_count = 3;
        here.queues.insert(
            mail.clone(),
            QueueConfig {
                worker_count: Some(7),
                ..QueueConfig::default()
            },
        );
        let mut stored = BulkConfig::default();
        stored.backpressure.global_rps = 20.0.into();
        stored.queues.insert(
            mail.clone(),
            QueueConfig {
                rate: Some(2.0.into()),
                max_running: Some(4),
                worker_count: Some(1),
                ..QueueConfig::default()
            },
        );
        let stored = stored.of_store();
        assert_eq!(stored.queues[&mail].worker_count, None);
        assert_eq!(
            here.of_store(),
            BulkConfig::default(),
            "workers are no difference"
        );
        let followed = here.following(&stored);
        assert_eq!(followed.backpressure.global_rps, 20.0.into());
        assert_eq!(followed.worker_pool.worker_count, 3);
        assert_eq!(
            followed.queues[&mail],
            QueueConfig {
                rate: Some(2.0.into()),
                max_running: Some(4),
                worker_count: Some(7),
                ..QueueConfig::default()
            }
        );
        assert_eq!(followed.of_store(), stored);
    }
}
