//! What goes over the wire: the requests and answers of the HTTP API, shared by server and client.
//!
//! Plain data with the names that users see. Nothing here decides anything, and nothing here knows the state
//! machine: the server translates. Times are RFC 3339 in UTC, durations are milliseconds, names are text of 1 to
//! 256 bytes, payloads and results are any JSON.

mod batch;
mod congestion;
mod dead;
mod group;
mod job;
mod lease;
mod limits;
mod open;
mod page;
mod problem;
mod record;
mod refresh;
mod room;
mod stats;
mod target;
mod time;
mod why;

pub use batch::{Batch, BatchCounts, BatchStatus, Cancelled, OpenBatch, Sealed};
pub use congestion::{Congestion, CongestionLevel, CongestionPoint, CongestionSummary};
pub use dead::{DeadDone, DeadSelection, JobName, Skipped};
pub use group::{Ceilings, Estimate, Group, GroupLimits, PatchGroup, Reason};
pub use job::{
    DeathReason, DelayReason, EnqueueJobs, Enqueued, Job, JobPriority, JobState, NewJob, RefusedJob,
    StateCounts,
};
pub use lease::{
    Extend, ExtendedLease, ExtendedLeases, JobOutcome, Lease, LeasedJob, LeasedJobs, Nothing, Settle,
    SettledAs, SettledJob, SettledJobs, Settlement,
};
pub use limits::{LimitChange, Limits, PatchLimits, QueueRate};
pub use open::{AuditEntry, Identity, Role};
pub use page::Page;
pub use problem::Problem;
pub use record::{
    Freshness, Hold, HoldCode, ReadRecord, ReadRecords, Record, RecordName, RecordProblem, RecordsRead,
    RefreshOutcome, RefreshRequested, Source, Tier, UpdateState,
};
pub use refresh::{
    BreakerState, BudgetSeen, BudgetState, ByPriority, DeadLetter, DeadLetterHandled, DeadLetterHandling,
    DeadLetterSelection, DeadLetterSkipped, DeadLettersDone, FailureReason, FreshnessCounts, HoldLifted,
    LagState, RefreshBreakers, RefreshCounters, RefreshLag, RefreshOverview,
};
pub use room::{
    CapacityChange, EtaRange, JoinRoom, LimitBy, Pass, PatchCapacity, RedeemPass, Room, RoomCapacity,
    RoomCommand, RoomCounts, RoomHistory, RoomSample, RoomStatus, Rooms, StreamClosed, StreamEnd, Ticket,
    TicketEnd, TicketState, Visit,
};
pub use serde_json::value::RawValue;
pub use stats::{OldestWait, Queue, Sample, Samples, Stats, StoreState, Workers};
pub use target::{Calls, LastFailure, Target, TargetState};
pub use time::{Time, TimeError};
pub use why::{WaitReason, Why};
