//! The conformance suite over a Redis Cluster of three masters with one shard, each case under a prefix of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::clock::ManualClock;
use tidegate_store::bulk::conformance::Guard;
use tidegate_store::bulk::{BulkStore, OnOtherSettings, RedisBulkOptions, RedisBulkStore};
use tidegate_store::{StoreError, bulk_conformance_suite};
use tidegate_testkit::servers::RedisCluster;

static STORES: AtomicU64 = AtomicU64::new(0);

async fn open(
    config: BulkConfig,
    clock: Arc<ManualClock>,
) -> Result<(Arc<dyn BulkStore>, Guard), StoreError> {
    let options = RedisBulkOptions {
        prefix: format!("case-cluster-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        config,
        clock: Some(clock),
        urls: RedisCluster::shared().urls(),
        shards: 1,
        on_other_settings: OnOtherSettings::Refuse,
    };
    Ok((Arc::new(RedisBulkStore::open(options).await?), Box::new(())))
}

bulk_conformance_suite!(open);
