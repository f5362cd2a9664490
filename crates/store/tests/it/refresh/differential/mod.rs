//! Random histories of the refresh part on the pure state machine and on each store beside it.

mod history;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use tidegate_core::clock::ManualClock;
use tidegate_durable::Durability;
use tidegate_store::refresh::{
    EmbeddedRefreshOptions, EmbeddedRefreshStore, ModelRefreshStore, RedisRefreshOptions, RedisRefreshStore,
    RefreshSettings, RefreshStore,
};
use tidegate_testkit::servers::{RedisCluster, RedisServer};
use tidegate_testkit::{Seen, seeds};

use self::history::{START, run, settings};

/// Every outcome that must occur, so that equal answers mean something.
const OUTCOMES: [&str; 22] = [
    "PUBLISHED",
    "UPGRADED",
    "ALREADY_PROCESSING",
    "JUST_REFRESHED",
    "confirmed",
    "not confirmed",
    "rolled back",
    "not rolled back",
    "go",
    "obsolete",
    "busy",
    "extended",
    "not extended",
    "abandoned",
    "not abandoned",
    "settled",
    "already settled",
    "taken",
    "limited by rate",
    "limited by the low cap",
    "limited by the day",
    "limited by a hold",
];

async fn compare(seeds: u64, open: impl AsyncFn(RefreshSettings, Arc<ManualClock>) -> Arc<dyn RefreshStore>) {
    let seeds = seeds::half_fresh(seeds);
    let mut seen = Seen::default();
    for &seed in &seeds {
        let clock = Arc::new(ManualClock::at(START));
        let model = ModelRefreshStore::new(settings(seed), clock.clone()).expect("valid settings");
        let other = open(settings(seed), clock.clone()).await;
        let history = run(seed, seeds::steps(400), clock, Arc::new(model), other).await;
        seen.add(history.expect("the stores answer"));
    }
    if seeds.len() > 1 {
        seen.expect_all(&OUTCOMES);
    }
}

#[tokio::test]
async fn embedded_answers_as_the_state_machine_does() {
    let folder = TempDir::new().expect("a temporary folder");
    let stores = AtomicU64::new(0);
    compare(20, async |settings, clock| {
        let options = EmbeddedRefreshOptions {
            folder: folder
                .path()
                .join(stores.fetch_add(1, Ordering::Relaxed).to_string()),
            durability: Durability::Buffered,
            settings,
            clock,
        };
        let store = EmbeddedRefreshStore::open(options).expect("the folder is there");
        Arc::new(store) as Arc<dyn RefreshStore>
    })
    .await;
}

async fn on_redis(
    urls: Vec<String>,
    name: &str,
    settings: RefreshSettings,
    clock: Arc<ManualClock>,
) -> Arc<dyn RefreshStore> {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let options = RedisRefreshOptions {
        urls,
        prefix: format!("{name}-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        settings,
        clock: Some(clock),
    };
    Arc::new(RedisRefreshStore::open(options).await.expect("Redis is there"))
}

#[tokio::test]
async fn redis_answers_as_the_state_machine_does() {
    compare(40, async |settings, clock| {
        on_redis(vec![RedisServer::shared().url()], "differential", settings, clock).await
    })
    .await;
}

#[tokio::test]
async fn a_cluster_answers_as_the_state_machine_does() {
    compare(10, async |settings, clock| {
        on_redis(RedisCluster::shared().urls(), "differential", settings, clock).await
    })
    .await;
}
