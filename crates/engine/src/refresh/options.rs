//! What a refresh service is made of: its stores, its sources, which roles it plays, and how it runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::budget::DayZone;
use tidegate_core::config::ConfigError;
use tidegate_core::ids::{Owner, RecordId, SourceId, TargetId};
use tidegate_core::refresh::config::{RefreshConfig, TierConfig};
use tidegate_core::time::Millis;
use tidegate_log::Log;
use tidegate_snapshots::Snapshots;
use tidegate_source::{Fetcher, KeyRule};
use tidegate_store::refresh::RefreshStore;
use tidegate_store::{Clock, SystemClock};

use super::error::RefreshError;
use crate::engine::unique_owner;

/// One kind of refreshed data.
#[derive(Clone)]
pub struct SourceOptions {
    /// Whose budget its calls are taken from.
    pub target: TargetId,
    pub fetcher: Arc<dyn Fetcher>,
    /// Which keys there are.
    pub keys: KeyRule,
    /// How long its records are fresh, and how often they are fetched ahead.
    pub tiers: TierConfig,
    /// Whether its records are fetched ahead of being asked for.
    pub prefetch: bool,
    /// The zone of the target's day.
    pub zone: DayZone,
}

impl SourceOptions {
    pub fn new(target: TargetId, fetcher: Arc<dyn Fetcher>) -> Self {
        Self {
            target,
            fetcher,
            keys: KeyRule::default(),
            tiers: TierConfig::default(),
            prefetch: true,
            zone: DayZone::default(),
        }
    }
}

impl fmt::Debug for SourceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceOptions")
            .field("target", &self.target)
            .field("prefetch", &self.prefetch)
            .finish_non_exhaustive()
    }
}

/// What this process does. Several processes may share the work in any way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Answers reads and takes requests.
    pub query: bool,
    /// Consumes events.
    pub work: bool,
    /// Prefetches, retries, and counts the freshness of all records.
    pub plan: bool,
}

impl Roles {
    pub const ALL: Roles = Roles {
        query: true,
        work: true,
        plan: true,
    };
    pub const QUERY: Roles = Roles {
        query: true,
        work: false,
        plan: false,
    };
    pub const WORK: Roles = Roles {
        query: false,
        work: true,
        plan: true,
    };
}

/// How reads are answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuerySettings {
    /// Longest wait for the database, in milliseconds. Default 1,000.
    pub read_timeout_ms: Millis,
    /// How long a read waits to hear whether its refresh is queued, in milliseconds. Default 20.
    pub ask_wait_ms: Millis,
    /// Longest time that the store or the log may take to queue a refresh, in milliseconds. Default 1,000.
    pub ask_timeout_ms: Millis,
    /// Requests that may wait to be queued; more are refused at once. Default 10,000.
    pub max_asks: usize,
    /// How long an answer is told from memory, in milliseconds. Default 1,000.
    pub cache_ttl_ms: Millis,
    /// Answers that are kept in memory. Default 10,000.
    pub cache_entries: usize,
    /// Bytes of answers that are kept in memory. Default 64 MB.
    pub cache_bytes: usize,
    /// How often one record's activity is noted at most, in milliseconds. Default 10 minutes.
    pub active_every_ms: Millis,
}

impl Default for QuerySettings {
    fn default() -> Self {
        Self {
            read_timeout_ms: Millis(1_000),
            ask_wait_ms: Millis(20),
            ask_timeout_ms: Millis(1_000),
            max_asks: 10_000,
            cache_ttl_ms: Millis(1_000),
            cache_entries: 10_000,
            cache_bytes: 64 << 20,
            active_every_ms: Millis(600_000),
        }
    }
}

/// How events are worked on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkSettings {
    /// HIGH events that are worked on at once. Default 200.
    pub high_in_flight: usize,
    /// LOW events that are worked on at once. Default 150.
    pub low_in_flight: usize,
    /// Further attempts after one that may pass. Default 3.
    pub retries: u32,
    /// Wait before the first of them, in milliseconds; doubles with each. Default 250.
    pub backoff_ms: Millis,
    /// A record that has to wait longer is put aside, in milliseconds. Default 30,000.
    pub park_after_ms: Millis,
    /// How long nobody else may fetch a record whose worker is not heard of, in milliseconds. Default 30,000.
    pub claim_ms: Millis,
    /// Writes in one batch. Default 20 for HIGH.
    pub high_batch: usize,
    /// Default 100 for LOW.
    pub low_batch: usize,
    /// Longest wait for a batch to fill, in milliseconds. Default 50 for HIGH.
    pub high_flush_ms: Millis,
    /// Default 500 for LOW.
    pub low_flush_ms: Millis,
    /// How often marks are committed, in milliseconds. Default 100.
    pub commit_every_ms: Millis,
    /// How long what is begun may take to finish at shutdown, in milliseconds. Default 15,000.
    pub grace_ms: Millis,
    /// Name of the group that consumes HIGH events. Default `high-worker`.
    pub high_group: String,
    /// Default `low-worker`.
    pub low_group: String,
}

impl Default for WorkSettings {
    fn default() -> Self {
        Self {
            high_in_flight: 200,
            low_in_flight: 150,
            retries: 3,
            backoff_ms: Millis(250),
            park_after_ms: Millis(30_000),
            claim_ms: Millis(30_000),
            high_batch: 20,
            low_batch: 100,
            high_flush_ms: Millis(50),
            low_flush_ms: Millis(500),
            commit_every_ms: Millis(100),
            grace_ms: Millis(15_000),
            high_group: "high-worker".into(),
            low_group: "low-worker".into(),
        }
    }
}

/// How often things are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchSettings {
    /// Lag of the log, in milliseconds. Default 5,000.
    pub lag_every_ms: Millis,
    /// Retries that are due, in milliseconds. Default 5,000.
    pub retry_every_ms: Millis,
    /// Retries that are taken up at once. Default 500.
    pub retry_batch: u32,
    /// Pause between two counts of all records, in milliseconds. Default 60,000.
    pub mix_every_ms: Millis,
    /// Records counted in one call. Default 5,000.
    pub mix_slice: u32,
    /// How often a follower looks for what other processes wrote, in milliseconds. Default 1,000.
    pub follow_every_ms: Millis,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            lag_every_ms: Millis(5_000),
            retry_every_ms: Millis(5_000),
            retry_batch: 500,
            mix_every_ms: Millis(60_000),
            mix_slice: 5_000,
            follow_every_ms: Millis(1_000),
        }
    }
}

/// What a refresh service is made of.
#[derive(Debug, Clone)]
pub struct RefreshOptions {
    pub store: Arc<dyn RefreshStore>,
    pub log: Arc<dyn Log>,
    pub snapshots: Arc<dyn Snapshots>,
    pub sources: BTreeMap<SourceId, SourceOptions>,
    /// Must be the store's own, as far as the coalescer goes.
    pub config: RefreshConfig,
    pub roles: Roles,
    pub query: QuerySettings,
    pub work: WorkSettings,
    pub watch: WatchSettings,
    /// The name that claims and dead letters of this process carry.
    pub owner: Owner,
    /// Tells the time until the store has told its own.
    pub clock: Arc<dyn Clock>,
}

impl RefreshOptions {
    pub fn new(store: Arc<dyn RefreshStore>, log: Arc<dyn Log>, snapshots: Arc<dyn Snapshots>) -> Self {
        Self {
            store,
            log,
            snapshots,
            sources: BTreeMap::new(),
            config: RefreshConfig::default(),
            roles: Roles::ALL,
            query: QuerySettings::default(),
            work: WorkSettings::default(),
            watch: WatchSettings::default(),
            owner: unique_owner(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Names what cannot work.
    pub(crate) fn validate(&self) -> Result<(), RefreshError> {
        let check = || {
            self.config.validate()?;
            self.query.validate(&self.config.coalescer)?;
            self.work.validate()?;
            self.watch.validate()
        };
        check().map_err(|error: ConfigError| RefreshError::Config(error.to_string()))
    }

    /// The source of a record, if the key can be one of it.
    pub(crate) fn source(&self, record: &RecordId) -> Result<&SourceOptions, RefreshError> {
        let source = self
            .sources
            .get(&record.source)
            .ok_or_else(|| RefreshError::UnknownSource(record.source.clone()))?;
        source
            .keys
            .check(record.key.as_str())
            .map_err(|error| RefreshError::BadKey {
                source_id: record.source.clone(),
                reason: error.to_string(),
            })?;
        Ok(source)
    }
}
