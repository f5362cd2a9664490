//! The status of failing records: a row only where something is wrong, deleted on success.
//!
//! It is also the negative cache: nothing requests a failed record again before `next_retry_at`, however often
//! it is read.

use serde::{Deserialize, Serialize};

use super::config::StatusConfig;
use crate::time::{Millis, Timestamp};

/// Limit: error codes are kept in a column of this many characters.
pub const MAX_CODE_CHARS: usize = 50;
/// Limit: error messages are truncated to this many characters.
pub const MAX_MESSAGE_CHARS: usize = 1_000;

/// The state of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StatusState {
    /// Parked because the target asked to wait, or its day was used up; retried automatically at
    /// `next_retry_at`. Nothing is wrong with the record, so this counts as no failure.
    Retrying,
    /// Given up, with a dead letter, and not retried automatically. A read after `next_retry_at` requests it
    /// again.
    Failed,
}

/// One row: what is wrong with one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateStatus {
    pub state: StatusState,
    /// Consecutive failures.
    pub fail_count: u32,
    pub last_error_code: String,
    pub last_error_message: String,
    /// The upstream reported that there is no such record.
    pub absent: bool,
    pub next_retry_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureKind {
    /// May recover: 5xx, timeouts.
    Transient,
    /// Will not recover by itself: other 4xx, malformed responses.
    Permanent,
    /// The upstream reported that there is no such record.
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure<'a> {
    pub kind: FailureKind,
    pub code: &'a str,
    pub message: &'a str,
}

/// The update state that a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum UpdateState {
    Retrying,
    Failed,
    Success,
    Pending,
}

/// The row after a failure with no attempts left. After a success there is none.
pub fn after_failure(
    before: Option<&UpdateStatus>,
    config: &StatusConfig,
    failure: &Failure<'_>,
    now: Timestamp,
) -> UpdateStatus {
    let fail_count = before.map_or(0, |status| status.fail_count).saturating_add(1);
    let wait = match failure.kind {
        FailureKind::Transient if fail_count <= config.retries => {
            grown(config.retry_base_ms, config.retry_max_ms, fail_count)
        }
        FailureKind::Transient => grown(
            config.failed_base_ms,
            config.failed_max_ms,
            fail_count - config.retries,
        ),
        FailureKind::Permanent | FailureKind::Absent => {
            grown(config.failed_base_ms, config.failed_max_ms, fail_count)
        }
    };
    UpdateStatus {
        state: StatusState::Failed,
        fail_count,
        last_error_code: cut(failure.code, MAX_CODE_CHARS),
        last_error_message: cut(failure.message, MAX_MESSAGE_CHARS),
        absent: failure.kind == FailureKind::Absent,
        next_retry_at: now + wait,
        created_at: before.map_or(now, |status| status.created_at),
        updated_at: now,
    }
}

/// `base` doubled with each failure after the first, at most `max`.
fn grown(base: Millis, max: Millis, failures: u32) -> Millis {
    let doublings = failures.saturating_sub(1).min(40);
    Millis(base.0.saturating_mul(1 << doublings)).min(max)
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

/// How the last refresh went: the row's state, else whether the snapshot is fresh.
pub fn update_state(status: Option<&UpdateStatus>, fresh: bool) -> UpdateState {
    match (status.map(|status| status.state), fresh) {
        (Some(StatusState::Retrying), _) => UpdateState::Retrying,
        (Some(StatusState::Failed), _) => UpdateState::Failed,
        (None, true) => UpdateState::Success,
        (None, false) => UpdateState::Pending,
    }
}

/// Until when a failed record is not requested again; `None` if it may be requested at `now`.
pub fn held_until(status: Option<&UpdateStatus>, now: Timestamp) -> Option<Timestamp> {
    status
        .map(|status| status.next_retry_at)
        .filter(|until| now < *until)
}

/// For a record without data, a row whose wait ended before this time is obsolete and can be deleted. The
/// record is then like any unknown one, and its failures count from one again.
pub fn lapsed_before(config: &StatusConfig, now: Timestamp) -> Timestamp {
    now - config.failed_max_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn fail(before: Option<&UpdateStatus>, kind: FailureKind, now: Timestamp) -> UpdateStatus {
        let failure = Failure {
            kind,
            code: &"é".repeat(60),
            message: "went wrong",
        };
        after_failure(before, &StatusConfig::default(), &failure, now)
    }

    #[test]
    fn what_may_pass_is_failed_too_and_its_waits_grow() {
        let mut status = fail(None, FailureKind::Transient, NOW);
        assert_eq!(status.state, StatusState::Failed, "its event is a dead letter");
        assert_eq!(held_until(Some(&status), NOW), Some(NOW + Millis(30_000)));
        assert_eq!(held_until(Some(&status), NOW + Millis(30_000)), None);
        let mut waits = vec![status.next_retry_at.since(NOW).0 / 1_000];
        for _ in 0..6 {
            status = fail(Some(&status), FailureKind::Transient, NOW);
            waits.push(status.next_retry_at.since(NOW).0 / 1_000);
        }
        assert_eq!(waits, [30, 60, 120, 240, 480, 600, 1_200]);
        assert_eq!((status.state, status.fail_count), (StatusState::Failed, 7));
        assert_eq!(status.last_error_code.chars().count(), MAX_CODE_CHARS);
        for _ in 0..100 {
            status = fail(Some(&status), FailureKind::Transient, NOW);
        }
        assert_eq!(
            status.next_retry_at.since(NOW),
            StatusConfig::default().failed_max_ms
        );
    }

    #[test]
    fn a_missing_record_that_is_polled_is_asked_for_rarely() {
        let (mut asked, mut status) = (0, None);
        // Read every second for a day.
        for second in 0..86_400 {
            let now = NOW + Millis(second * 1_000);
            if held_until(status.as_ref(), now).is_none() {
                asked += 1;
                status = Some(fail(status.as_ref(), FailureKind::Absent, now));
            }
        }
        assert_eq!(asked, 8, "after 0, 10, 30, 70 minutes and so on");
        assert!(status.unwrap().absent);
    }

    #[test]
    fn a_failure_lapses_after_the_longest_wait() {
        let config = StatusConfig::default();
        let status = fail(None, FailureKind::Absent, NOW);
        let until = status.next_retry_at + config.failed_max_ms;
        assert!(status.next_retry_at >= lapsed_before(&config, until));
        assert!(status.next_retry_at < lapsed_before(&config, until + Millis(1)));
    }

    #[test]
    fn the_state_without_a_row_follows_the_snapshot() {
        let status = fail(None, FailureKind::Permanent, NOW);
        assert_eq!(update_state(Some(&status), true), UpdateState::Failed);
        assert_eq!(update_state(None, true), UpdateState::Success);
        assert_eq!(update_state(None, false), UpdateState::Pending);
    }
}
