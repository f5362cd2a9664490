//! Some `tidegate serve` processes that share their work, the servers behind them, and the upstream in front of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_snapshots::mysql::{self, MySqlOptions};
use tidegate_snapshots::postgres::{self, PostgresOptions};
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_snapshots::{RecordRef, Snapshots, Write};
use tidegate_store::{Clock, SystemClock};
use tidegate_testkit::servers::{
    KafkaOptions, KafkaServer, MariaDbServer, PostgresServer, RedisOptions, RedisServer, SqlOptions,
};
use tidegate_upstream::{Report, Upstream, UpstreamSettings};
use tokio::sync::{Mutex, MutexGuard};

use crate::clock::SteppedClock;
use crate::served::{Served, free_port};

/// Longer than any of these tests should take for one thing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
const DATABASE: &str = "records";
const DAY: Millis = Millis(86_400_000);

/// One test at a time.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// What the processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behind {
    /// A data folder; for one process.
    Embedded,
    /// Redis for budgets, coalescer and log; MariaDB.
    Redis,
    /// Redis for budgets and coalescer; Kafka; PostgreSQL.
    Kafka,
}

/// The servers; one that is not used is absent.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    pub(crate) redis: Option<RedisServer>,
    pub(crate) kafka: Option<KafkaServer>,
    pub(crate) mariadb: Option<MariaDbServer>,
    pub(crate) postgres: Option<PostgresServer>,
}

impl Servers {
    fn start(behind: Behind) -> Self {
        let mut servers = Self::default();
        if behind == Behind::Embedded {
            return servers;
        }
        servers.redis = Some(RedisServer::start(RedisOptions::durable()).unwrap());
        if behind == Behind::Redis {
            let server = MariaDbServer::start(SqlOptions::default()).unwrap();
            server.create_database(DATABASE).unwrap();
            servers.mariadb = Some(server);
        } else {
            let server = PostgresServer::start(SqlOptions::default()).unwrap();
            server.create_database(DATABASE).unwrap();
            servers.postgres = Some(server);
            let options = KafkaOptions {
                behind_proxy: true,
                ..KafkaOptions::default()
            };
            servers.kafka = Some(KafkaServer::start(options).unwrap());
        }
        servers
    }

    /// As the processes are told.
    fn settings(&self) -> String {
        let mut text = String::new();
        if let Some(redis) = &self.redis {
            text += &format!("[redis]\nurls = [{:?}]\n", redis.url());
        }
        if let Some(kafka) = &self.kafka {
            text += &format!(
                "[refresh.log]\nkind = \"kafka\"\nbrokers = [{:?}]\nreplication_factor = 1\n\
                 session_timeout_ms = 6000\n",
                kafka.brokers()
            );
        }
        if let Some(server) = &self.mariadb {
            text += &format!("[refresh.snapshots]\nurl = {:?}\n", server.url_of(DATABASE));
        }
        if let Some(server) = &self.postgres {
            text += &format!("[refresh.snapshots]\nurl = {:?}\n", server.url_of(DATABASE));
        }
        text
    }

    /// `kill -9`.
    pub(crate) fn kill_database(&mut self) {
        match (&mut self.mariadb, &mut self.postgres) {
            (Some(server), _) => server.kill().unwrap(),
            (_, Some(server)) => server.kill().unwrap(),
            _ => {}
        }
    }

    pub(crate) fn restart_database(&mut self) {
        match (&mut self.mariadb, &mut self.postgres) {
            (Some(server), _) => server.restart().unwrap(),
            (_, Some(server)) => server.restart().unwrap(),
            _ => {}
        }
    }
}

pub(crate) struct Fleet {
    pub(crate) servers: Servers,
    pub(crate) upstream: Upstream,
    pub(crate) members: Vec<Member>,
    settings: String,
}

/// One process and what it keeps when it is killed.
pub(crate) struct Member {
    pub(crate) served: Option<Served>,
    pub(crate) clock: SteppedClock,
    folder: TempDir,
    port: u16,
}

impl Member {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            served: None,
            clock: SteppedClock::new(folder.path()),
            folder,
            port: free_port(),
        }
    }

    async fn start(&mut self, settings: &str) {
        let environment = self.clock.environment();
        let served = Served::start_in(self.folder.path(), self.port, settings, &environment).await;
        self.served = Some(served);
    }

    pub(crate) fn served(&self) -> &Served {
        self.served.as_ref().expect("it runs")
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        self.served().signal(signal);
    }

    /// `kill -9`.
    pub(crate) async fn kill(&mut self) {
        if let Some(served) = self.served.take() {
            served.kill().await;
        }
    }
}

pub(crate) fn small(change: impl FnOnce(&mut UpstreamSettings)) -> UpstreamSettings {
    let mut settings = UpstreamSettings {
        payload_bytes: 8_000,
        latency_min_ms: 5,
        latency_max_ms: 40,
        // It counts what it sees and refuses nothing: a machine that stalls would make it refuse.
        per_second: 10_000,
        ..UpstreamSettings::default()
    };
    change(&mut settings);
    settings
}

pub(crate) fn record(key: &str) -> RecordRef {
    RecordRef {
        source: SourceId::new("character").unwrap(),
        key: RecordKey::new(key).unwrap(),
    }
}

impl Fleet {
    /// `more` is TOML after what all of these tests have in common.
    pub(crate) async fn start(behind: Behind, count: usize, upstream: UpstreamSettings, more: &str) -> Self {
        let servers = Servers::start(behind);
        let upstream = Upstream::start(upstream).unwrap();
        let settings = format!(
            "{}\n[sources.character]\nurl = \"{}/character/{{key}}\"\ntarget = \"api\"\n\
             fields = [\"character_name\", \"revision\"]\ntimeout_ms = 60000\n\
             [refresh.query]\ncache_ttl_ms = 50\nread_timeout_ms = 10000\n\
             [refresh.watch]\nlag_every_ms = 500\nfollow_every_ms = 100\n\
             [refresh.breaker]\nopen_ms = 1000\n{more}",
            servers.settings(),
            upstream.url(),
        );
        let mut fleet = Self {
            servers,
            upstream,
            members: (0..count).map(|_| Member::new()).collect(),
            settings,
        };
        for index in 0..count {
            fleet.revive(index).await;
        }
        fleet
    }

    /// Starts a process that does not run.
    pub(crate) async fn revive(&mut self, index: usize) {
        self.members[index].start(&self.settings).await;
    }

    /// What is in the database, seen past the processes.
    pub(crate) async fn snapshots(&self) -> Arc<dyn Snapshots> {
        if let Some(server) = &self.servers.mariadb {
            return Arc::new(mysql::open(MySqlOptions::new(server.url_of(DATABASE))).unwrap());
        }
        if let Some(server) = &self.servers.postgres {
            return Arc::new(postgres::open(PostgresOptions::new(server.url_of(DATABASE))).unwrap());
        }
        let file = self.members[0].folder.path().join("data/snapshots.db");
        Arc::new(sqlite::open(SqliteOptions::new(file)).await.unwrap())
    }

    /// Records that were fetched two days ago: due to be fetched ahead.
    pub(crate) async fn seed(&self, prefix: &str, count: usize) {
        let snapshots = self.snapshots().await;
        let at = SystemClock.now() - DAY - DAY;
        let write = |n: usize| Write::Full {
            record: record(&format!("{prefix}{n}")),
            version: Version(1),
            data: vec![1; 50].into(),
            hash: [1; 32],
            at,
        };
        let writes: Vec<Write> = (0..count).map(write).collect();
        for writes in writes.chunks(500) {
            // A busy machine may take longer than a write may.
            while let Err(error) = snapshots.write(writes).await {
                assert!(error.is_retryable(), "{error}");
            }
        }
    }

    /// A read through the port of one process, and how long it took.
    pub(crate) async fn read(&self, index: usize, key: &str) -> (Value, Duration) {
        let served = self.members[index].served();
        let begun = Instant::now();
        let record = served.get(&format!("/v1/records/character/{key}")).await;
        (record, begun.elapsed())
    }

    /// Reads many in one request each; an answer that says so was not queued is asked for again.
    pub(crate) async fn ask_for_all(&self, index: usize, keys: &[String]) {
        let begun = Instant::now();
        let served = self.members[index].served();
        let mut left: Vec<String> = keys.to_vec();
        while !left.is_empty() {
            assert!(begun.elapsed() < PATIENCE, "{} are not queued", left.len());
            let now: Vec<String> = left.drain(..left.len().min(500)).collect();
            let records: Vec<Value> = now
                .iter()
                .map(|key| json!({ "source": "character", "key": key }))
                .collect();
            let sent = served
                .http
                .post(format!("{}/v1/records/read", served.url))
                .json(&json!({ "records": records }))
                .send()
                .await;
            let answers: Value = match sent {
                Ok(response) => response.json().await.unwrap(),
                Err(_) => Value::Null,
            };
            let taken = |n: usize| {
                let answer = &answers["records"][n]["record"];
                answer["updateQueued"] == true || answer["freshness"] == "FRESH"
            };
            let missed: Vec<String> = (0..now.len())
                .filter(|n| !taken(*n))
                .map(|n| now[n].clone())
                .collect();
            if !missed.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            left.extend(missed);
        }
    }

    /// Waits until each of these records was fetched after `since`, whatever happens meanwhile.
    pub(crate) async fn until_refreshed(&self, keys: &[String], since: Timestamp) {
        let snapshots = self.snapshots().await;
        let begun = Instant::now();
        let mut left: Vec<RecordRef> = keys.iter().map(|key| record(key)).collect();
        while !left.is_empty() {
            assert!(
                begun.elapsed() < PATIENCE,
                "{} of {} are not there, such as {:?}",
                left.len(),
                keys.len(),
                left[0]
            );
            let mut missing = Vec::new();
            for records in left.chunks(500) {
                match snapshots.read(records).await {
                    Ok(rows) => {
                        let late = records.iter().zip(rows).filter(|(_, row)| {
                            let snapshot = row.snapshot.as_ref();
                            snapshot.is_none_or(|snapshot| snapshot.last_checked_at < since)
                        });
                        missing.extend(late.map(|(record, _)| record.clone()));
                    }
                    Err(_) => missing.extend_from_slice(records),
                }
            }
            left = missing;
            if !left.is_empty() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    }

    /// Every process ends well.
    pub(crate) async fn stop(mut self) {
        for member in &mut self.members {
            if let Some(served) = member.served.take() {
                served.stop().await;
            }
        }
    }
}

/// No second had more than the limit; `rate` is what the budget hands out.
pub(crate) fn assert_within(report: &Report, limit: u32, rate: u32) {
    let most = report.most_allowed(limit, rate);
    assert!(
        report.max_in_second <= most,
        "{} in a second, not {most}",
        report.max_in_second
    );
    assert_eq!((report.over_day, report.statuses.get("429")), (0, None));
}

/// Part of a configuration: the defaults of the provider's limits, in a day that does not turn during a test.
pub(crate) fn budget(more: &str) -> String {
    format!(
        "[budgets.api]\nhard_limit = 500\nzone = {{ utc_offset_minutes = {}, day_starts_at_minutes = 0 }}\n{more}",
        midday()
    )
}

/// The distance from UTC, in minutes, at which it is about noon now.
pub(crate) fn midday() -> i64 {
    let minutes = (SystemClock.now().0 / 60_000 % 1_440) as i64;
    720 - minutes
}

/// In milliseconds, in order; at a share of all.
pub(crate) fn at(share: f64, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let index = ((times.len().max(1) - 1) as f64 * share) as usize;
    times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}
