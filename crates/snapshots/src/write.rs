//! What is written about a record after a fetch, and what became of it.

use bytes::Bytes;
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use crate::SnapshotsError;
use crate::seam::{RecordRef, StatusState};

/// Limit: the data of one snapshot. Below the smallest packet that database servers take by default (16 MB).
pub const MAX_DATA_BYTES: usize = 8 << 20;
/// Limit: characters of an error code; longer ones are cut.
pub const MAX_ERROR_CODE: usize = 50;
/// Limit: characters of an error message; longer ones are cut.
pub const MAX_ERROR_MESSAGE: usize = 1_000;

/// One write about one record.
///
/// Every write is fenced by version: one that is older than what is stored changes nothing and is
/// [`WriteOutcome::Stale`]. The same version again is let through, so that a repeated write is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The record as fetched. If its hash is the stored one, only `last_checked_at` (never back) and the version move;
    /// else data and hash are replaced, and the old ones go to the history in the same transaction. Ends the record's
    /// status.
    Full {
        record: RecordRef,
        version: Version,
        data: Bytes,
        hash: [u8; 32],
        at: Timestamp,
    },
    /// The fetch failed: counts one failure. The same failure again (same version, same `at`) counts once.
    Failed(Failure),
    /// The record has to wait long, through no fault of its own: keeps its event until `next_retry_at` without
    /// counting a failure.
    Parked(Failure),
}

/// Why a record could not be refreshed, and when it may be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub record: RecordRef,
    pub version: Version,
    pub state: StatusState,
    /// The upstream says that there is no such record.
    pub absent: bool,
    pub error_code: String,
    pub error_message: String,
    /// `Retrying`: when it is claimed for another try. `Failed`: until when nobody needs to ask again.
    pub next_retry_at: Option<Timestamp>,
    pub event: Option<Bytes>,
    pub at: Timestamp,
}

impl Write {
    pub fn record(&self) -> &RecordRef {
        match self {
            Write::Full { record, .. } => record,
            Write::Failed(failure) | Write::Parked(failure) => &failure.record,
        }
    }

    pub fn version(&self) -> Version {
        match self {
            Write::Full { version, .. } => *version,
            Write::Failed(failure) | Write::Parked(failure) => failure.version,
        }
    }

    /// Refuses what no database takes, before anything of the batch is written.
    pub(crate) fn check(&self) -> Result<(), SnapshotsError> {
        let bytes = match self {
            Write::Full { data, .. } => data.len(),
            Write::Failed(failure) | Write::Parked(failure) => failure.event.as_ref().map_or(0, Bytes::len),
        };
        if bytes > MAX_DATA_BYTES {
            let record = self.record();
            return Err(SnapshotsError::Invalid(format!(
                "record {:?} of source {:?} has {bytes} bytes; at most {MAX_DATA_BYTES} are stored",
                record.key, record.source
            )));
        }
        if i64::try_from(self.version().0).is_err() {
            return Err(SnapshotsError::Invalid(format!(
                "version {} is beyond what a database counts to",
                self.version()
            )));
        }
        Ok(())
    }
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Data and hash, or the status, are as given.
    Updated,
    /// The stored hash is the given one: only the check was noted.
    Unchanged,
    /// Something newer is stored; nothing was written.
    Stale { stored: Version },
}
