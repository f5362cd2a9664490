//! Ten thousand events while every component fails, with many requests for each record: in the end every effect is in
//! the database, and no older version has overwritten a newer one.

use std::time::{Duration, Instant};

use tidegate_core::clock::{Clock, SystemClock};

use super::fleet::{Backends, Fleet, Servers, assert_within, budget, small, turn};
use super::sqlite::SqliteFile;
use crate::support::served::until;

const EVENTS: usize = 10_000;
const RECORDS: usize = 2_500;
/// How long the database is unavailable.
const OUTAGE: Duration = Duration::from_secs(30);
/// Enough for ten thousand in a minute on a busy machine.
const WIDE: &str = "rate = 900\nburst = 50\nlow_cap = 900\nlow_burst = 50\n";
/// Events are pending for a short time only, so that a record gets another version while the first one is held up.
const QUICK: &str = "[refresh.work]\nclaim_ms = 5000\n\
                     [refresh.coalescer]\nhigh_pending_ms = 2500\nlow_pending_ms = 2500\nsend_timeout_ms = 2500\n\
                     high_mark_ms = 100\nlow_mark_ms = 100\n\
                     [refresh.query]\ncache_ttl_ms = 50\nread_timeout_ms = 500\n\
                     [refresh.breaker]\nopen_ms = 1000\nwindow = 2\nprobes = 1\n";

/// Triggers that record every version that replaces another one, and every step back. The database sees the writes of
/// all processes.
const POSTGRES_WATCH: &str = "
    CREATE TABLE moved (record_key BYTEA, was BIGINT, became BIGINT, back INT);
    CREATE FUNCTION watch() RETURNS trigger AS $$ BEGIN
      INSERT INTO moved VALUES (OLD.record_key, OLD.version, NEW.version,
        CASE WHEN NEW.version < OLD.version OR NEW.last_checked_at < OLD.last_checked_at
                  OR NEW.last_updated_at < OLD.last_updated_at THEN 1 ELSE 0 END);
      RETURN NEW; END $$ LANGUAGE plpgsql;
    CREATE TRIGGER watch AFTER UPDATE ON snapshot FOR EACH ROW EXECUTE FUNCTION watch();";
const TABLE: &str = "CREATE TABLE moved (record_key BLOB, was BIGINT, became BIGINT, back INT)";
const MARIADB_WATCH: &str = "CREATE TRIGGER watch AFTER UPDATE ON snapshot FOR EACH ROW INSERT INTO moved VALUES \
                             (OLD.record_key, OLD.version, NEW.version, \
                              CASE WHEN NEW.version < OLD.version OR NEW.last_checked_at < OLD.last_checked_at \
                                   OR NEW.last_updated_at < OLD.last_updated_at THEN 1 ELSE 0 END)";
const SQLITE_WATCH: &str = "CREATE TRIGGER watch AFTER UPDATE ON snapshot FOR EACH ROW BEGIN INSERT INTO moved VALUES \
                            (OLD.record_key, OLD.version, NEW.version, \
                             CASE WHEN NEW.version < OLD.version OR NEW.last_checked_at < OLD.last_checked_at \
                                  OR NEW.last_updated_at < OLD.last_updated_at THEN 1 ELSE 0 END); END";
const BACK: &str = "SELECT COUNT(*) FROM moved WHERE back = 1";
const REPLACED: &str = "SELECT COUNT(*) FROM moved WHERE became > was";

/// The database of a fleet, with triggers. The test can make it unavailable.
struct Database(Option<SqliteFile>);

impl Database {
    async fn watched(fleet: &Fleet) -> Self {
        if let Some(server) = &fleet.servers.postgres {
            server.execute("records", POSTGRES_WATCH).unwrap();
            return Self(None);
        }
        if let Some(server) = &fleet.servers.mariadb {
            server.execute("records", TABLE).unwrap();
            server.execute("records", MARIADB_WATCH).unwrap();
            return Self(None);
        }
        let mut file = SqliteFile::open(&fleet.members[0].database()).await;
        file.execute(TABLE).await;
        file.execute(SQLITE_WATCH).await;
        Self(Some(file))
    }

    /// Kills the server, or locks the file, which blocks writers only.
    async fn stop(&mut self, servers: &mut Servers) {
        match &mut self.0 {
            Some(file) => file.lock().await,
            None => servers.kill_database(),
        }
    }

    async fn resume(&mut self, servers: &mut Servers) {
        match &mut self.0 {
            Some(file) => file.unlock().await,
            None => servers.restart_database(),
        }
    }

    async fn number(&mut self, fleet: &Fleet, query: &'static str) -> i64 {
        let text = match (&fleet.servers.postgres, &fleet.servers.mariadb, &mut self.0) {
            (Some(server), ..) => server.execute("records", query).unwrap(),
            (_, Some(server), _) => server.execute("records", query).unwrap(),
            (_, _, Some(file)) => return file.number(query).await,
            _ => panic!("there is no database"),
        };
        text.trim().parse().unwrap()
    }
}

async fn everything_fails(backends: Backends) {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.rate_500 = 0.02;
        settings.rate_reset = 0.01;
        // Records differ from one fetch to the next.
        settings.change_every_ms = 500;
    });
    let limits = budget(WIDE).replace("hard_limit = 500", "hard_limit = 1000");
    let processes = if backends == Backends::Embedded { 1 } else { 3 };
    let mut fleet = Fleet::start(backends, processes, upstream, &(limits + QUICK)).await;
    let mut database = Database::watched(&fleet).await;
    let begun = Instant::now();
    let keys: Vec<String> = (0..RECORDS).map(|n| format!("k{n}")).collect();
    let mut accepted = fleet.request_all(0, &keys).await;

    database.stop(&mut fleet.servers).await;
    let outage = Instant::now();
    until("the breaker opens", || async {
        fleet.overview(0).await["breakers"]["database"] != "CLOSED"
    })
    .await;
    accepted.add(fleet.request_all(0, &keys).await);
    let victim = 1 % processes;
    fleet.members[victim].kill().await;
    if let Some(kafka) = &mut fleet.servers.kafka {
        kafka.stop().unwrap();
        kafka.restart().unwrap();
    } else if let Some(redis) = &mut fleet.servers.redis {
        redis.restart().unwrap();
    }
    if processes > 1 {
        accepted.add(fleet.request_all(0, &keys).await);
    }
    // At its start a process waits for an unavailable database, but not for ever.
    let almost = OUTAGE.saturating_sub(Duration::from_secs(5));
    tokio::time::sleep(almost.saturating_sub(outage.elapsed())).await;
    let back = async |servers: &mut Servers| {
        tokio::time::sleep(OUTAGE.saturating_sub(outage.elapsed())).await;
        database.resume(servers).await;
    };
    fleet.revive_while(victim, back).await;
    let outage = outage.elapsed();
    while accepted.events < EVENTS {
        accepted.add(fleet.request_all(0, &keys).await);
    }
    if processes > 1 {
        fleet.members[2].kill().await;
    } else {
        fleet.members[0].kill().await;
        fleet.revive(0).await;
    }
    if let Some(kafka) = &mut fleet.servers.kafka {
        // Without a graceful stop.
        kafka.restart().unwrap();
    }
    fleet.until_written(&accepted.versions).await;
    let report = fleet.upstream.report();
    let (back, replaced) = (
        database.number(&fleet, BACK).await,
        database.number(&fleet, REPLACED).await,
    );
    println!(
        "{backends:?}: {} events of {RECORDS} records in {:.0} s, {:.0} of them without the database, {} calls, most in a \
         second {}; {replaced} times a version replaced another, turned back: {back}",
        accepted.events,
        begun.elapsed().as_secs_f64(),
        outage.as_secs_f64(),
        report.calls,
        report.max_in_second,
    );
    assert_within(&report, 1_000, 900);
    assert_eq!(back, 0);
    assert!(replaced >= 2 * RECORDS as i64, "{replaced}");
    fleet.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_kafka_and_postgres() {
    everything_fails(Backends::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_redis_and_mariadb() {
    everything_fails(Backends::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_a_folder() {
    everything_fails(Backends::Embedded).await;
}

/// One process with its data folder, killed repeatedly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_outlives_kills() {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.rate_500 = 0.02;
    });
    let limits = budget(WIDE).replace("hard_limit = 500", "hard_limit = 1000");
    let mut fleet = Fleet::start(Backends::Embedded, 1, upstream, &(limits + QUICK)).await;
    let since = SystemClock.now();
    let keys: Vec<String> = (0..3_000).map(|n| format!("k{n}")).collect();
    for part in keys.chunks(600) {
        fleet.read_until_queued(0, part).await;
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
