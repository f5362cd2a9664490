//! A store in virtual time for the tests of services: tokio's clock drives the store's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{BatchView, BulkStats, Query, View};
use tidegate_core::bulk::{EnqueueParams, NewJob, Priority, SealBatchParams};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::bulk::{BulkService, BulkServiceBuilder};
use tidegate_store::bulk::{BulkStoreExt, ModelBulkStore};
use tokio::time::Instant;

/// Wall time from tokio's clock, and a step.
#[derive(Debug)]
pub(crate) struct VirtualClock(Instant, pub(crate) AtomicU64);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_706_000_000_000)
            + Millis(self.0.elapsed().as_millis() as u64 + self.1.load(Ordering::SeqCst))
    }

    fn steady(&self) -> Timestamp {
        Timestamp(1_706_000_000_000) + Millis(self.0.elapsed().as_millis() as u64)
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<ModelBulkStore>,
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) config: BulkConfig,
}

impl World {
    pub(crate) fn new(change: impl FnOnce(&mut BulkConfig)) -> Self {
        let mut config = BulkConfig::default();
        change(&mut config);
        let clock = Arc::new(VirtualClock(Instant::now(), AtomicU64::new(0)));
        let store = Arc::new(ModelBulkStore::new(config.clone(), clock.clone()).unwrap());
        Self { store, clock, config }
    }

    pub(crate) fn builder(&self) -> BulkServiceBuilder {
        BulkServiceBuilder::new(self.store.clone(), self.config.clone()).clock(self.clock.clone())
    }

    pub(crate) async fn submit(&self, group: &str, kind: &str, jobs: std::ops::Range<u64>) {
        let job = |n: u64| NewJob {
            id: JobId::new(format!("job-{n}")).unwrap(),
            kind: JobType::new(kind).unwrap(),
            priority: Priority::Normal,
            payload: Bytes::from(n.to_string()),
            run_at: None,
            expires_at: None,
            cost: 1,
        };
        let params = EnqueueParams {
            group: GroupId::new(group).unwrap(),
            batch: Some(batch()),
            base_priority: None,
            jobs: jobs.map(job).collect(),
        };
        self.store.call(params).await.unwrap().unwrap();
    }

    pub(crate) async fn seal(&self, group: &str) {
        let params = SealBatchParams {
            group: GroupId::new(group).unwrap(),
            batch: Some(batch()),
        };
        self.store.call(params).await.unwrap().unwrap();
    }

    pub(crate) async fn stats(&self) -> BulkStats {
        match self.store.call(Query::BulkStats).await.unwrap().unwrap() {
            View::BulkStats(stats) => stats,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn batch(&self, group: &str) -> BatchView {
        match self
            .store
            .call(Query::Batch(GroupId::new(group).unwrap(), batch()))
            .await
            .unwrap()
            .unwrap()
        {
            View::Batch(view) => view,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn batch() -> BatchId {
    BatchId::new("spring").unwrap()
}

pub(crate) fn kind() -> JobType {
    JobType::new("mail").unwrap()
}

/// Waits for the batch to be decided.
pub(crate) async fn decided(engine: &BulkService, group: &str) {
    let mut progress = engine.follow(GroupId::new(group).unwrap(), batch());
    while let Some(now) = progress.next().await {
        now.unwrap();
    }
}
