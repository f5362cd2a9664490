//! Converts between the stored status and the one that the core decides on.

use tidegate_core::refresh::config::StatusConfig;
use tidegate_core::refresh::status::{self, FailureKind, UpdateStatus};
use tidegate_core::time::Timestamp;
use tidegate_snapshots::{Status, StatusState};

/// The time before which nobody needs to request a record that failed.
pub(crate) fn next_retry(
    config: &StatusConfig,
    before: Option<&Status>,
    kind: FailureKind,
    now: Timestamp,
) -> Timestamp {
    let before = before.map(decided);
    let failure = status::Failure {
        kind,
        code: "",
        message: "",
    };
    status::after_failure(before.as_ref(), config, &failure, now).next_retry_at
}

fn decided(stored: &Status) -> UpdateStatus {
    UpdateStatus {
        state: match stored.state {
            StatusState::Retrying => status::StatusState::Retrying,
            StatusState::Failed => status::StatusState::Failed,
        },
        fail_count: u32::try_from(stored.fail_count).unwrap_or(u32::MAX),
        last_error_code: stored.last_error_code.clone(),
        last_error_message: stored.last_error_message.clone(),
        absent: stored.absent,
        next_retry_at: stored.next_retry_at.unwrap_or(stored.updated_at),
        created_at: stored.created_at,
        updated_at: stored.updated_at,
    }
}
