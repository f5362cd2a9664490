//! What a store persists of the state machine: records, and the changes that each command makes to them.
//!
//! The state machine emits [`Change`]s. A store writes them in order and can later rebuild the state machine
//! from the records that remain (see [`super::restore`]). Fair tags, window counts, throttle statistics and
//! history are not persisted: after a restart all waiting groups are equal and the running window counts as
//! spent.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::command::{
    BatchCounts, BatchOptions, BatchStatus, DeathReason, DelayReason, Fence, GroupLimits, JobSeq, LeaseRef,
    Priority,
};
pub use super::limits::LimitsRecord;
pub use super::run::{Progress, RUNS_KEPT, RunOutcome, RunRecord};
use crate::ids::{BatchId, GroupId, JobId, JobType, Owner};
use crate::time::Timestamp;

/// The sequence number of a group in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupSeq(pub u64);

/// The sequence number of a batch in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchSeq(pub u64);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRecord {
    pub seq: GroupSeq,
    pub id: GroupId,
    pub base_priority: i32,
    pub paused: bool,
    pub limits: GroupLimits,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchRecord {
    pub seq: BatchSeq,
    pub group: GroupSeq,
    pub id: BatchId,
    pub options: BatchOptions,
    pub status: BatchStatus,
    pub sealed: bool,
    pub paused: bool,
    pub cancelled: bool,
    /// A cancellation ends the jobs of the batch whose fence is smaller.
    #[serde(default)]
    pub cancel_fence: Fence,
    /// Opened by an enqueue that named no batch.
    pub implicit: bool,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// While the batch is open: counts of jobs the store no longer keeps (those of kept jobs follow from their
    /// states). From AGGREGATING on: the final counts of all jobs.
    pub counts: BatchCounts,
    pub errors: Vec<String>,
    #[serde(with = "super::readable::option")]
    pub summary: Option<Bytes>,
    pub confirmed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRecord {
    pub seq: JobSeq,
    pub batch: BatchSeq,
    pub id: JobId,
    pub kind: JobType,
    pub priority: Priority,
    pub created_at: Timestamp,
    pub run_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    #[serde(default = "one")]
    pub cost: u32,
    #[serde(with = "super::readable")]
    pub payload: Bytes,
}

fn one() -> u32 {
    1
}

/// Fingerprints of jobs that were dropped before their batch was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RememberedRecord {
    /// The first of them; names the record.
    pub first: JobSeq,
    pub batch: BatchSeq,
    pub fingerprints: Vec<u128>,
}

/// The mutable part of a job. A job without one is waiting for its first start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobProgress {
    pub attempts: u16,
    pub throttles: u16,
    /// Runs of which there is a [`RunRecord`], or was one before there were too many.
    #[serde(default)]
    pub runs: u32,
    pub fence: Fence,
    /// Its priority, which may differ from that of its record.
    pub priority: Priority,
    /// It was cancelled while it ran: it does not start again.
    #[serde(default)]
    pub cancelled: bool,
    /// Whether the job's `expires_at` still applies; a replay lifts it.
    pub expires: bool,
    pub state: StoredState,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", rename_all_fields = "camelCase")]
pub enum StoredState {
    Waiting,
    Delayed {
        due: Timestamp,
        reason: DelayReason,
    },
    Completed {
        at: Timestamp,
        /// The run that completed it.
        #[serde(default)]
        started_at: Option<Timestamp>,
        worker: Owner,
        #[serde(with = "super::readable")]
        result: Bytes,
    },
    Dead {
        at: Timestamp,
        reason: DeathReason,
        error: String,
    },
}

/// One write that a command requires.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    PutGroup(GroupRecord),
    DropGroup(GroupSeq),
    PutBatch(BatchRecord),
    DropBatch(BatchSeq),
    AddJob(JobRecord),
    PutState(JobSeq, JobProgress),
    /// Leases granted by one command. A store may write them lazily: a rebuilt state machine issues larger
    /// fencing tokens than before.
    AddLeases(Vec<LeaseRef>),
    DropJob(JobSeq),
    /// A run has ended that did not complete the job.
    AddRun(JobSeq, RunRecord),
    /// The runs of a job that was dropped: so many were recorded.
    DropRuns(JobSeq, u32),
    /// Jobs of an undecided batch that were dropped but are still duplicates.
    Remember(RememberedRecord),
    /// Records of such jobs that nobody needs any more.
    Forget(Vec<JobSeq>),
    /// All limits set at run time.
    PutLimits(LimitsRecord),
}
