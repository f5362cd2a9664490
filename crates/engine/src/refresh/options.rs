//! The components of a refresh service: its stores, its sources, its roles and its settings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidegate_core::budget::DayZone;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::config::ConfigError;
use tidegate_core::ids::{Owner, RecordId, SourceId, TargetId};
use tidegate_core::refresh::config::{RefreshConfig, TierConfig};
use tidegate_core::time::Millis;
use tidegate_log::Log;
use tidegate_snapshots::Snapshots;
use tidegate_source::{Fetcher, KeyRule};
use tidegate_store::refresh::RefreshStore;

use super::error::RefreshError;
use crate::owner::unique_owner;

/// One kind of refreshed data.
#[derive(Clone)]
pub struct SourceOptions {
    /// The target whose budget pays for its calls.
    pub target: TargetId,
    pub fetcher: Arc<dyn Fetcher>,
    /// Which keys are valid.
    pub keys: KeyRule,
    /// How long its records stay fresh, and how often the service prefetches them.
    pub tiers: TierConfig,
    /// Whether the service prefetches its records before anybody requests them.
    pub prefetch: bool,
    /// The time zone of the target's daily quota.
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

/// The roles of this process. Several processes may share the work in any combination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Answers reads and accepts refresh requests.
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

/// How the service answers reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuerySettings {
    /// Longest wait for the database, in milliseconds. Default 1,000.
    pub read_timeout_ms: Millis,
    /// How long a read waits to learn whether its refresh is queued, in milliseconds. Default 20.
    pub request_wait_ms: Millis,
    /// Longest time that the store or the log may take to queue a refresh, in milliseconds. Default 1,000.
    pub request_timeout_ms: Millis,
    /// Requests that may wait in the queue; the publisher rejects further ones at once. Default 10,000.
    pub max_requests: usize,
    /// How long the cache serves an entry, in milliseconds. Default 1,000.
    pub cache_ttl_ms: Millis,
    /// Entries in the cache. Default 10,000.
    pub cache_entries: usize,
    /// Bytes in the cache. Default 64 MB.
    pub cache_bytes: usize,
    /// Shortest time between two activity updates of one record, in milliseconds. Default 10 minutes.
    pub active_every_ms: Millis,
}

impl Default for QuerySettings {
    fn default() -> Self {
        Self {
            read_timeout_ms: Millis(1_000),
            request_wait_ms: Millis(20),
            request_timeout_ms: Millis(1_000),
            max_requests: 10_000,
            cache_ttl_ms: Millis(1_000),
            cache_entries: 10_000,
            cache_bytes: 64 << 20,
            active_every_ms: Millis(600_000),
        }
    }
}

/// How workers process events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkSettings {
    /// HIGH events in flight. Default 200.
    pub high_in_flight: usize,
    /// LOW events in flight. Default 150.
    pub low_in_flight: usize,
    /// Further attempts after a transient failure. Default 3.
    pub retries: u32,
    /// Backoff before the first of them, in milliseconds; doubles each time. Default 250.
    pub backoff_ms: Millis,
    /// A record that would wait longer than this is parked, in milliseconds. Default 30,000.
    pub park_after_ms: Millis,
    /// Lease of a claim: how long a record stays claimed without a heartbeat of its worker, in milliseconds.
    /// Default 30,000.
    pub claim_ms: Millis,
    /// Writes in one HIGH batch. Default 20.
    pub high_batch: usize,
    /// Writes in one LOW batch. Default 100.
    pub low_batch: usize,
    /// Longest wait for a HIGH batch to fill, in milliseconds. Default 50.
    pub high_flush_ms: Millis,
    /// Longest wait for a LOW batch to fill, in milliseconds. Default 500.
    pub low_flush_ms: Millis,
    /// How often the consumer commits offsets, in milliseconds. Default 100.
    pub commit_every_ms: Millis,
    /// How long started events may take to finish at shutdown, in milliseconds. Default 15,000.
    pub grace_ms: Millis,
    /// Consumer group for HIGH events. Default `high-worker`.
    pub high_group: String,
    /// Consumer group for LOW events. Default `low-worker`.
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

/// How often the service polls for each kind of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchSettings {
    /// Interval between measurements of the log's lag, in milliseconds. Default 5,000.
    pub lag_every_ms: Millis,
    /// Interval between polls for due retries, in milliseconds. Default 5,000.
    pub retry_every_ms: Millis,
    /// Retries claimed in one poll. Default 500.
    pub retry_batch: u32,
    /// Pause between two freshness censuses, in milliseconds. Default 60,000.
    pub census_every_ms: Millis,
    /// Records that the census counts in one call. Default 5,000.
    pub census_slice: u32,
    /// How often a follower polls for writes of other processes, in milliseconds. Default 1,000.
    pub follow_every_ms: Millis,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self {
            lag_every_ms: Millis(5_000),
            retry_every_ms: Millis(5_000),
            retry_batch: 500,
            census_every_ms: Millis(60_000),
            census_slice: 5_000,
            follow_every_ms: Millis(1_000),
        }
    }
}

/// The components of a refresh service.
#[derive(Debug, Clone)]
pub struct RefreshOptions {
    pub store: Arc<dyn RefreshStore>,
    pub log: Arc<dyn Log>,
    pub snapshots: Arc<dyn Snapshots>,
    pub sources: BTreeMap<SourceId, SourceOptions>,
    /// Its coalescer settings must match those of the store.
    pub config: RefreshConfig,
    pub roles: Roles,
    pub query: QuerySettings,
    pub work: WorkSettings,
    pub watch: WatchSettings,
    /// The name that claims and dead letters of this process carry.
    pub owner: Owner,
    /// Supplies the time until the store has reported its own.
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

    /// The error names the setting that cannot work.
    pub(crate) fn validate(&self) -> Result<(), RefreshError> {
        let check = || {
            self.config.validate()?;
            self.query.validate(&self.config.coalescer)?;
            self.work.validate()?;
            self.watch.validate()
        };
        check().map_err(|error: ConfigError| RefreshError::Config(error.to_string()))
    }

    /// The source of a record, if the key is valid for it.
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
