//! Ten thousand events while everything that can fail does, each record asked for again and again: every effect is in
//! the database in the end, and nothing older has overwritten anything newer.

use std::time::{Duration, Instant};

use tidegate_store::{Clock, SystemClock};

use super::fleet::{Behind, Fleet, Servers, assert_within, budget, small, turn};
use super::sqlite::SqliteFile;
use crate::support::served::until;

const EVENTS: usize = 10_000;
const RECORDS: usize = 2_500;
/// How long the database is away.
const AWAY: Duration = Duration::from_secs(30);
/// Enough for ten thousand in a minute on a busy machine.
const WIDE: &str = "rate = 900\nburst = 50\nlow_cap = 900\nlow_burst = 50\n";
/// An event is soon not waited for any more, so that a record gets another version while the first one is held up.
const QUICK: &str = "[refresh.work]\nclaim_ms = 5000\n\
                     [refresh.coalescer]\nhigh_pending_ms = 2500\nlow_pending_ms = 2500\nsend_timeout_ms = 2500\n\
                     high_mark_ms = 100\nlow_mark_ms = 100\n\
                     [refresh.query]\ncache_ttl_ms = 50\nread_timeout_ms = 500\n\
                     [refresh.breaker]\nopen_ms = 1000\nwindow = 2\nprobes = 1\n";

/// Write down every version that replaces another one, and whatever goes back. The database sees every write, whoever
/// makes it.
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

/// The database of a fleet: watched, and taken away.
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

    /// A server is killed; a file is locked, which only keeps writers away.
    async fn take_away(&mut self, servers: &mut Servers) {
        match &mut self.0 {
            Some(file) => file.lock().await,
            None => servers.kill_database(),
        }
    }

    async fn give_back(&mut self, servers: &mut Servers) {
        match &mut self.0 {
            Some(file) => file.unlock().await,
            None => servers.restart_database(),
        }
    }

    async fn number(&mut self, fleet: &Fleet, query: &'static str) -> i64 {
        let told = match (&fleet.servers.postgres, &fleet.servers.mariadb, &mut self.0) {
            (Some(server), ..) => server.execute("records", query).unwrap(),
            (_, Some(server), _) => server.execute("records", query).unwrap(),
            (_, _, Some(file)) => return file.number(query).await,
            _ => panic!("there is no database"),
        };
        told.trim().parse().unwrap()
    }
}

async fn everything_fails(behind: Behind) {
    let _turn = turn().await;
    let upstream = small(|settings| {
        settings.rate_500 = 0.02;
        settings.rate_reset = 0.01;
        // Records differ from one fetch to the next.
        settings.change_every_ms = 500;
    });
    let limits = budget(WIDE).replace("hard_limit = 500", "hard_limit = 1000");
    let processes = if behind == Behind::Embedded { 1 } else { 3 };
    let mut fleet = Fleet::start(behind, processes, upstream, &(limits + QUICK)).await;
    let mut database = Database::watched(&fleet).await;
    let begun = Instant::now();
    let keys: Vec<String> = (0..RECORDS).map(|n| format!("k{n}")).collect();
    let mut taken = fleet.request_all(0, &keys).await;

    database.take_away(&mut fleet.servers).await;
    let away = Instant::now();
    until("the database is missed", || async {
        fleet.overview(0).await["breakers"]["database"] != "CLOSED"
    })
    .await;
    taken.and(fleet.request_all(0, &keys).await);
    let victim = 1 % processes;
    fleet.members[victim].kill().await;
    if let Some(kafka) = &mut fleet.servers.kafka {
        kafka.stop().unwrap();
        kafka.restart().unwrap();
    } else if let Some(redis) = &mut fleet.servers.redis {
        redis.restart().unwrap();
    }
    if processes > 1 {
        taken.and(fleet.request_all(0, &keys).await);
    }
    // A start waits for a database that is away, but not for ever.
    let almost = AWAY.saturating_sub(Duration::from_secs(5));
    tokio::time::sleep(almost.saturating_sub(away.elapsed())).await;
    let back = async |servers: &mut Servers| {
        tokio::time::sleep(AWAY.saturating_sub(away.elapsed())).await;
        database.give_back(servers).await;
    };
    fleet.revive_while(victim, back).await;
    let away = away.elapsed();
    while taken.events < EVENTS {
        taken.and(fleet.request_all(0, &keys).await);
    }
    if processes > 1 {
        fleet.members[2].kill().await;
    } else {
        fleet.members[0].kill().await;
        fleet.revive(0).await;
    }
    if let Some(kafka) = &mut fleet.servers.kafka {
        // Not even told to stop.
        kafka.restart().unwrap();
    }
    fleet.until_written(&taken.versions).await;
    let report = fleet.upstream.report();
    let (back, replaced) = (
        database.number(&fleet, BACK).await,
        database.number(&fleet, REPLACED).await,
    );
    println!(
        "{behind:?}: {} events of {RECORDS} records in {:.0} s, {:.0} of them without the database, {} calls, most in a second \
         {}; {replaced} times a version replaced another, turned back: {back}",
        taken.events,
        begun.elapsed().as_secs_f64(),
        away.as_secs_f64(),
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
    everything_fails(Behind::Kafka).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_on_redis_and_mariadb() {
    everything_fails(Behind::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_a_folder() {
    everything_fails(Behind::Embedded).await;
}

/// One process with its data folder, killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_outlives_kills() {
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
