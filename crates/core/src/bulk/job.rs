//! The part of a job kept in memory: its position and its counters. Its id and payload are on disk.

use std::fmt;

use super::command::{DeathReason, DelayReason, Fence, JobSeq, Priority};
use super::list::{Links, Slot};
use crate::ids::{JobType, QueueId};
use crate::time::{Millis, Timestamp};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    Waiting,
    Ready,
    Running,
    Delayed,
    Completed,
    Dead,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Waiting => "WAITING",
            JobState::Ready => "READY",
            JobState::Running => "RUNNING",
            JobState::Delayed => "DELAYED",
            JobState::Completed => "COMPLETED",
            JobState::Dead => "DEAD",
        })
    }
}

impl JobState {
    pub fn is_finished(self) -> bool {
        matches!(self, JobState::Completed | JobState::Dead)
    }
}

/// The list that the queue links of a job belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spot {
    Nowhere,
    /// Back at the head of its flow: a retry, or a scheduled job that became due.
    Returned,
    /// Denied by a spent window (`hold = "job"`); goes before fresh jobs.
    Throttled,
    Fresh,
    /// Out of its flow because its batch is paused.
    Parked,
    Ready,
    /// Finished, in the order of finishing.
    Finished,
}

#[derive(Debug, Clone)]
pub(super) struct Job {
    /// Of group and job id; see [`super::Bulk::fingerprint`].
    pub(super) fingerprint: u128,
    pub(super) seq: JobSeq,
    /// The fencing token of the latest lease.
    pub(super) fence: Fence,
    /// Due time when delayed, admission time when ready, deadline when running, end time when finished.
    pub(super) at: Timestamp,
    pub(super) links: [Links; 2],
    /// Its flow; meaningless once finished.
    pub(super) flow: Slot,
    pub(super) batch: Slot,
    /// When the job was accepted, in whole seconds to save memory.
    pub(super) created: u32,
    pub(super) kind: u16,
    pub(super) priority: Priority,
    pub(super) attempts: u16,
    pub(super) throttles: u16,
    pub(super) state: JobState,
    pub(super) spot: Spot,
    pub(super) delay: DelayReason,
    pub(super) death: DeathReason,
    /// Has an entry in the expiry index.
    pub(super) expires: bool,
}

impl Job {
    /// Converts a time to the unit of [`Job::created`]; valid until 2106.
    pub(super) fn whole_seconds(at: Timestamp) -> u32 {
        u32::try_from(at.0 / 1_000).unwrap_or(u32::MAX)
    }
}

/// A job type with its settings resolved.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) name: JobType,
    pub(super) queue: u16,
    pub(super) max_retries: u32,
    pub(super) timeout: Millis,
    pub(super) backoff: Millis,
    pub(super) max_backoff: Millis,
}

impl Kind {
    /// `backoff × 2^failures`, capped.
    pub(super) fn retry_backoff(&self, failures: u32) -> Millis {
        let factor = 1u64.checked_shl(failures).unwrap_or(u64::MAX);
        Millis(self.backoff.0.saturating_mul(factor)).min(self.max_backoff)
    }
}

/// The queue of job types that name none.
pub fn default_queue() -> QueueId {
    QueueId::new("default").expect("a constant within the limits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_takes_eighty_bytes() {
        assert_eq!(size_of::<Job>(), 80, "a million of them are in memory at once");
    }

    #[test]
    fn a_time_beyond_the_last_second_is_the_last_second() {
        assert_eq!(Job::whole_seconds(Timestamp(1_999)), 1);
        assert_eq!(Job::whole_seconds(Timestamp(u64::MAX)), u32::MAX);
    }
}
