//! The refresh module as a whole, and its dead letters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// The state of the refresh module. What is unavailable is as the service last saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshOverview {
    pub at: Time,
    /// The roles of this process: `query`, `work`, `plan`.
    pub roles: Vec<String>,
    /// Whether the store of the budgets is available.
    pub store_available: bool,
    pub budgets: Vec<BudgetState>,
    /// How far the refresh events are behind.
    pub lag: RefreshLag,
    pub breakers: RefreshBreakers,
    /// How fresh the records of each source were at the last count.
    pub freshness: BTreeMap<String, FreshnessCounts>,
    /// What this process has done.
    pub counters: RefreshCounters,
}

/// The budget of one provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    pub name: String,
    /// Calls per second that the service makes at most.
    pub rate: u64,
    /// Calls per second that the provider allows.
    pub hard_limit: u64,
    /// The most tokens in stock.
    #[serde(default)]
    pub burst: u64,
    /// The most of them for low priority.
    #[serde(default)]
    pub low_burst: u64,
    /// Calls per second that low priority gets at most.
    #[serde(default)]
    pub low_cap: u64,
    /// Calls per day; 0 is unlimited.
    pub per_day: u64,
    /// Calls per day that only high priority may use.
    #[serde(default)]
    pub day_reserve: u64,
    /// The budget as the service last saw it; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<BudgetSeen>,
}

/// A lifted hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HoldLifted {
    /// The target's name.
    pub target: String,
    /// Whether the provider was on hold.
    pub was_held: bool,
}

/// A budget at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetSeen {
    pub at: Time,
    /// Calls per second of all processes since the sample before, about a second earlier. Absent in the first sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<f64>,
    /// Tokens in stock.
    pub tokens: u64,
    /// The part of them that low priority may take.
    pub low_tokens: u64,
    /// The day's calls so far.
    pub day_used: u64,
    /// Calls that the day has left for high priority.
    pub day_left_high: u64,
    /// Calls that the day has left for low priority.
    pub day_left_low: u64,
    /// When the provider's day ends.
    pub day_ends: Time,
    /// The provider asked for no calls until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Time>,
}

/// How far the refresh events are behind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshLag {
    pub high: LagState,
    pub low: LagState,
    /// Dead letters that the service keeps.
    pub dead: u64,
    /// Whether low priority yields to high priority.
    pub low_paused: bool,
    /// When the service last measured it; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_at: Option<Time>,
}

/// How far the events of one priority are behind.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LagState {
    /// Events that wait.
    pub records: u64,
    /// The age of the oldest event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Events per second that finished, over the last minute.
    pub rate: f64,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    Closed,
    Open,
    HalfOpen,
}

/// The circuit breakers of the refresh module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshBreakers {
    pub store: BreakerState,
    pub database: BreakerState,
}

/// Records of a source by freshness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FreshnessCounts {
    pub fresh: u64,
    pub stale: u64,
    /// Records that are known and were never fetched.
    pub missing: u64,
    pub retrying: u64,
    pub failed: u64,
    pub counted_at: Time,
}

/// A count by priority.
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
    /// Failed events by reason.
    pub failures: BTreeMap<String, u64>,
}

/// Why a refresh event failed.
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

/// A refresh event that the service gave up.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Its position: the partition and the offset in it.
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
    /// The event, any JSON; absent if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub original_event: Option<Box<RawValue>>,
    /// The bytes of an event that cannot be read, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_event: Option<String>,
    /// Who replayed or purged it, and when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<DeadLetterHandled>,
}

/// What somebody did with a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterHandled {
    pub how: DeadLetterHandling,
    pub at: Time,
    /// The name of the key.
    pub by: String,
}

/// What somebody can do with a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeadLetterHandling {
    Replayed,
    Purged,
}

/// Which dead letters to take: the named `positions`, or all that match `source` and `reason`, or `all`. The service
/// refuses an empty selection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterSelection {
    /// These dead letters, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub positions: Option<Vec<String>>,
    /// Only dead letters of this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Only dead letters with this failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Every dead letter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a replay or purge of dead letters did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLettersDone {
    /// Dead letters that the service replayed or purged.
    pub dead_letters: u64,
    /// Dead letters that the service left alone.
    pub skipped: u64,
    /// The first skipped dead letters, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DeadLetterSkipped>,
}

/// A dead letter that the service left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterSkipped {
    pub position: String,
    /// The problem code.
    pub code: String,
    /// Why the service left it alone.
    pub detail: String,
}
