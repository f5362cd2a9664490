//! The simulation's histories against the pure state machine and Redis side by side: same commands, same times,
//! same outcomes, same state. `TIDEGATE_SIM_SEED=n` runs one seed again, `TIDEGATE_DIFF_SEEDS=n` so many seeds
//! (half of them fresh), `TIDEGATE_SIM_STEPS=n` longer or shorter histories.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::config::BulkConfig;
use tidegate_store::model::ModelStore;
use tidegate_store::redis::{RedisOptions, RedisStore};
use tidegate_store::{ManualClock, Store};
use tidegate_testkit::differential::Pair;
use tidegate_testkit::rng::fresh_seed;
use tidegate_testkit::servers::RedisServer;
use tidegate_testkit::simulation::{Report, run_on};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name}={text}: a whole number is needed")),
    )
}

static STORES: AtomicU64 = AtomicU64::new(0);

async fn pair(config: BulkConfig, clock: Arc<ManualClock>) -> Arc<dyn Store> {
    let model = ModelStore::new(config.clone(), clock.clone()).expect("a valid configuration");
    let options = RedisOptions {
        prefix: format!("differential-{}:", STORES.fetch_add(1, Ordering::Relaxed)),
        config,
        clock: Some(clock),
        ..RedisOptions::new(RedisServer::shared().url())
    };
    let redis = RedisStore::open(options).await.expect("Redis is there");
    Arc::new(Pair::new(Arc::new(model), Arc::new(redis)))
}

fn compare(seed: u64) -> Report {
    run_on(seed, number("TIDEGATE_SIM_STEPS").unwrap_or(300), pair)
}

#[test]
fn redis_answers_as_the_state_machine_does() {
    use std::io::Write;
    let seeds = number("TIDEGATE_DIFF_SEEDS").unwrap_or(50);
    let seeds: Vec<u64> = match number("TIDEGATE_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (0..seeds / 2)
            .chain((seeds / 2..seeds).map(|_| fresh_seed()))
            .collect(),
    };
    let (mut commands, mut starts) = (0, 0);
    for &seed in &seeds {
        let report = compare(seed);
        commands += report.commands;
        starts += report.starts;
    }
    let mut out = std::io::stderr();
    writeln!(
        out,
        "{commands} commands, {starts} starts over {} seeds: {seeds:?}",
        seeds.len()
    )
    .expect("stderr");
    assert!(commands >= 10_000 || seeds.len() < 50, "{commands} commands");
}
