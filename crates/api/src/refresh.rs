//! The refresh part as a whole, and its dead letters. Names are in camelCase here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// The refresh part at this moment. What is away is told as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshOverview {
    pub at: Time,
    /// What this process does: `query`, `work`, `plan`.
    pub roles: Vec<String>,
    /// False while the store of the budgets does not answer.
    pub store_available: bool,
    pub budgets: Vec<BudgetState>,
    pub lag: RefreshLag,
    pub breakers: RefreshBreakers,
    /// How fresh the records of each source were when they were last counted.
    pub freshness: BTreeMap<String, FreshnessCounts>,
    pub counters: RefreshCounters,
}

/// The budget of one provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    pub name: String,
    /// Calls per second that are handed out, and those that the provider allows.
    pub rate: u64,
    pub hard_limit: u64,
    /// Most tokens that lie ready, in all and for LOW.
    #[serde(default)]
    pub burst: u64,
    #[serde(default)]
    pub low_burst: u64,
    /// Calls per second that LOW gets at most.
    #[serde(default)]
    pub low_cap: u64,
    /// Calls per day; 0 = unlimited.
    pub per_day: u64,
    /// Of those, calls that LOW leaves for HIGH.
    #[serde(default)]
    pub day_reserve: u64,
    /// As it was last seen; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<BudgetSeen>,
}

/// A provider is called again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HoldLifted {
    pub target: String,
    /// False if it had not asked to be left alone, or that was over.
    pub was_held: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetSeen {
    pub at: Time,
    /// Calls per second that all processes together took since the look before, about a second ago; absent before the
    /// second look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<f64>,
    /// What lies ready, in all and of that for LOW.
    pub tokens: u64,
    pub low_tokens: u64,
    pub day_used: u64,
    /// What the day still has for each priority.
    pub day_left_high: u64,
    pub day_left_low: u64,
    pub day_ends: Time,
    /// The provider asked to be left alone until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshLag {
    pub high: LagState,
    pub low: LagState,
    /// Dead letters that are kept.
    pub dead: u64,
    /// LOW stands back for HIGH.
    pub low_paused: bool,
    /// When it was looked at; absent before the first look that worked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LagState {
    /// Events that wait.
    pub records: u64,
    /// Age of the oldest, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Events per second that come to their end, over the last minute.
    pub rate: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshBreakers {
    pub store: BreakerState,
    pub database: BreakerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FreshnessCounts {
    pub fresh: u64,
    pub stale: u64,
    /// Known, but never fetched.
    pub missing: u64,
    pub retrying: u64,
    pub failed: u64,
    pub counted_at: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ByPriority {
    pub high: u64,
    pub low: u64,
}

/// What this process has done since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshCounters {
    pub reads: u64,
    pub cache_hits: u64,
    pub read_errors: u64,
    pub published: ByPriority,
    pub upgraded: u64,
    pub coalesced: u64,
    pub just_refreshed: u64,
    pub asks_refused: u64,
    pub send_failed: u64,
    pub tokens_acquired: ByPriority,
    pub tokens_rejected: ByPriority,
    pub attempts: ByPriority,
    pub settled: ByPriority,
    pub updated: u64,
    pub unchanged: u64,
    pub superseded: u64,
    pub obsolete: u64,
    pub throttled: u64,
    pub parked: u64,
    pub retried: u64,
    pub conflicts: u64,
    pub prefetched: u64,
    pub due_retries: u64,
    pub dead_letters: u64,
    pub replayed: u64,
    /// Events that failed, by reason.
    pub failures: BTreeMap<String, u64>,
}

/// Why an event is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureReason {
    #[serde(rename = "API_5XX")]
    Api5xx,
    #[serde(rename = "API_4XX")]
    Api4xx,
    ParseError,
    TooLarge,
    Timeout,
    Redirected,
    UnknownSource,
}

/// An event that was given up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Where it is: its partition and its place in it.
    pub position: String,
    pub written_at: Time,
    /// Absent if the dead letter itself cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The error's causes, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack_trace: Vec<String>,
    #[serde(default)]
    pub retry_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The event as it was, any JSON; absent if it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub original_event: Option<Box<RawValue>>,
    /// The bytes of an event that could not be read, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_event: Option<String>,
    /// What was done with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<DeadLetterHandled>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterHandled {
    pub how: DeadLetterHandling,
    pub at: Time,
    pub by: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeadLetterHandling {
    Replayed,
    Purged,
}

/// Which dead letters are meant: those named in `positions`, or all that the rest matches. An empty selection is
/// refused; `all` says that every one is meant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterSelection {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub positions: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Kept in the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLettersDone {
    /// Replayed or purged.
    pub dead_letters: u64,
    pub skipped: u64,
    /// The first that were skipped, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DeadLetterSkipped>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSkipped {
    pub position: String,
    pub code: String,
    pub detail: String,
}
