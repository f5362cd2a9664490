//! Runs: what is kept of each start of a job, and the progress that its worker reports.
//!
//! The state machine emits a record when a run ends without completing the job; a completed job carries its last run in its
//! state. A store keeps the latest records of a job ([`RUNS_KEPT`]). A released run was none: it leaves no record.

use serde::{Deserialize, Serialize};

use super::Bulk;
use super::command::{JobOutcome, LeaseRef};
use super::lease::LeaseEntry;
use super::list::Slot;
use super::record::Change;
use super::settle::cut_error;
use crate::ids::Owner;
use crate::time::Timestamp;

/// Limit: runs kept of one job; the oldest goes first.
pub const RUNS_KEPT: u32 = 10;

/// Limit: bytes kept of the text of a progress.
pub const MAX_PROGRESS_BYTES: usize = 256;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunOutcome {
    Completed,
    Failed,
    Retry,
    Throttled,
    /// The worker reported nothing before its lease ended.
    LeaseExpired,
}

/// One run of a job that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Counts the runs of the job from 1, across replays.
    pub number: u32,
    /// None if the process that leased the job ended before it wrote that down.
    pub started_at: Option<Timestamp>,
    pub ended_at: Timestamp,
    pub worker: Owner,
    pub outcome: RunOutcome,
    /// What the worker reported; none if it gave no reason.
    pub error: Option<String>,
}

/// How far a run is, as its worker reports.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// From 0 to 100.
    pub percent: u8,
    /// A short text; may be empty.
    pub text: String,
}

/// A lease to extend, and what its worker has to report.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseExtension {
    pub lease: LeaseRef,
    /// The progress so far; what was reported before stays if absent.
    pub progress: Option<Progress>,
}

impl From<LeaseRef> for LeaseExtension {
    fn from(lease: LeaseRef) -> Self {
        Self {
            lease,
            progress: None,
        }
    }
}

impl Progress {
    /// The progress as it is kept: at most 100 percent, the text cut to [`MAX_PROGRESS_BYTES`].
    pub fn bounded(mut self) -> Self {
        self.percent = self.percent.min(100);
        if self.text.len() > MAX_PROGRESS_BYTES {
            let cut = (0..=MAX_PROGRESS_BYTES)
                .rev()
                .find(|&i| self.text.is_char_boundary(i));
            self.text.truncate(cut.unwrap_or(0));
        }
        self
    }
}

impl Bulk {
    /// Records a run that ended without completing the job.
    pub(super) fn record_run(
        &mut self,
        slot: Slot,
        lease: &LeaseEntry,
        outcome: RunOutcome,
        mut error: String,
        now: Timestamp,
    ) {
        cut_error(&mut error);
        let runs = self.runs.entry(slot).or_default();
        *runs = runs.saturating_add(1);
        let record = RunRecord {
            number: *runs,
            started_at: lease.started(),
            ended_at: now,
            worker: lease.owner.clone(),
            outcome,
            error: (!error.is_empty()).then_some(error),
        };
        self.changes
            .push(Change::AddRun(self.jobs[slot as usize].seq, record));
    }

    /// Records the run that an outcome ends, unless it completes the job or was none.
    pub(super) fn record_outcome(
        &mut self,
        slot: Slot,
        lease: &LeaseEntry,
        outcome: &JobOutcome,
        now: Timestamp,
    ) {
        let (outcome, error) = match outcome {
            JobOutcome::Completed { result } => match self.too_large(result) {
                Some(error) => (RunOutcome::Failed, error),
                None => return,
            },
            JobOutcome::Failed { error } => (RunOutcome::Failed, error.clone()),
            JobOutcome::Throttled { .. } => (RunOutcome::Throttled, String::new()),
            JobOutcome::Retry { error, .. } => (RunOutcome::Retry, error.clone()),
            JobOutcome::Released => return,
        };
        self.record_run(slot, lease, outcome, error, now);
    }

    /// The recorded runs of a job.
    pub(super) fn runs_of(&self, slot: Slot) -> u32 {
        self.runs.get(&slot).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_is_cut_at_a_character() {
        let text = "é".repeat(200);
        let kept = Progress { percent: 180, text }.bounded();
        assert_eq!(kept.percent, 100);
        assert_eq!(kept.text.len(), MAX_PROGRESS_BYTES);
    }
}
