//! What the [`Snapshots`](crate::Snapshots) trait moves: records, their rows, and the parameters and results of its
//! methods.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

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
    /// As packed by the writer.
    pub data: Bytes,
    pub hash: [u8; 32],
    /// The version of the event that last checked it.
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

/// The failure of a record. Only records with a problem have such a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub state: StatusState,
    /// The upstream says that the record does not exist.
    pub absent: bool,
    /// The version of the failed event.
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
    /// Whoever claims it retries it at `next_retry_at`.
    Retrying,
    /// Nobody retries it automatically; `next_retry_at` says until when a request is pointless.
    Failed,
}

/// Everything known of a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Row {
    pub snapshot: Option<Snapshot>,
    /// Never older than the snapshot.
    pub status: Option<Status>,
    /// When a user last requested it.
    pub active_at: Option<Timestamp>,
}

/// A record whose retry is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    pub record: RecordRef,
    /// The status before the claim.
    pub status: Status,
}

/// Which records the planner may prefetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefetchParams {
    pub source: SourceId,
    /// Hottest first, 1 to [`MAX_TIERS`]; the last one also takes every record that fits no tier.
    pub tiers: Vec<PrefetchTier>,
    pub max: u32,
    pub now: Timestamp,
    /// Until then nobody else gets the claimed records. A record not written by then is a candidate again.
    pub claim_until: Timestamp,
}

/// A tier holds the records that a user requested since `active_since`. They are due if nobody checked them since
/// `checked_before`. The span from that to now is the check interval of the tier, and lateness counts in its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrefetchTier {
    pub active_since: Timestamp,
    pub checked_before: Timestamp,
}

/// One slice of a walk over failed records, ordered by the time from which they could be requested again. It skips
/// records with a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LapsedParams {
    pub from: Timestamp,
    pub before: Timestamp,
    /// Rows inspected.
    pub max: u32,
}

/// The result of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lapsed {
    pub forgotten: u64,
    /// Where the next slice begins; `None` at the end.
    pub next: Option<Timestamp>,
}

/// A record that is due for a prefetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefetched {
    pub record: RecordRef,
    /// The version of its snapshot; zero without one.
    pub version: Version,
    /// Index of its tier in the request.
    pub tier: usize,
}

/// One slice of a count over all records of a source. A count of all at once would take ever longer as they grow. A
/// caller continues from [`Counts::next`] until it is `None`, and adds up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountParams {
    pub source: SourceId,
    /// Hottest first, at least one; the last one also takes every record that fits no tier.
    pub tiers: Vec<FreshnessTier>,
    pub after: Option<RecordKey>,
    /// Records inspected.
    pub max: u32,
}

/// Records that a user requested since `active_since` are fresh if they were checked since `checked_since`.
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

/// How many records of a source have a failure. Each number stops at the given limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StatusCounts {
    pub retrying: u64,
    pub failed: u64,
}

/// A slice of the history of one source, oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryParams {
    pub source: SourceId,
    /// Rows replaced at `from` or later,
    pub from: Timestamp,
    /// and before `before`.
    pub before: Timestamp,
    pub after: Option<HistoryCursor>,
    pub max_rows: u32,
    /// Ends the slice early; it always holds the first row.
    pub max_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HistoryCursor {
    pub replaced_at: Timestamp,
    pub id: u64,
}

/// A replaced snapshot.
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

/// The position of a dead letter in its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeadLetterPosition {
    pub partition: u32,
    pub offset: u64,
}

/// How an operator handled a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Handled {
    Replayed,
    Purged,
}

/// A handled dead letter. A log cannot delete a single record, so the database marks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetterMark {
    pub position: DeadLetterPosition,
    pub how: Handled,
    pub at: Timestamp,
    pub by: String,
}
