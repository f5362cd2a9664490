//! The `Snapshots` trait: what a backend must be able to do.

use std::fmt;

use async_trait::async_trait;
use tidegate_core::ids::SourceId;
use tidegate_core::time::Timestamp;

use crate::rows::{
    CountParams, Counts, DeadLetterMark, DeadLetterPosition, HistoryParams, HistoryRow, Lapsed, LapsedParams,
    PrefetchParams, Prefetched, RecordRef, Retry, Row, StatusCounts,
};
use crate::{SnapshotsError, Write, WriteOutcome};

/// A backend for snapshots.
///
/// Every method is one transaction at most, takes a batch and returns results in its order. Results are durable.
/// After a retryable error the call is in doubt: it may have happened, and the caller may repeat it unchanged.
#[async_trait]
pub trait Snapshots: Send + Sync + fmt::Debug + 'static {
    /// Reads what is known of each record, in one round trip.
    async fn read(&self, records: &[RecordRef]) -> Result<Vec<Row>, SnapshotsError>;

    /// Applies all writes or none; several for one record take effect in order.
    async fn write(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, SnapshotsError>;

    /// Claims up to `max` retrying records that are due, longest due first. Nobody else gets them before
    /// `claim_until`; if the claimer dies, the record is due again then. Only a write ends the status.
    async fn claim_retries(
        &self,
        now: Timestamp,
        claim_until: Timestamp,
        max: u32,
    ) -> Result<Vec<Retry>, SnapshotsError>;

    /// One slice of the cleanup of failed records that have no snapshot and whose failure has lapsed.
    async fn forget_lapsed(&self, params: &LapsedParams) -> Result<Lapsed, SnapshotsError>;

    /// Records when users requested records; the time never decreases. Registers an unknown record, which is from
    /// then on a candidate for prefetching.
    async fn mark_active(&self, seen: &[(RecordRef, Timestamp)]) -> Result<(), SnapshotsError>;

    /// Claims up to `max` records that are due for a prefetch, most overdue first over all tiers: an hour late is
    /// much for a hot record and little for a cold one.
    async fn claim_stale(&self, params: &PrefetchParams) -> Result<Vec<Prefetched>, SnapshotsError>;

    /// One slice of the freshness census of a source.
    async fn counts(&self, params: &CountParams) -> Result<Counts, SnapshotsError>;

    /// How many records of a source have a status; counts up to `limit` of each state.
    async fn status_counts(&self, source: &SourceId, limit: u32) -> Result<StatusCounts, SnapshotsError>;

    /// The sources that have history, in order.
    async fn history_sources(&self) -> Result<Vec<SourceId>, SnapshotsError>;

    /// History that is not in an archive yet.
    async fn history(&self, params: &HistoryParams) -> Result<Vec<HistoryRow>, SnapshotsError>;

    /// Deletes rows of the history, by id. Returns how many existed.
    async fn delete_history(&self, ids: &[u64]) -> Result<u64, SnapshotsError>;

    /// Restores archived rows until `keep_until`, for inspection. Leaves existing rows unchanged. Returns how many it
    /// restored.
    async fn restore_history(
        &self,
        rows: &[HistoryRow],
        keep_until: Timestamp,
    ) -> Result<u64, SnapshotsError>;

    /// Deletes up to `max` restored rows whose time is up: the archive has them.
    async fn drop_restored(&self, now: Timestamp, max: u32) -> Result<u64, SnapshotsError>;

    /// The history of one record in the database, newest first, restored or not.
    async fn record_history(&self, record: &RecordRef, max: u32) -> Result<Vec<HistoryRow>, SnapshotsError>;

    /// Which of these dead letters are handled; one result each.
    async fn handled(
        &self,
        positions: &[DeadLetterPosition],
    ) -> Result<Vec<Option<DeadLetterMark>>, SnapshotsError>;

    /// Marks dead letters as handled. The first mark of a dead letter wins. Returns how many this call marked.
    async fn mark_handled(&self, marks: &[DeadLetterMark]) -> Result<u64, SnapshotsError>;

    /// Deletes up to `max` marks of a partition below `offset`, where its log has no records any more.
    async fn forget_handled(&self, partition: u32, offset: u64, max: u32) -> Result<u64, SnapshotsError>;

    /// Whether the database is available and has the schema of this program.
    async fn check(&self) -> Result<(), SnapshotsError>;

    /// Migrates the schema. Safe to repeat, and safe when several processes start at once.
    async fn migrate(&self) -> Result<(), SnapshotsError>;
}
