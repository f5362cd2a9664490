//! The simulation's histories against the pure state machine and Redis side by side: same commands, same times,
//! same outcomes, same state.

mod pair;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::clock::ManualClock;
use tidegate_store::bulk::{BulkStore, ModelBulkStore, RedisBulkOptions, RedisBulkStore};
use tidegate_testkit::seeds::{self, say};
use tidegate_testkit::servers::RedisServer;

use self::pair::Pair;
use super::simulation::run_on;

static STORES: AtomicU64 = AtomicU64::new(0);

async fn pair(config: BulkConfig, clock: Arc<ManualClock>) -> Arc<dyn BulkStore> {
    let model = ModelBulkStore::new(config.clone(), clock.clone()).expect("a valid configuration");
    let options = RedisBulkOptions {
        prefix: format!("differential-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        config,
        clock: Some(clock),
        ..RedisBulkOptions::new(RedisServer::shared().url())
    };
    let redis = RedisBulkStore::open(options).await.expect("Redis is there");
    Arc::new(Pair::new(Arc::new(model), Arc::new(redis)))
}

#[test]
fn redis_answers_as_the_state_machine_does() {
    let seeds = seeds::half_fresh(50);
    let (mut commands, mut starts) = (0, 0);
    for &seed in &seeds {
        let report = run_on(seed, seeds::steps(300), pair);
        commands += report.commands;
        starts += report.starts;
    }
    say(&format!(
        "{commands} commands, {starts} starts over {} seeds: {seeds:?}",
        seeds.len()
    ));
    assert!(commands >= 10_000 || seeds.len() < 50, "{commands} commands");
}
