//! Every setting of the service. One TOML file, environment and flags over it; see `load.rs`.
//!
//! The sections of the bulk part keep their original names and defaults, those of the refresh part are in
//! `refresh.rs`; the others are the service's own.

mod check;
mod check_refresh;
mod load;
mod refresh;
mod roles;
mod rooms;
mod secret;
mod service;
mod show;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_core::budget::BudgetConfig;
use tidegate_core::config::{
    BackpressureConfig, BulkConfig, CongestionConfig, FairQueueConfig, JobTypeConfig, LimitsConfig,
    QueueConfig, RetentionConfig, WorkerPoolConfig,
};
use tidegate_core::ids::{JobType, QueueId, RoomId, SourceId, TargetId};
use tidegate_source::SourceSettings;

pub use crate::room::address::{ProxiesConfig, ProxyHeader};
pub use crate::room::event_service::EventServiceConfig;
pub use crate::room::joins::JoinLimitsConfig;
pub use crate::room::page::{Colour, Colours, OwnTexts};
pub use crate::room::pass::PassKeysConfig;
pub use crate::room::proof::ProofConfig;
pub use crate::room::visitor::ShopKeyConfig;
#[cfg(not(all(feature = "kafka", feature = "postgres", feature = "mysql", feature = "s3")))]
pub(crate) use check_refresh::need_feature;
pub use load::{FILE, Flag, Loaded, Sources, load};
pub use refresh::{
    ArchiveConfig, ArchiveTierConfig, DatabaseKind, LogKind, RefreshLogConfig, RefreshSection, RolesConfig,
    SnapshotsConfig,
};
pub use rooms::{RoomSection, RoomSettings};
pub use secret::{Secret, ServerUrl};
pub use service::{
    AuditConfig, CallbackConfig, DurabilityConfig, KeyConfig, LogConfig, LogFormat, MetricsConfig,
    RedisConfig, ServerConfig, StoreConfig, StoreKind, TargetConfig, TlsConfig, TracingConfig,
};
pub use tidegate_api::Role;
pub use tidegate_core::config::ConfigError;

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
    /// Who is called for which job types.
    pub targets: BTreeMap<QueueId, TargetConfig>,
    /// Who can be told when a batch is decided.
    pub callbacks: BTreeMap<String, CallbackConfig>,
    /// How often providers may be called: by refreshes of the sources that name it, and by pushes that do.
    pub budgets: BTreeMap<TargetId, BudgetConfig>,
    /// Where records come from that are kept fresh; without any there is no refresh part.
    pub sources: BTreeMap<SourceId, SourceSettings>,
    pub refresh: RefreshSection,
    /// Waiting rooms; without any, and without `room.event_service`, there are none.
    pub rooms: BTreeMap<RoomId, RoomSettings>,
    /// What all rooms share.
    pub room: RoomSection,
    /// Who may do what. Without keys everybody may do everything, and the service listens on loopback only.
    pub keys: Vec<KeyConfig>,
    pub audit: AuditConfig,
    pub metrics: MetricsConfig,
    pub log: LogConfig,
    pub tracing: TracingConfig,
}

impl Config {
    /// The settings of the bulk part: each target is a queue of its own name with its types in it.
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
            queue.rps = target.rps.or(queue.rps);
            queue.slow_ms = target.slow_ms.or(queue.slow_ms);
            queue.worker_count = Some(target.concurrency);
        }
        bulk
    }
}
