//! The conformance suite of waiting rooms over a Redis Cluster of three masters, each case under a prefix of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_core::clock::ManualClock;
use tidegate_store::room::conformance::{Backend, Guard, Opened};
use tidegate_store::room::{RedisRoomOptions, RedisRoomStore};
use tidegate_store::room_conformance_suite;
use tidegate_testkit::servers::RedisCluster;

static STORES: AtomicU64 = AtomicU64::new(0);

struct Cluster;

async fn open_under(prefix: String, clock: Arc<ManualClock>) -> Opened {
    let options = RedisRoomOptions {
        urls: RedisCluster::shared().urls(),
        prefix: prefix.clone(),
        clock: Some(clock),
    };
    Ok((Arc::new(RedisRoomStore::open(options).await?), Box::new(prefix)))
}

#[async_trait]
impl Backend for Cluster {
    async fn open(&self, clock: Arc<ManualClock>) -> Opened {
        let prefix = format!("room-case-{}:", STORES.fetch_add(1, Ordering::Relaxed));
        open_under(prefix, clock).await
    }

    async fn restart(&self, guard: Guard, clock: Arc<ManualClock>) -> Opened {
        let prefix = *guard.downcast::<String>().expect("what open gave");
        open_under(prefix, clock).await
    }

    fn restart_ends_connections(&self) -> bool {
        false
    }
}

room_conformance_suite!(Cluster);
