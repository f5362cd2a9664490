//! Why the state machine rejects a request, or one job of it. A refusal is an outcome: nothing was changed.

use serde::{Deserialize, Serialize};

use super::change_jobs::JobCommandKind;
use super::job::JobState;
use crate::ids::{BatchId, GroupId, JobId, JobType, QueueId};
use crate::time::Timestamp;

/// Why a request was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("group {0:?} is unknown")]
    UnknownGroup(GroupId),
    #[error("group {group:?} has no batch {batch:?}")]
    UnknownBatch { group: GroupId, batch: BatchId },
    #[error("group {group:?} has no job {job:?}")]
    UnknownJob { group: GroupId, job: JobId },
    #[error("group {0:?} has no open batch")]
    NoOpenBatch(GroupId),
    #[error("batch {0:?} is sealed: it takes no more jobs")]
    Sealed(BatchId),
    #[error("batch {0:?} is cancelled")]
    Cancelled(BatchId),
    #[error("batch {0:?} exists and is finished; its id is free again when its data is dropped")]
    BatchFinished(BatchId),
    #[error("{len} jobs in one call; at most {max} are allowed")]
    TooManyJobs { len: u64, max: u64 },
    #[error("base_priority {0} is out of range; it may be from -6000000 to 6000000")]
    BasePriority(i32),
    #[error("failure_threshold_percent {0} is out of range; it may be from 1 to 100")]
    FailureThreshold(u32),
    #[error("the callback's name has {len} bytes; it may have from 1 to {max}")]
    CallbackName { len: u64, max: u64 },
    #[error("{what} = 0: it must be at least 1")]
    ZeroLimit { what: String },
    #[error("a group may have limits of its own in at most {max} queues")]
    TooManyQueuesOfGroup { max: u64 },
    #[error("{what} = {value}: {right}")]
    Rate {
        what: String,
        value: String,
        right: String,
    },
    #[error(
        "{what} cannot be limited: the store has {shards} shards, and only one that has one shard counts running jobs exactly"
    )]
    NotWithShards { what: String, shards: u32 },
    #[error("queue {0:?} is named twice; name it once")]
    QueueTwice(QueueId),
    #[error("more than {max} queues would have limits set at run time; reset some, or configure them")]
    TooManyQueues { max: u64 },
    #[error("{what} has {len} bytes; at most {max} are allowed")]
    TextTooLong { what: String, len: u64, max: u64 },
    #[error("job {0:?} is not dead: only dead jobs are replayed or purged")]
    NotDead(JobId),
    #[error("job {job:?} is {state}: it cannot be {command}; {}", JobCommandKind::possible(*.state))]
    WrongState {
        job: JobId,
        state: JobState,
        command: JobCommandKind,
    },
    #[error("job {job:?} expires at {expires_at:?}, before it could start; choose an earlier time")]
    ExpiresBefore { job: JobId, expires_at: Timestamp },
    #[error("batch {0:?} keeps its results until it is decided: its dead jobs can be purged after that")]
    ResultsKept(BatchId),
    #[error("the aggregation of {0:?} belongs to another claim")]
    ClaimLost(BatchId),
    #[error("what the cursor pointed at has been dropped; start the listing again")]
    CursorLost,
}

/// Why one job of a call was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum JobRefusal {
    #[error("the payload has {len} bytes; at most {max} are allowed")]
    PayloadTooLarge { len: u64, max: u64 },
    #[error("job type {0:?} is not configured, and limits.known_job_types_only is set")]
    UnknownType(JobType),
    #[error("job type {0:?} would be one too many; at most 65535 types are kept")]
    TooManyTypes(JobType),
    #[error("the store holds {max} unfinished jobs, its limit")]
    Full { max: u64 },
    #[error("the group has {max} unfinished jobs, the limit of one group")]
    GroupFull { max: u64 },
    #[error("the cost is {cost}; it must be from 1 to {max}")]
    Cost { cost: u32, max: u32 },
    #[error("the job expires at {expires_at:?}, before it could run")]
    AlreadyExpired { expires_at: Timestamp },
}
