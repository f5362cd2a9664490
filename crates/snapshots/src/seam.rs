//! The seam itself: what a backend must be able to do.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use crate::{SnapshotsError, Write, WriteOutcome};

/// Limit: activity tiers of one source.
pub const MAX_TIERS: usize = 4;

/// One record of one source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordRef {
    pub source: SourceId,
    pub key: RecordKey,
}

/// The stored projection of a record.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// As packed by whoever wrote it.
    pub data: Bytes,
    pub hash: [u8; 32],
    /// Of the event that checked it last.
    pub version: Version,
    pub last_checked_at: Timestamp,
    pub last_updated_at: Timestamp,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("bytes", &self.data.len())
            .field("version", &self.version)
            .field("last_checked_at", &self.last_checked_at)
            .field("last_updated_at", &self.last_updated_at)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a record, if anything is: there are rows only for what is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub state: StatusState,
    /// The upstream says that there is no such record.
    pub absent: bool,
    /// Of the event that failed.
    pub version: Version,
    pub fail_count: u64,
    pub last_error_code: String,
    pub last_error_message: String,
    pub next_retry_at: Option<Timestamp>,
    /// The event that waits for `next_retry_at`.
    pub event: Option<Bytes>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StatusState {
    /// Is tried again at `next_retry_at`, by whoever claims it.
    Retrying,
    /// Is not tried again by itself; `next_retry_at` says until when asking is pointless.
    Failed,
}

/// Everything that is known of a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    pub snapshot: Option<Snapshot>,
    /// Never one that is older than the snapshot.
    pub status: Option<Status>,
    /// When a user last asked for it.
    pub active_at: Option<Timestamp>,
}

/// A record whose time to be tried again has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    pub record: RecordRef,
    /// As it was before it was claimed.
    pub status: Status,
}

/// Which records may be fetched ahead of being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefetchAsk {
    pub source: SourceId,
    /// Hottest first, 1 to [`MAX_TIERS`]; the last one also takes every record that no tier fits.
    pub tiers: Vec<PrefetchTier>,
    pub max: u32,
    pub now: Timestamp,
    /// Until then nobody else gets what is claimed; unless it is written, it is a candidate again afterwards.
    pub claim_until: Timestamp,
}

/// Records of one tier are those that a user asked for since `active_since`; they are due if they were not checked
/// since `checked_before`. What lies between that and now is the time between two checks, and how late a record is counts
/// in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchTier {
    pub active_since: Timestamp,
    pub checked_before: Timestamp,
}

/// One slice of a walk over failed records, by the time from which on they could be asked for again. Those that have a
/// snapshot are passed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LapsedAsk {
    pub from: Timestamp,
    pub before: Timestamp,
    /// Rows looked at.
    pub max: u32,
}

/// What became of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lapsed {
    pub forgotten: u64,
    /// Where the next slice begins; `None` at the end.
    pub next: Option<Timestamp>,
}

/// A record that is due to be fetched ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetched {
    pub record: RecordRef,
    /// Of its snapshot; zero if there is none.
    pub version: Version,
    /// Index of its tier in the ask.
    pub tier: usize,
}

/// One slice of a count over all records of a source. Counting all at once would take longer the more there are;
/// a caller goes on from [`Counts::next`] until it is `None`, and adds up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountAsk {
    pub source: SourceId,
    /// Hottest first, at least one; the last one also takes every record that no tier fits.
    pub tiers: Vec<FreshnessTier>,
    pub after: Option<RecordKey>,
    /// How many records are looked at.
    pub max: u32,
}

/// Records that a user asked for since `active_since` are fresh if they were checked since `checked_since`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreshnessTier {
    pub active_since: Timestamp,
    pub checked_since: Timestamp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub fresh: u64,
    pub stale: u64,
    /// Records without a snapshot.
    pub missing: u64,
    /// Where the next slice begins; `None` at the end.
    pub next: Option<RecordKey>,
}

/// How many records of a source are not as they should be. Each number stops at the limit that was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StatusCounts {
    pub retrying: u64,
    pub failed: u64,
}

/// A slice of the history of one source, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryAsk {
    pub source: SourceId,
    /// Rows that were replaced at `from` or later,
    pub from: Timestamp,
    /// and before `before`.
    pub before: Timestamp,
    pub after: Option<HistoryCursor>,
    pub max_rows: u32,
    /// Ends the slice early; the first row is always in it.
    pub max_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryCursor {
    pub replaced_at: Timestamp,
    pub id: u64,
}

/// A snapshot that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRow {
    pub id: u64,
    pub record: RecordRef,
    pub snapshot: Snapshot,
    pub replaced_at: Timestamp,
}

impl HistoryRow {
    pub fn cursor(&self) -> HistoryCursor {
        HistoryCursor {
            replaced_at: self.replaced_at,
            id: self.id,
        }
    }
}

/// Where a dead letter is in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterPosition {
    pub partition: u32,
    pub offset: u64,
}

/// What was done with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Handled {
    Replayed,
    Purged,
}

/// A dead letter that needs nobody any more. A log cannot forget a single record, so it is marked here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterMark {
    pub position: DeadLetterPosition,
    pub how: Handled,
    pub at: Timestamp,
    pub by: String,
}

/// A backend for snapshots.
///
/// Every method is one transaction at most, takes a batch and answers in its order. What is answered is durable.
/// A method that failed with a retryable error may or may not have happened, and may be called again as it is.
#[async_trait]
pub trait Snapshots: Send + Sync + fmt::Debug + 'static {
    /// What is known of each record, in one round trip.
    async fn read(&self, records: &[RecordRef]) -> Result<Vec<Row>, SnapshotsError>;

    /// Carries out all writes or none; several about one record take effect in their order.
    async fn write(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, SnapshotsError>;

    /// Claims up to `max` retrying records whose time has come, longest due first. Nobody else gets them before
    /// `claim_until`; a record whose claimer dies is due again then. Only a write ends the status.
    async fn claim_retries(
        &self,
        now: Timestamp,
        claim_until: Timestamp,
        max: u32,
    ) -> Result<Vec<Retry>, SnapshotsError>;

    /// One slice of forgetting failed records that have no snapshot, once that says nothing any more.
    async fn forget_lapsed(&self, ask: &LapsedAsk) -> Result<Lapsed, SnapshotsError>;

    /// Notes when users asked for records; never goes back. A record that is not known is registered, and is from
    /// then on a candidate for prefetching.
    async fn mark_active(&self, seen: &[(RecordRef, Timestamp)]) -> Result<(), SnapshotsError>;

    /// Claims up to `max` records that are due to be fetched ahead, most overdue first over all tiers: an hour late is much
    /// for a hot record and little for a cold one.
    async fn claim_stale(&self, ask: &PrefetchAsk) -> Result<Vec<Prefetched>, SnapshotsError>;

    /// One slice of the freshness mix of a source.
    async fn counts(&self, ask: &CountAsk) -> Result<Counts, SnapshotsError>;

    /// How many records of a source have a status; counts up to `limit` of each state.
    async fn status_counts(&self, source: &SourceId, limit: u32) -> Result<StatusCounts, SnapshotsError>;

    /// The sources that have history, in order.
    async fn history_sources(&self) -> Result<Vec<SourceId>, SnapshotsError>;

    /// History that is not yet in an archive.
    async fn history(&self, ask: &HistoryAsk) -> Result<Vec<HistoryRow>, SnapshotsError>;

    /// Forgets rows of the history, by id. How many there were.
    async fn delete_history(&self, ids: &[u64]) -> Result<u64, SnapshotsError>;

    /// Puts archived rows back, to be looked at until `keep_until`. Rows that are there already are left alone.
    /// How many were put back.
    async fn restore_history(
        &self,
        rows: &[HistoryRow],
        keep_until: Timestamp,
    ) -> Result<u64, SnapshotsError>;

    /// Forgets up to `max` rows that were put back and have been kept long enough: the archive has them.
    async fn drop_restored(&self, now: Timestamp, max: u32) -> Result<u64, SnapshotsError>;

    /// The history of one record that is in the database, newest first, put back or not.
    async fn record_history(&self, record: &RecordRef, max: u32) -> Result<Vec<HistoryRow>, SnapshotsError>;

    /// Which of these dead letters have been handled; one answer each.
    async fn handled(
        &self,
        positions: &[DeadLetterPosition],
    ) -> Result<Vec<Option<DeadLetterMark>>, SnapshotsError>;

    /// Marks dead letters as handled. The first mark of a dead letter stays. How many were marked by this call.
    async fn mark_handled(&self, marks: &[DeadLetterMark]) -> Result<u64, SnapshotsError>;

    /// Forgets up to `max` marks of a partition below `offset`, where its log has no records any more.
    async fn forget_handled(&self, partition: u32, offset: u64, max: u32) -> Result<u64, SnapshotsError>;

    /// Whether the database is there and has the schema of this program.
    async fn check(&self) -> Result<(), SnapshotsError>;

    /// Brings the schema up to date. Safe to repeat, and when several processes start at once.
    async fn migrate(&self) -> Result<(), SnapshotsError>;
}
