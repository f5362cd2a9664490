//! Decides what a write does to the stored record. Pure, so that every backend decides the same.

use tidegate_core::refresh::Version;

use crate::{Write, WriteOutcome};

/// The stored state of a record, as far as a decision needs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) row: Option<KnownRow>,
    /// The version of its status, if it has one.
    pub(crate) status: Option<Version>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KnownRow {
    pub(crate) version: Version,
    /// `None`: registered, but never fetched.
    pub(crate) hash: Option<[u8; 32]>,
}

/// What a write has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    /// Replaces data and hash; the previous ones go to the history.
    Replace,
    /// Updates `last_checked_at` and the version.
    Touch,
    /// Writes the status.
    Note,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) outcome: WriteOutcome,
    pub(crate) step: Step,
    pub(crate) ends_status: bool,
}

pub(crate) fn decide(write: &Write, known: Known) -> Decision {
    let version = write.version();
    let stored = match write {
        // A failure must not hide a newer failure either.
        Write::Failed(_) | Write::Parked(_) => known.row.map(|row| row.version).max(known.status),
        Write::Full { .. } => known.row.map(|row| row.version),
    };
    if let Some(stored) = stored.filter(|stored| *stored > version) {
        return nothing(WriteOutcome::Stale { stored });
    }
    let stored_hash = known.row.and_then(|row| row.hash);
    match write {
        Write::Failed(_) | Write::Parked(_) => Decision {
            outcome: WriteOutcome::Updated,
            step: Step::Note,
            ends_status: false,
        },
        Write::Full { hash, .. } if stored_hash == Some(*hash) => Decision {
            outcome: WriteOutcome::Unchanged,
            step: Step::Touch,
            ends_status: ends_status(known, version),
        },
        Write::Full { .. } => Decision {
            outcome: WriteOutcome::Updated,
            step: Step::Replace,
            ends_status: ends_status(known, version),
        },
    }
}

fn nothing(outcome: WriteOutcome) -> Decision {
    Decision {
        outcome,
        step: Step::Nothing,
        ends_status: false,
    }
}

/// A success ends a status, unless the status concerns a later event.
fn ends_status(known: Known, version: Version) -> bool {
    known.status.is_some_and(|status| status <= version)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tidegate_core::ids::{RecordKey, SourceId};
    use tidegate_core::time::Timestamp;

    use super::*;
    use crate::{Failure, RecordRef, StatusState};

    fn record() -> RecordRef {
        RecordRef {
            source: SourceId::new("s").unwrap(),
            key: RecordKey::new("k").unwrap(),
        }
    }

    fn full(version: u64, hash: u8) -> Write {
        Write::Full {
            record: record(),
            version: Version(version),
            data: Bytes::new(),
            hash: [hash; 32],
            at: Timestamp(0),
        }
    }

    fn failed(version: u64) -> Write {
        Write::Failed(Failure {
            record: record(),
            version: Version(version),
            state: StatusState::Failed,
            absent: false,
            error_code: String::new(),
            error_message: String::new(),
            next_retry_at: None,
            event: None,
            at: Timestamp(0),
        })
    }

    fn known(version: u64, hash: Option<u8>, status: Option<u64>) -> Known {
        Known {
            row: Some(KnownRow {
                version: Version(version),
                hash: hash.map(|byte| [byte; 32]),
            }),
            status: status.map(Version),
        }
    }

    #[test]
    fn a_newer_version_that_is_stored_wins() {
        let decision = decide(&full(5, 1), known(6, Some(2), None));
        assert_eq!(decision.outcome, WriteOutcome::Stale { stored: Version(6) });
        assert_eq!(decision.step, Step::Nothing);
        assert_eq!(decide(&full(6, 1), known(6, Some(2), None)).step, Step::Replace);
    }

    #[test]
    fn a_failure_hides_neither_a_newer_success_nor_a_newer_failure() {
        assert_eq!(decide(&failed(5), known(6, Some(2), None)).step, Step::Nothing);
        assert_eq!(decide(&failed(5), known(1, Some(2), Some(6))).step, Step::Nothing);
        assert_eq!(decide(&failed(5), known(1, None, Some(5))).step, Step::Note);
    }

    #[test]
    fn a_success_ends_only_a_status_that_is_not_about_a_later_event() {
        assert!(decide(&full(5, 1), known(1, Some(1), Some(5))).ends_status);
        assert!(decide(&full(5, 1), known(1, Some(2), Some(4))).ends_status);
        assert!(!decide(&full(5, 1), known(1, Some(2), Some(6))).ends_status);
    }
}
