//! Every setting of the service. `load.rs` reads them from a TOML file, the environment and flags.
//!
//! `service.rs`, `refresh/` and `room.rs` define the service's own sections; those of bulk jobs come from the core.

mod check;
mod load;
mod refresh;
mod roles;
mod room;
mod service;
mod show;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::budget::BudgetConfig;
use tidegate_core::bulk::config::{
    BackpressureConfig, BulkConfig, CongestionConfig, FairQueueConfig, JobTypeConfig, LimitsConfig,
    QueueConfig, RetentionConfig, WorkerPoolConfig,
};
use tidegate_core::ids::{JobType, QueueId, RoomId, SourceId, TargetId};
use tidegate_core::limits::quota::Limit;
use tidegate_source::SourceSettings;

pub use crate::room::event_service::EventServiceConfig;
pub use crate::room::page::{Colour, Colours, OwnTexts};
pub use crate::room::proxies::{ProxiesConfig, ProxyHeader};
pub use load::{FILE, Flag, Loaded, Sources, load};
#[cfg(not(all(feature = "kafka", feature = "postgres", feature = "mysql", feature = "s3")))]
pub(crate) use refresh::need_feature;
pub use refresh::{
    ArchiveConfig, ArchiveTierConfig, DatabaseKind, LogKind, RefreshLogConfig, RefreshSection, RolesConfig,
    SnapshotsConfig,
};
pub use room::{RoomSection, RoomSettings};
pub use service::{
    AuditConfig, CallbackConfig, KeyConfig, LogConfig, LogFormat, MetricsConfig, RedisConfig, ServerConfig,
    StoreConfig, StoreKind, TargetConfig, ThrottleScopeConfig, TlsConfig, TracingConfig,
};
pub use tidegate_api::Role;
pub use tidegate_core::config::ConfigError;
pub use tidegate_core::secret::{Secret, ServerUrl};
pub use tidegate_engine::room::identity::ShopKeyConfig;
pub use tidegate_engine::room::{JoinLimitsConfig, PassKeysConfig, ProofConfig};

/// Settings of the service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub server: ServerConfig,
    pub store: StoreConfig,
    pub redis: RedisConfig,
    pub fair_queue: FairQueueConfig,
    pub backpressure: BackpressureConfig,
    pub congestion: CongestionConfig,
    pub worker_pool: WorkerPoolConfig,
    pub retention: RetentionConfig,
    pub limits: LimitsConfig,
    /// Settings of single job types; a type not named here uses the defaults and the queue `default`.
    pub job_types: BTreeMap<JobType, JobTypeConfig>,
    /// Settings of single queues.
    pub queues: BTreeMap<QueueId, QueueConfig>,
    /// Push targets: the services that Tidegate calls, with their job types.
    pub targets: BTreeMap<QueueId, TargetConfig>,
    /// Callbacks that batches can name, which the service calls when a batch ends.
    pub callbacks: BTreeMap<String, CallbackConfig>,
    /// How often the service may call a provider, by refreshes and pushes together.
    pub budgets: BTreeMap<TargetId, BudgetConfig>,
    /// Where records come from. Without any there is no refresh module.
    pub sources: BTreeMap<SourceId, SourceSettings>,
    pub refresh: RefreshSection,
    /// Waiting rooms. `room.event_service` can add more.
    pub rooms: BTreeMap<RoomId, RoomSettings>,
    /// The settings that all rooms share.
    pub room: RoomSection,
    /// API keys. Without keys everybody may do everything, and the service listens on loopback only.
    pub keys: Vec<KeyConfig>,
    pub audit: AuditConfig,
    pub metrics: MetricsConfig,
    pub log: LogConfig,
    pub tracing: TracingConfig,
}

impl Config {
    /// The settings of bulk jobs. Each target adds a queue of its name, with its job types.
    pub fn bulk(&self) -> BulkConfig {
        let mut bulk = BulkConfig {
            fair_queue: self.fair_queue.clone(),
            backpressure: self.backpressure.clone(),
            congestion: self.congestion.clone(),
            worker_pool: self.worker_pool.clone(),
            retention: self.retention.clone(),
            limits: self.limits.clone(),
            job_types: self.job_types.clone(),
            queues: self.queues.clone(),
        };
        for (name, target) in &self.targets {
            for kind in &target.types {
                let settings = bulk.job_types.entry(kind.clone()).or_default();
                settings.queue = Some(name.clone());
                settings.timeout_ms = settings.timeout_ms.or(target.timeout_ms);
            }
            let queue = bulk.queues.entry(name.clone()).or_default();
            queue.rate = target.rate.or(queue.rate);
            queue.max_running = target.max_running.or(queue.max_running);
            queue.per_group = target.per_group.or(queue.per_group);
            queue.worker_count = Some(target.concurrency);
        }
        bulk
    }

    /// Replaces the settings of bulk jobs, those of targets included.
    pub fn set_bulk(&mut self, bulk: BulkConfig) {
        for (name, target) in &mut self.targets {
            let queue = bulk.queues.get(name);
            target.rate = queue.and_then(|queue| queue.rate);
            target.max_running = queue.and_then(|queue| queue.max_running);
            target.per_group = queue.map_or_else(Limit::default, |queue| queue.per_group);
        }
        let BulkConfig {
            fair_queue,
            backpressure,
            congestion,
            worker_pool,
            retention,
            limits,
            job_types,
            queues,
        } = bulk;
        self.fair_queue = fair_queue;
        self.backpressure = backpressure;
        self.congestion = congestion;
        self.worker_pool = worker_pool;
        self.retention = retention;
        self.limits = limits;
        self.job_types = job_types;
        self.queues = queues;
    }
}
