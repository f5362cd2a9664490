//! A fleet: several `tidegate serve` processes, the servers that they share, and the simulated provider that they call.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_snapshots::mysql::{self, MySqlOptions};
use tidegate_snapshots::postgres::{self, PostgresOptions};
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_snapshots::{RecordRef, Snapshot, Snapshots, Write};
use tidegate_testkit::servers::{
    KafkaOptions, KafkaServer, MariaDbServer, PostgresServer, Proxy, RedisOptions, RedisServer, SqlOptions,
};
use tidegate_upstream::{Report, Upstream, UpstreamSettings};
use tokio::sync::{Mutex, MutexGuard};

use super::clock::SteppedClock;
use crate::support::served::{Served, free_port};

/// Longer than any of these tests needs for one step, on a machine that is busy and stalls.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
const DATABASE: &str = "records";
const DAY: Millis = Millis(86_400_000);

const LOG: &str = "[refresh.log]\n";
const COMMON: [&str; 3] = [
    "[refresh.query]\ncache_ttl_ms = 50\nread_timeout_ms = 30000\n",
    "[refresh.watch]\nlag_every_ms = 500\nfollow_every_ms = 100\n",
    "[refresh.breaker]\nopen_ms = 1000\n",
];

/// Prefetches as much as the budget allows.
pub(crate) const FLOOD: &str = "[refresh.prefetch]\ntick_ms = 1000\npeak_rate = 1000\nother_rate = 1000\n\
                     [refresh.work]\nclaim_ms = 5000\n";

/// One test at a time.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// The servers that the processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backends {
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
    /// Between the processes and PostgreSQL.
    pub(crate) postgres_proxy: Option<Proxy>,
}

impl Servers {
    fn start(backends: Backends) -> Self {
        let mut servers = Self::default();
        if backends == Backends::Embedded {
            return servers;
        }
        servers.redis = Some(RedisServer::start(RedisOptions::durable()).unwrap());
        if backends == Backends::Redis {
            let server = MariaDbServer::start(SqlOptions::default()).unwrap();
            server.create_database(DATABASE).unwrap();
            servers.mariadb = Some(server);
        } else {
            let server = PostgresServer::start(SqlOptions::default()).unwrap();
            server.create_database(DATABASE).unwrap();
            servers.postgres_proxy = Some(Proxy::start(server.port()).unwrap());
            servers.postgres = Some(server);
            let options = KafkaOptions {
                behind_proxy: true,
                ..KafkaOptions::default()
            };
            servers.kafka = Some(KafkaServer::start(options).unwrap());
        }
        servers
    }

    /// The settings of the processes, with `more`, which may have a section of the log and a session timeout.
    fn settings(&self, more: &str) -> String {
        let mut text = String::new();
        if let Some(redis) = &self.redis {
            text += &format!("[redis]\nurls = [{:?}]\n", redis.url());
        }
        let mut more = more.to_owned();
        if let Some(kafka) = &self.kafka {
            if !more.contains(LOG) {
                more += LOG;
            }
            let session = match more.contains("session_timeout_ms") {
                true => "",
                false => "session_timeout_ms = 6000\n",
            };
            let kafka = format!(
                "{LOG}kind = \"kafka\"\nbrokers = [{:?}]\nreplication_factor = 1\n{session}",
                kafka.brokers()
            );
            more = more.replace(LOG, &kafka);
        }
        if let Some(server) = &self.mariadb {
            text += &format!("[refresh.snapshots]\nurl = {:?}\n", server.url_of(DATABASE));
        }
        if let (Some(server), Some(proxy)) = (&self.postgres, &self.postgres_proxy) {
            let (port, proxied) = (server.port().to_string(), proxy.port().to_string());
            let url = server.url_of(DATABASE).replace(&port, &proxied);
            text += &format!("[refresh.snapshots]\nurl = {url:?}\n");
        }
        text + &more
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

/// One process, and what survives its kill.
pub(crate) struct Member {
    pub(crate) served: Option<Served>,
    pub(crate) clock: SteppedClock,
    folder: TempDir,
    port: u16,
}

impl Member {
    /// The database of a process that shares none.
    pub(crate) fn database(&self) -> PathBuf {
        self.folder.path().join("data/snapshots.db")
    }

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

    /// The same with retries: a process that waits for its database in vain ends.
    async fn start_with_retries(&mut self, settings: &str) {
        let begun = Instant::now();
        while self.served.is_none() {
            let (folder, port) = (self.folder.path().to_owned(), self.port);
            let (settings, environment) = (settings.to_owned(), self.clock.environment());
            let started = async move { Served::start_in(&folder, port, &settings, &environment).await };
            match tokio::spawn(started).await {
                Ok(served) => self.served = Some(served),
                Err(ended) => assert!(begun.elapsed() < PATIENCE, "{ended}"),
            }
        }
    }

    pub(crate) fn served(&self) -> &Served {
        self.served.as_ref().expect("the process runs")
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
        // It counts calls and refuses none: on a machine that stalls it would refuse some.
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
    /// `more` is TOML after the settings that all of these tests share; a section of it replaces theirs.
    pub(crate) async fn start(
        backends: Backends,
        count: usize,
        upstream: UpstreamSettings,
        more: &str,
    ) -> Self {
        let upstream = Upstream::start(upstream).unwrap();
        let servers = Servers::start(backends);
        let mut settings = format!(
            "[sources.character]\nurl = \"{}/character/{{key}}\"\ntarget = \"api\"\n\
             fields = [\"character_name\", \"revision\"]\ntimeout_ms = 120000\nconnect_timeout_ms = 30000\n{}",
            upstream.url(),
            servers.settings(more),
        );
        for section in COMMON {
            let name = section.lines().next().expect("it has a name");
            if !more.contains(name) {
                settings += section;
            }
        }
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

    /// The same while `meanwhile` changes the servers; the start is retried if the process ends before.
    pub(crate) async fn revive_while(&mut self, index: usize, meanwhile: impl AsyncFnOnce(&mut Servers)) {
        let Self {
            members,
            servers,
            settings,
            ..
        } = self;
        tokio::join!(members[index].start_with_retries(settings), meanwhile(servers));
    }

    /// The database, past the processes.
    pub(crate) async fn snapshots(&self) -> Arc<dyn Snapshots> {
        if let Some(server) = &self.servers.mariadb {
            return Arc::new(mysql::open(MySqlOptions::new(server.url_of(DATABASE))).unwrap());
        }
        if let Some(server) = &self.servers.postgres {
            return Arc::new(postgres::open(PostgresOptions::new(server.url_of(DATABASE))).unwrap());
        }
        let file = self.members[0].database();
        Arc::new(sqlite::open(SqliteOptions::new(file)).await.unwrap())
    }

    /// Records that were fetched two days ago: due to be prefetched.
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
            // On a busy machine a write may time out.
            while let Err(error) = snapshots.write(writes).await {
                assert!(error.is_retryable(), "{error}");
            }
        }
    }

    /// A read through the API of one process, and how long it took.
    pub(crate) async fn read(&self, index: usize, key: &str) -> (Value, Duration) {
        let served = self.members[index].served();
        let begun = Instant::now();
        let record = served.get(&format!("/v1/records/character/{key}")).await;
        (record, begun.elapsed())
    }

    /// Waits until each of these records was fetched after `since`.
    pub(crate) async fn until_refreshed(&self, keys: &[String], since: Timestamp) {
        let records = keys.iter().map(|key| (record(key), ())).collect();
        self.until_stored(records, |snapshot, ()| snapshot.last_checked_at >= since)
            .await;
    }

    /// Waits until each of these records has the version that was promised, or a later one.
    pub(crate) async fn until_written(&self, versions: &HashMap<String, u64>) {
        let records = versions.iter();
        let records = records.map(|(key, version)| (record(key), Version(*version)));
        self.until_stored(records.collect(), |snapshot, version| {
            snapshot.version >= *version
        })
        .await;
    }

    async fn until_stored<T>(&self, mut left: Vec<(RecordRef, T)>, is_there: impl Fn(&Snapshot, &T) -> bool) {
        let snapshots = self.snapshots().await;
        let (begun, all) = (Instant::now(), left.len());
        while let Some((first, _)) = left.first() {
            let count = left.len();
            assert!(
                begun.elapsed() < PATIENCE,
                "{count} of {all} are not stored, such as {first:?}"
            );
            let mut missing = Vec::new();
            while !left.is_empty() {
                let part: Vec<(RecordRef, T)> = left.drain(..left.len().min(500)).collect();
                let records: Vec<RecordRef> = part.iter().map(|(record, _)| record.clone()).collect();
                // An unavailable database returns nothing.
                let rows = snapshots.read(&records).await.unwrap_or_default();
                let mut rows = rows.into_iter();
                for (record, wanted) in part {
                    let snapshot = rows.next().and_then(|row| row.snapshot);
                    if !snapshot.is_some_and(|snapshot| is_there(&snapshot, &wanted)) {
                        missing.push((record, wanted));
                    }
                }
            }
            left = missing;
            if !left.is_empty() {
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    }

    /// Waits until this many calls were made.
    pub(crate) async fn calls_reach(&self, wanted: u64) {
        let begun = Instant::now();
        while self.upstream.report().calls < wanted {
            let calls = self.upstream.report().calls;
            assert!(begun.elapsed() < PATIENCE, "{calls} calls, not {wanted}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until this many more calls were made.
    pub(crate) async fn calls_grow(&self, by: u64) {
        let calls = self.upstream.report().calls;
        self.calls_reach(calls + by).await;
    }

    /// While on, calls are sent but do not arrive.
    pub(crate) fn hold(&self, on: bool) {
        self.upstream.set(|settings| settings.holding = on).unwrap();
    }

    /// Calls that were sent but have not arrived.
    pub(crate) fn held(&self) -> u64 {
        let report = self.upstream.report();
        report.sent - report.calls
    }

    /// The refresh module as one process reports it.
    pub(crate) async fn overview(&self, index: usize) -> Value {
        self.members[index].served().get("/v1/refresh").await
    }

    /// Stops every process, each with success.
    pub(crate) async fn stop(mut self) {
        for member in &mut self.members {
            if let Some(served) = member.served.take() {
                served.stop().await;
            }
        }
    }
}

/// No second had more calls than the limit, but for those that the provider counted late; `rate` is the budget's.
pub(crate) fn assert_within(report: &Report, limit: u32, rate: u32) {
    let most = report.most_allowed(limit, rate);
    assert!(
        report.max_in_second <= most,
        "{} in a second, not {most}: {:?}",
        report.max_in_second,
        report.busiest
    );
    assert_eq!((report.over_day, report.statuses.get("429")), (0, None));
}

/// Part of a configuration: the provider's default limits, in a day that does not end during a test.
pub(crate) fn budget(more: &str) -> String {
    format!(
        "[budgets.api]\nhard_limit = 500\nzone = {{ utc_offset_minutes = {}, day_starts_at_minutes = 0 }}\n{more}",
        midday()
    )
}

/// The offset from UTC, in minutes, at which it is about noon now.
pub(crate) fn midday() -> i64 {
    let minutes = (SystemClock.now().0 / 60_000 % 1_440) as i64;
    720 - minutes
}

/// The percentile in milliseconds: this share of the times are shorter.
pub(crate) fn at(share: f64, times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    let index = ((times.len().max(1) - 1) as f64 * share) as usize;
    times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
}
