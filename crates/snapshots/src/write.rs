//! What a fetch writes about a record, and the result.

use bytes::Bytes;
use tidegate_core::refresh::Version;
use tidegate_core::time::Timestamp;

use crate::SnapshotsError;
use crate::rows::{RecordRef, StatusState};

/// Limit: the data of one snapshot. Below the smallest default packet limit of database servers (16 MB).
pub const MAX_DATA_BYTES: usize = 8 << 20;
/// Limit: characters of an error code; longer ones are cut.
pub const MAX_ERROR_CODE: usize = 50;
/// Limit: characters of an error message; longer ones are cut.
pub const MAX_ERROR_MESSAGE: usize = 1_000;

/// One write for one record.
///
/// The version fences every write: one older than the stored version changes nothing and is [`WriteOutcome::Stale`].
/// The same version passes again, so that a repeated write is harmless.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The record as fetched. If its hash equals the stored one, only `last_checked_at` (never back) and the version
    /// change. Otherwise it replaces data and hash, and the old ones go to the history in the same transaction. Ends
    /// the record's status.
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

/// Why a refresh failed, and when to retry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub record: RecordRef,
    pub version: Version,
    pub state: StatusState,
    /// The upstream says that the record does not exist.
    pub absent: bool,
    pub error_code: String,
    pub error_message: String,
    /// `Retrying`: when its retry is due. `Failed`: until when a request is pointless.
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

    /// Rejects what no database accepts, before anything of the batch is written.
    pub(crate) fn check(&self) -> Result<(), SnapshotsError> {
        let bytes = match self {
            Write::Full { data, .. } => data.len(),
            Write::Failed(failure) | Write::Parked(failure) => failure.event.as_ref().map_or(0, Bytes::len),
        };
        if bytes > MAX_DATA_BYTES {
            let record = self.record();
            return Err(SnapshotsError::Invalid(format!(
                "record {:?} of source {:?} has {bytes} bytes; at most {MAX_DATA_BYTES} are allowed",
                record.key, record.source
            )));
        }
        if i64::try_from(self.version().0).is_err() {
            return Err(SnapshotsError::Invalid(format!(
                "version {} is larger than a database can store",
                self.version()
            )));
        }
        Ok(())
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Data and hash, or the status, are stored as given.
    Updated,
    /// The stored hash equals the given one: only the check was recorded.
    Unchanged,
    /// A newer version is stored; nothing was written.
    Stale { stored: Version },
}
