//! Ten thousand events while everything that can fail does: every effect is in the database in the end, and nothing
//! older has overwritten anything newer.

use std::time::{Duration, Instant};

use tidegate_store::{Clock, SystemClock};

use crate::fleet::{Behind, Fleet, assert_within, budget, small, turn};
use crate::served::until;

const EVENTS: usize = 10_000;
/// How long the database is away.
const AWAY: Duration = Duration::from_secs(30);
/// Enough for ten thousand in a minute on a busy machine.
const WIDE: &str = "rate = 900\nburst = 50\nlow_cap = 900\nlow_burst = 50\n";
const QUICK: &str = "[refresh.work]\nclaim_ms = 5000\n";

/// Writes down whatever goes back. The database sees every write, whoever makes it.
const POSTGRES_WATCH: &str = "
    CREATE TABLE reversal (record_key BYTEA, was BIGINT, became BIGINT);
    CREATE FUNCTION watch() RETURNS trigger AS $$ BEGIN
      IF NEW.version < OLD.version OR NEW.last_checked_at < OLD.last_checked_at
         OR NEW.last_updated_at < OLD.last_updated_at THEN
        INSERT INTO reversal VALUES (OLD.record_key, OLD.version, NEW.version);
      END IF; RETURN NEW; END $$ LANGUAGE plpgsql;
    CREATE TRIGGER watch AFTER UPDATE ON snapshot FOR EACH ROW EXECUTE FUNCTION watch();";

fn watch(fleet: &Fleet) {
    if let Some(server) = &fleet.servers.postgres {
        server.execute("records", POSTGRES_WATCH).unwrap();
    }
    if let Some(server) = &fleet.servers.mariadb {
        server
            .execute(
                "records",
                "CREATE TABLE reversal (record_key BLOB, was BIGINT, became BIGINT)",
            )
            .unwrap();
        let trigger = "CREATE TRIGGER watch AFTER UPDATE ON snapshot FOR EACH ROW \
                       INSERT INTO reversal SELECT OLD.record_key, OLD.version, NEW.version FROM DUAL \
                       WHERE NEW.version < OLD.version OR NEW.last_checked_at < OLD.last_checked_at \
                       OR NEW.last_updated_at < OLD.last_updated_at";
        server.execute("records", trigger).unwrap();
    }
}

fn reversals(fleet: &Fleet) -> String {
    let ask = "SELECT COUNT(*) FROM reversal";
    match (&fleet.servers.postgres, &fleet.servers.mariadb) {
        (Some(server), _) => server.execute("records", ask).unwrap(),
        (_, Some(server)) => server.execute("records", ask).unwrap(),
        _ => "0".to_owned(),
    }
}

async fn everything_fails(behind: Behind) {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.rate_500 = 0.02;
        settings.rate_reset = 0.01;
        // Records differ from one fetch to the next.
        settings.change_every_ms = 2_000;
    });
    let limits = budget(WIDE).replace("hard_limit = 500", "hard_limit = 1000");
    let mut fleet = Fleet::start(behind, 3, upstream, &(limits + QUICK)).await;
    watch(&fleet);
    let begun = Instant::now();
    let since = SystemClock.now();
    let keys: Vec<String> = (0..EVENTS).map(|n| format!("k{n}")).collect();
    let (first, second) = keys.split_at(EVENTS / 2);
    fleet.ask_for_all(0, first).await;

    fleet.servers.kill_database();
    let away = Instant::now();
    // Reads say what is wrong, and nobody takes them for an answer.
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.members[1].kill().await;
    if let Some(kafka) = &mut fleet.servers.kafka {
        kafka.stop().unwrap();
        kafka.restart().unwrap();
    } else if let Some(redis) = &mut fleet.servers.redis {
        redis.restart().unwrap();
    }
    tokio::time::sleep(AWAY.saturating_sub(away.elapsed())).await;
    fleet.servers.restart_database();
    fleet.revive(1).await;
    fleet.ask_for_all(0, second).await;
    fleet.members[2].kill().await;
    if let Some(kafka) = &mut fleet.servers.kafka {
        // Not even told to stop.
        kafka.restart().unwrap();
    }
    fleet.until_refreshed(&keys, since).await;
    let report = fleet.upstream.report();
    println!(
        "{behind:?}: {EVENTS} events in {:.0} s, {} calls for {} records, most in a second {}; turned back: {}",
        begun.elapsed().as_secs_f64(),
        report.calls,
        report.distinct_keys,
        report.max_in_second,
        reversals(&fleet).trim()
    );
    assert_within(&report, 1_000, 900);
    assert_eq!(reversals(&fleet).trim(), "0");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_kafka_and_postgres() {
    everything_fails(Behind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_redis_and_mariadb() {
    everything_fails(Behind::Redis).await;
}

/// One process with its data folder, killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_a_folder() {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.rate_500 = 0.02;
    });
    let limits = budget(WIDE).replace("hard_limit = 500", "hard_limit = 1000");
    let mut fleet = Fleet::start(Behind::Embedded, 1, upstream, &(limits + QUICK)).await;
    let since = SystemClock.now();
    let keys: Vec<String> = (0..3_000).map(|n| format!("k{n}")).collect();
    for part in keys.chunks(600) {
        fleet.ask_for_all(0, part).await;
        fleet.members[0].kill().await;
        fleet.revive(0).await;
    }
    fleet.until_refreshed(&keys, since).await;
    let report = fleet.upstream.report();
    println!(
        "a folder: 5 kills, {} calls for {} records",
        report.calls, report.distinct_keys
    );
    assert_within(&report, 1_000, 900);
    fleet.stop().await;
}

/// A database that does not answer: calls to it stop, reads say so at once, and everything goes on afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_hangs_opens_the_breaker_and_loses_nothing() {
    let _turn = turn().await;
    let mut fleet = Fleet::start(Behind::Kafka, 1, small(|_| {}), &(budget("") + QUICK)).await;
    let since = SystemClock.now();
    let keys: Vec<String> = (0..600).map(|n| format!("k{n}")).collect();
    fleet.ask_for_all(0, &keys).await;
    fleet.servers.postgres.as_mut().unwrap().pause().unwrap();
    until("the breaker is open", || async {
        let overview = fleet.members[0].served().get("/v1/refresh").await;
        overview["breakers"]["database"] != "CLOSED"
    })
    .await;
    // Nobody waits longer than a read may take.
    let (_, took) = fleet.read(0, "k0").await;
    assert!(took < Duration::from_secs(25), "{took:?}");
    fleet.servers.postgres.as_mut().unwrap().resume().unwrap();
    fleet.until_refreshed(&keys, since).await;
    until("the breaker is closed", || async {
        fleet.read(0, "another").await;
        let overview = fleet.members[0].served().get("/v1/refresh").await;
        overview["breakers"]["database"] == "CLOSED"
    })
    .await;
    fleet.stop().await;
}
