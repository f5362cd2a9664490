//! The conformance suite of the refresh part over a Redis Cluster of three masters, each case under a prefix of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_core::clock::ManualClock;
use tidegate_store::refresh::conformance::{Backend, Guard, Opened};
use tidegate_store::refresh::{RedisRefreshOptions, RedisRefreshStore, RefreshSettings};
use tidegate_store::refresh_conformance_suite;
use tidegate_testkit::servers::RedisCluster;

static STORES: AtomicU64 = AtomicU64::new(0);

struct Cluster;

async fn open_under(prefix: String, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
    let options = RedisRefreshOptions {
        urls: RedisCluster::shared().urls(),
        prefix: prefix.clone(),
        settings,
        clock: Some(clock),
    };
    // Budget calls fail after two seconds, and a busy machine may take longer.
    let mut tries = 0;
    let store = loop {
        match RedisRefreshStore::open(options.clone()).await {
            Err(error) if error.is_retryable() && tries < 30 => tries += 1,
            opened => break opened?,
        }
    };
    Ok((Arc::new(store), Box::new(prefix)))
}

#[async_trait]
impl Backend for Cluster {
    async fn open(&self, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        let prefix = format!("refresh-case-{}:", STORES.fetch_add(1, Ordering::Relaxed));
        open_under(prefix, settings, clock).await
    }

    async fn restart(&self, guard: Guard, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        let prefix = *guard.downcast::<String>().expect("what open gave");
        open_under(prefix, settings, clock).await
    }
}

refresh_conformance_suite!(Cluster);
