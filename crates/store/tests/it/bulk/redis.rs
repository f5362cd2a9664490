//! The conformance suite over a Redis server, each case under a prefix of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::config::BulkConfig;
use tidegate_store::conformance::Guard;
use tidegate_store::redis::{RedisOptions, RedisStore};
use tidegate_store::{ManualClock, Store, StoreError, conformance_suite};
use tidegate_testkit::servers::RedisServer;

static STORES: AtomicU64 = AtomicU64::new(0);

async fn open(config: BulkConfig, clock: Arc<ManualClock>) -> Result<(Arc<dyn Store>, Guard), StoreError> {
    let options = RedisOptions {
        prefix: format!("case-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        config,
        clock: Some(clock),
        ..RedisOptions::new(RedisServer::shared().url())
    };
    Ok((Arc::new(RedisStore::open(options).await?), Box::new(())))
}

conformance_suite!(open);
