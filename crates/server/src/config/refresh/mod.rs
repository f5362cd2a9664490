//! The sections of the refresh module: the roles of this process, and the settings of its log, snapshots and archive.

mod check;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tidegate_core::refresh::config::{
    BreakerConfig, CoalescerConfig, EtaConfig, PrefetchConfig, PressureConfig, RefreshConfig, StatusConfig,
    TierConfig,
};
use tidegate_core::secret::{Secret, ServerUrl};
use tidegate_core::time::Millis;
use tidegate_engine::refresh::{QuerySettings, WatchSettings, WorkSettings};
use tidegate_log::{LogSettings, TopicSettings};

#[cfg(not(all(feature = "kafka", feature = "postgres", feature = "mysql", feature = "s3")))]
pub(crate) use check::need_feature;

use super::{Config, StoreKind};

const HOUR: u64 = 3_600_000;

/// How the refresh module keeps records fresh.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefreshSection {
    /// The roles of this process: `all`, `query` (answers reads) or `work` (fetches, prefetches).
    pub roles: RolesConfig,
    pub query: QuerySettings,
    pub work: WorkSettings,
    pub watch: WatchSettings,
    pub coalescer: CoalescerConfig,
    pub tiers: TierConfig,
    pub prefetch: PrefetchConfig,
    pub status: StatusConfig,
    pub eta: EtaConfig,
    pub breaker: BreakerConfig,
    pub pressure: PressureConfig,
    pub log: RefreshLogConfig,
    pub snapshots: SnapshotsConfig,
    pub archive: ArchiveConfig,
}

impl RefreshSection {
    /// The settings that the state machines need.
    pub fn core(&self) -> RefreshConfig {
        RefreshConfig {
            coalescer: self.coalescer.clone(),
            tiers: self.tiers.clone(),
            prefetch: self.prefetch.clone(),
            status: self.status.clone(),
            eta: self.eta.clone(),
            breaker: self.breaker.clone(),
            pressure: self.pressure.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolesConfig {
    #[default]
    All,
    Query,
    Work,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogKind {
    Embedded,
    Redis,
    Kafka,
}

/// The log of refresh events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefreshLogConfig {
    /// `embedded` (the data folder), `redis` (Streams) or `kafka`; as `store.kind` if absent.
    pub kind: Option<LogKind>,
    /// Kafka: `host:port` of some brokers.
    pub brokers: Vec<String>,
    /// Kafka: more settings of librdkafka, such as `security.protocol`.
    pub properties: BTreeMap<String, Secret>,
    /// Redis: another server than that of `[redis]`.
    pub urls: Vec<ServerUrl>,
    /// The prefix of every topic's name: letters, digits, `.`, `_`, `-`. On Redis it follows `redis.key_prefix`.
    pub prefix: String,
    /// Kafka: copies of each record.
    pub replication_factor: u16,
    /// Partitions of a topic, fixed when the log creates it. At most this many processes can work on one topic.
    pub high_partitions: u32,
    pub low_partitions: u32,
    pub dead_partitions: u32,
    /// How long the log keeps events, consumed or not, in milliseconds (24 hours).
    pub high_retention_ms: Millis,
    /// The same for low priority (72 hours).
    pub low_retention_ms: Millis,
    /// How long the log keeps dead letters, in milliseconds (7 days).
    pub dead_retention_ms: Millis,
    /// How long a log other than Kafka keeps consumed events, in milliseconds; as long as all others if absent.
    pub completed_retention_ms: Option<Millis>,
    /// Longest wait for the confirmation of an append, in milliseconds.
    pub send_timeout_ms: Millis,
    /// Most events that wait to be appended. The log refuses more at once.
    pub max_queued: usize,
    /// A consumer without a heartbeat for this long loses its partitions, in milliseconds.
    pub session_timeout_ms: Millis,
}

impl Default for RefreshLogConfig {
    fn default() -> Self {
        Self {
            kind: None,
            brokers: Vec::new(),
            properties: BTreeMap::new(),
            urls: Vec::new(),
            prefix: String::new(),
            replication_factor: 3,
            high_partitions: 24,
            low_partitions: 24,
            dead_partitions: 12,
            high_retention_ms: Millis(24 * HOUR),
            low_retention_ms: Millis(72 * HOUR),
            dead_retention_ms: Millis(168 * HOUR),
            completed_retention_ms: None,
            send_timeout_ms: Millis(1_000),
            max_queued: 10_000,
            session_timeout_ms: Millis(10_000),
        }
    }
}

impl RefreshLogConfig {
    /// Converts them to the settings of the log itself.
    pub fn settings(&self) -> LogSettings {
        let topic = |partitions, retention| TopicSettings {
            partitions,
            retention,
            completed_retention: self.completed_retention_ms,
        };
        LogSettings {
            prefix: self.prefix.clone(),
            high: topic(self.high_partitions, self.high_retention_ms),
            low: topic(self.low_partitions, self.low_retention_ms),
            dead: TopicSettings {
                completed_retention: None,
                ..topic(self.dead_partitions, self.dead_retention_ms)
            },
            replication: self.replication_factor,
            send_timeout: self.send_timeout_ms,
            max_queued: self.max_queued,
            session_timeout: self.session_timeout_ms,
            ..LogSettings::default()
        }
    }
}

/// The database of the snapshots.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotsConfig {
    /// `sqlite:` (`snapshots.db` in the data folder), `sqlite:file`, `postgres://…` or `mysql://…`.
    pub url: ServerUrl,
    /// Connections for reading; on a database server, for writing as well.
    pub connections: u32,
    /// Longest time for one write, in milliseconds; reads have `refresh.query.read_timeout_ms`.
    pub write_timeout_ms: Millis,
}

impl Default for SnapshotsConfig {
    fn default() -> Self {
        Self {
            url: ServerUrl::new("sqlite:"),
            connections: 8,
            write_timeout_ms: Millis(5_000),
        }
    }
}

/// The archive of replaced snapshots, written once a day. Without an archive the service drops them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArchiveConfig {
    /// A folder, or `s3://bucket/prefix`; there is no archive if absent.
    pub to: Option<String>,
    /// The time of the daily run, in the zone below.
    pub at: String,
    /// The zone's distance from UTC in minutes: 540 in Seoul.
    pub utc_offset_minutes: i32,
    /// The tiers by age. The age of the first one is how long history stays in the database.
    pub tiers: Vec<ArchiveTierConfig>,
    /// Rows of one object.
    pub object_rows: u32,
    /// The zstd level: 1 is fast, 19 is small.
    pub compression: i32,
    /// S3: the URL of another server than Amazon's.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// S3: if absent, the usual `AWS_` variables apply.
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<Secret>,
    /// S3: without TLS, for a server on the same machine.
    pub allow_http: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArchiveTierConfig {
    /// The prefix of the names of its objects: `a-z`, `0-9`, `-`.
    pub name: String,
    /// The tier takes history that is older than this, unless a later tier takes it.
    pub from_days: u32,
    /// S3: the storage class of its objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

impl Default for ArchiveConfig {
    fn default() -> Self {
        let tier = |name: &str, from_days, class: &str| ArchiveTierConfig {
            name: name.to_owned(),
            from_days,
            storage_class: Some(class.to_owned()),
        };
        Self {
            to: None,
            at: "03:00".to_owned(),
            utc_offset_minutes: 0,
            tiers: vec![
                tier("warm", 30, "STANDARD"),
                tier("cold", 90, "STANDARD_IA"),
                tier("archive", 180, "GLACIER"),
            ],
            object_rows: 10_000,
            compression: 3,
            endpoint: None,
            region: None,
            access_key_id: None,
            secret_access_key: None,
            allow_http: false,
        }
    }
}

impl ArchiveConfig {
    /// Parses `at` as minutes after midnight; `None` if it is not a time of day.
    pub fn minutes(&self) -> Option<u32> {
        let (hours, minutes) = self.at.split_once(':')?;
        let number = |text: &str| {
            let plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u32>().ok()).flatten()
        };
        let (hours, minutes) = (number(hours)?, number(minutes)?);
        (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
    }
}

/// The kind of database that a URL names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseKind {
    Sqlite,
    Postgres,
    Mysql,
}

impl SnapshotsConfig {
    pub fn kind(&self) -> Option<DatabaseKind> {
        let url = self.url.expose();
        let begins = |scheme: &str| url.starts_with(scheme);
        if begins("sqlite:") {
            Some(DatabaseKind::Sqlite)
        } else if begins("postgres://") || begins("postgresql://") {
            Some(DatabaseKind::Postgres)
        } else if begins("mysql://") || begins("mariadb://") {
            Some(DatabaseKind::Mysql)
        } else {
            None
        }
    }
}

impl Config {
    /// Whether the configuration has sources to refresh.
    pub fn refreshes(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether this process only answers reads of records. These need only the database, so the process starts and is ready
    /// even while the store is unavailable.
    pub fn only_queries(&self) -> bool {
        self.refreshes() && self.refresh.roles == RolesConfig::Query
    }

    /// The kind of the log: by default that of the store.
    pub fn log_kind(&self) -> LogKind {
        self.refresh.log.kind.unwrap_or(match self.store.kind {
            StoreKind::Embedded => LogKind::Embedded,
            StoreKind::Redis => LogKind::Redis,
        })
    }

    /// The path of a SQLite database.
    pub fn snapshots_file(&self) -> PathBuf {
        let path = self.refresh.snapshots.url.expose().trim_start_matches("sqlite:");
        match path.strip_prefix("//").unwrap_or(path) {
            "" => self.store.data.join("snapshots.db"),
            path => PathBuf::from(path),
        }
    }

    /// The tiers of a source: its own times to live, with the slack that all sources share.
    pub fn tiers_of(&self, source: &tidegate_source::SourceSettings) -> TierConfig {
        let all = &self.refresh.tiers;
        let Some(ttl) = source.ttl_ms else {
            return all.clone();
        };
        // A record stays fresh longer than its interval by the time that an event may wait. Otherwise reads would request
        // another refresh meanwhile.
        let fresh =
            |ttl: Millis, interval: Millis, fresh: Millis| Millis(ttl.0 + fresh.0.saturating_sub(interval.0));
        TierConfig {
            hot_ms: ttl.hot,
            warm_ms: ttl.warm,
            cold_ms: ttl.cold,
            hot_fresh_ms: fresh(ttl.hot, all.hot_ms, all.hot_fresh_ms),
            warm_fresh_ms: fresh(ttl.warm, all.warm_ms, all.warm_fresh_ms),
            cold_fresh_ms: fresh(ttl.cold, all.cold_ms, all.cold_fresh_ms),
            ..all.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_the_defaults_of_the_log() {
        assert_eq!(RefreshLogConfig::default().settings(), LogSettings::default());
    }

    #[test]
    fn a_time_of_day_has_two_digits_for_hours_and_minutes() {
        let at = |text: &str| {
            let config = ArchiveConfig {
                at: text.into(),
                ..ArchiveConfig::default()
            };
            config.minutes()
        };
        assert_eq!(at("03:00"), Some(180));
        assert_eq!(at("23:59"), Some(1_439));
        for odd in ["", "3", "3:00", "24:00", "03:60", "+3:00", "03:00:00", "ab:cd"] {
            assert_eq!(at(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_source_keeps_the_slack_of_all_sources() {
        let mut config = Config::default();
        config.refresh.tiers.warm_ms = Millis(100);
        config.refresh.tiers.warm_fresh_ms = Millis(130);
        let mut source = tidegate_source::SourceSettings::new("a", "http://a/{key}", "b", &["c"]);
        assert_eq!(config.tiers_of(&source), config.refresh.tiers);
        source.ttl_ms = Some(tidegate_source::TierTtl {
            warm: Millis(50),
            ..Default::default()
        });
        let tiers = config.tiers_of(&source);
        assert_eq!((tiers.warm_ms, tiers.warm_fresh_ms), (Millis(50), Millis(80)));
    }
}
