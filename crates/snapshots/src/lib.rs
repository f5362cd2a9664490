//! The snapshot store: everything stored of refreshed records sits behind [`Snapshots`].
//!
//! - [`Snapshots`]: one method per transition; every method takes and returns batches.
//! - [`sqlite`]: one file, in this process; the default.
//! - `postgres`, `mysql` (features): a database server, shared by several processes.
//! - [`archive`]: moves history out of the database into compressed objects, and back.
//! - `conformance` (feature): the cases that every backend must pass.
//!
//! The content of a snapshot belongs to the caller: data and hash are opaque here. This crate has no clock: every
//! time is an argument.

pub mod archive;
#[cfg(feature = "conformance")]
pub mod conformance;
mod decide;
mod error;
#[cfg(feature = "mysql")]
pub mod mysql;
mod options;
#[cfg(feature = "postgres")]
pub mod postgres;
mod rows;
mod snapshots;
mod sql;
pub mod sqlite;
mod write;

pub use error::{MIGRATE_COMMAND, SnapshotsError};
pub use options::{SnapshotsOptions, Timeouts};
pub use rows::{
    CountParams, Counts, DeadLetterMark, DeadLetterPosition, FreshnessTier, Handled, HistoryCursor,
    HistoryParams, HistoryRow, Lapsed, LapsedParams, MAX_TIERS, PrefetchParams, PrefetchTier, Prefetched,
    RecordRef, Retry, Row, Snapshot, Status, StatusCounts, StatusState,
};
pub use snapshots::Snapshots;
pub use sql::SqlSnapshots;
pub use sql::schema::SCHEMA_VERSION;
pub use write::{Failure, MAX_DATA_BYTES, MAX_ERROR_CODE, MAX_ERROR_MESSAGE, Write, WriteOutcome};
