//! The conformance suite over a Redis Cluster of three masters with three shards, each case under a prefix of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::clock::ManualClock;
use tidegate_store::bulk::conformance::{Backend, Guard};
use tidegate_store::bulk::{BulkStore, OnOtherSettings, RedisBulkOptions, RedisBulkStore};
use tidegate_store::{StoreError, bulk_conformance_suite};
use tidegate_testkit::servers::RedisCluster;

static STORES: AtomicU64 = AtomicU64::new(0);

struct ThreeShards;

#[async_trait]
impl Backend for ThreeShards {
    async fn open(
        &self,
        config: BulkConfig,
        clock: Arc<ManualClock>,
    ) -> Result<(Arc<dyn BulkStore>, Guard), StoreError> {
        let options = RedisBulkOptions {
            prefix: format!("case-shards-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
            config,
            clock: Some(clock),
            urls: RedisCluster::shared().urls(),
            shards: 3,
            on_other_settings: OnOtherSettings::Refuse,
        };
        Ok((Arc::new(RedisBulkStore::open(options).await?), Box::new(())))
    }

    fn shards(&self) -> usize {
        3
    }
}

bulk_conformance_suite!(ThreeShards);
