//! Records, refresh requests, and the state of the refresh module.

mod record;
mod status;

pub use record::{
    Freshness, Hold, HoldCode, ReadRecord, ReadRecords, Record, RecordName, RecordProblem, RecordsRead,
    RefreshOutcome, RefreshRequested, Source, Tier, UpdateState,
};
pub use status::{
    BreakerState, BudgetSeen, BudgetState, ByPriority, DeadLetter, DeadLetterHandled, DeadLetterHandling,
    DeadLetterName, DeadLetterSelection, FailureReason, FreshnessCounts, HoldLifted, LagState,
    RefreshBreakers, RefreshCounters, RefreshLag, RefreshOverview, RefreshRole,
};
