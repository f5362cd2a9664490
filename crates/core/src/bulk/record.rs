//! What a store keeps of the state machine: records, and the changes that each command makes to them.
//!
//! The state machine emits [`Change`]s; a store writes them in order and can later rebuild the state
//! machine from the records that remain (see [`super::restore`]). Fair tags, window counts, throttle
//! statistics and history are not kept: after a restart all waiting groups stand equal and the running
//! window counts as spent.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::command::{
    ActionCounts, ActionOptions, ActionStatus, Ceilings, DeathReason, DelayReason, Fence, JobSeq, LeaseRef,
    Level,
};
pub use super::limits::LimitsRecord;
use crate::ids::{ActionId, GroupId, JobId, JobType};
use crate::time::Timestamp;

/// The number of a group in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GroupSeq(pub u64);

/// The number of an action in its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ActionSeq(pub u64);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupRecord {
    pub seq: GroupSeq,
    pub id: GroupId,
    pub base_priority: i32,
    pub paused: bool,
    pub ceilings: Ceilings,
    pub created_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActionRecord {
    pub seq: ActionSeq,
    pub group: GroupSeq,
    pub id: ActionId,
    pub options: ActionOptions,
    pub status: ActionStatus,
    pub sealed: bool,
    pub paused: bool,
    pub cancelled: bool,
    /// Opened by an enqueue that named no action.
    pub implicit: bool,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// While jobs count: those that are no longer kept (those of kept jobs follow from their states).
    /// From AGGREGATING on: all, for good.
    pub counts: ActionCounts,
    pub errors: Vec<String>,
    #[serde(with = "super::readable::option")]
    pub summary: Option<Bytes>,
    pub confirmed: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    pub seq: JobSeq,
    pub action: ActionSeq,
    pub id: JobId,
    pub kind: JobType,
    pub level: Level,
    pub created_at: Timestamp,
    pub run_at: Option<Timestamp>,
    pub expires_at: Option<Timestamp>,
    #[serde(with = "super::readable")]
    pub payload: Bytes,
}

/// The part of a job that changes. A job without one is waiting for its first start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobState {
    pub attempts: u16,
    pub throttles: u16,
    pub fence: Fence,
    /// The job's `expires_at` still applies; a replay lifts it.
    pub expires: bool,
    pub phase: StoredPhase,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StoredPhase {
    Waiting,
    Delayed {
        due: Timestamp,
        reason: DelayReason,
    },
    Done {
        at: Timestamp,
        #[serde(with = "super::readable")]
        result: Bytes,
    },
    Dead {
        at: Timestamp,
        reason: DeathReason,
        error: String,
    },
}

/// One write that a command asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    PutGroup(GroupRecord),
    DropGroup(GroupSeq),
    PutAction(ActionRecord),
    DropAction(ActionSeq),
    AddJob(JobRecord),
    PutState(JobSeq, JobState),
    /// Leases handed out by one command. May be written lazily: whoever rebuilds from records gives out
    /// larger fences than before.
    AddLeases(Vec<LeaseRef>),
    DropJob(JobSeq),
    /// The rates that were set at run time, all of them.
    PutLimits(LimitsRecord),
}
