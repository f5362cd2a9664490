//! All state of the bulk part is behind [`BulkStore`].
//!
//! - [`BulkStore`]: one method per kind of access; transitions are commands of the core and take batches.
//! - [`ModelBulkStore`]: the pure state machine behind the trait, the reference for every backend.
//! - [`EmbeddedBulkStore`]: durable in the data folder, in this process.
//! - [`RedisBulkStore`]: on a Redis server or Cluster, shared by several processes.
//! - [`transfer`]: a whole store as a stream, for backup and for moving between backends.

#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;
mod job_runs;
mod model;
#[cfg(feature = "redis")]
mod redis;
mod store;
pub mod transfer;

pub use embedded::{EmbeddedBulkOptions, EmbeddedBulkStore};
pub use job_runs::JobRun;
pub use model::ModelBulkStore;
#[cfg(feature = "redis")]
pub use redis::{
    Difference, MAX_SHARDS, OnOtherSettings, RedisBulkOptions, RedisBulkStore, SettingsChange, StoredSettings,
};
pub use store::{BulkNotifier, BulkStore, BulkStoreExt, FoundJob, JobDetails, LeasedJob};
