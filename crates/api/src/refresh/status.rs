//! The state of the refresh module, and its dead letters.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// What a process does for refreshes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefreshRole {
    /// It answers reads.
    Query,
    /// It calls providers.
    Work,
    /// It plans prefetches.
    Plan,
}

impl fmt::Display for RefreshRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Query => "query",
            Self::Work => "work",
            Self::Plan => "plan",
        })
    }
}

/// The state of the refresh module. The service reports an unavailable part as it last saw it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshOverview {
    /// When the service answered.
    pub at: Time,
    /// The roles of this process.
    pub roles: Vec<RefreshRole>,
    /// Whether the store of the budgets is available.
    pub store_available: bool,
    /// The budget of every target.
    pub budgets: Vec<BudgetState>,
    /// The backlog of refresh events.
    pub lag: RefreshLag,
    /// The circuit breakers of this process.
    pub breakers: RefreshBreakers,
    /// The freshness of each source's records at the last count, by name of the source.
    pub freshness: BTreeMap<String, FreshnessCounts>,
    /// Event counts of this process since it started.
    pub counters: RefreshCounters,
}

/// The call budget of one provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetState {
    /// The name of the target in the configuration.
    pub name: String,
    /// The most calls per second that the service makes.
    pub rate: u64,
    /// The most calls per second that the provider allows.
    pub hard_limit: u64,
    /// The most tokens that accumulate.
    #[serde(default)]
    pub burst: u64,
    /// The most tokens that accumulate for low priority.
    #[serde(default)]
    pub low_burst: u64,
    /// The most calls of low priority per second.
    #[serde(default)]
    pub low_cap: u64,
    /// The daily quota of calls; 0 is unlimited.
    pub per_day: u64,
    /// Calls of the daily quota that the budget reserves for high priority.
    #[serde(default)]
    pub day_reserve: u64,
    /// The budget's last sample; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<BudgetSeen>,
}

/// The result of lifting a hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HoldLifted {
    /// The name of the target.
    pub target: String,
    /// Whether the target was on hold.
    pub was_held: bool,
}

/// A sample of a budget.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BudgetSeen {
    /// When the service took the sample.
    pub at: Time,
    /// Calls per second of all processes since the previous sample, about a second earlier. Absent in the first
    /// sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<f64>,
    /// Tokens in the bucket.
    pub tokens: u64,
    /// Tokens that low priority may take.
    pub low_tokens: u64,
    /// Calls of the provider's current day.
    pub day_used: u64,
    /// Calls that the day has left for high priority.
    pub day_left_high: u64,
    /// Calls that the day has left for low priority.
    pub day_left_low: u64,
    /// When the provider's day ends.
    pub day_ends: Time,
    /// The time before which the provider asked for no calls; absent without a hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_until: Option<Time>,
}

/// The backlog of refresh events.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshLag {
    /// The backlog of high priority.
    pub high: LagState,
    /// The backlog of low priority.
    pub low: LagState,
    /// Dead letters that the service keeps.
    pub dead: u64,
    /// Whether low priority pauses in favour of high priority.
    pub low_paused: bool,
    /// When the service last measured the lag; absent before the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_at: Option<Time>,
}

/// The backlog of one priority.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LagState {
    /// Events that wait.
    pub records: u64,
    /// The age of the oldest event, in milliseconds; absent if none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_ms: Option<u64>,
    /// Events per second that finished, averaged over the last minute.
    pub rate: f64,
}

/// The state of a circuit breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// The breaker rejects calls, because too many recent ones failed or were slow.
    Open,
    /// A few probes pass and decide whether the breaker closes.
    HalfOpen,
}

/// The circuit breakers of the refresh module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshBreakers {
    /// The breaker of the store.
    pub store: BreakerState,
    /// The breaker of the snapshot database.
    pub database: BreakerState,
}

/// Records of a source by freshness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct FreshnessCounts {
    /// Records whose snapshot is fresh.
    pub fresh: u64,
    /// Records whose snapshot is stale.
    pub stale: u64,
    /// Known records without a snapshot.
    pub missing: u64,
    /// Records whose last refresh failed and that the service retries.
    pub retrying: u64,
    /// Records whose last refresh failed for good.
    pub failed: u64,
    /// When the service counted the records.
    pub counted_at: Time,
}

/// A count by priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ByPriority {
    /// The count of high priority.
    pub high: u64,
    /// The count of low priority.
    pub low: u64,
}

/// Event counts of this process since it started.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshCounters {
    /// Record reads.
    pub reads: u64,
    /// Reads that the service answered from memory.
    pub cache_hits: u64,
    /// Reads that the database did not answer in time.
    pub read_errors: u64,
    /// Refresh events that the service published.
    pub published: ByPriority,
    /// Published events of high priority that replaced a pending one of low priority.
    pub upgraded: u64,
    /// Requests that joined a pending refresh.
    pub coalesced: u64,
    /// Requests for a record whose refresh had just finished.
    pub just_refreshed: u64,
    /// Requests that the service could not queue: the queue was full, or the store or the log was unavailable.
    pub requests_refused: u64,
    /// Events that the log did not confirm.
    pub send_failed: u64,
    /// Tokens that callers received.
    pub tokens_acquired: ByPriority,
    /// Token requests that found the budget empty.
    pub tokens_rejected: ByPriority,
    /// Calls to upstreams, each with its own token.
    pub attempts: ByPriority,
    /// Events that reached a terminal state.
    pub settled: ByPriority,
    /// Snapshots that a refresh replaced.
    pub updated: u64,
    /// Snapshots that a refresh found unchanged.
    pub unchanged: u64,
    /// Upstream responses that a newer version had overtaken.
    pub superseded: u64,
    /// Obsolete events that workers skipped.
    pub obsolete: u64,
    /// Upstream responses that asked the service to wait.
    pub throttled: u64,
    /// Events that the service parked, because they would have waited too long.
    pub parked: u64,
    /// Attempts after the first one.
    pub retried: u64,
    /// Events whose record another worker was fetching.
    pub conflicts: u64,
    /// Records that the service prefetched.
    pub prefetched: u64,
    /// Records that the service requested again because their retry was due.
    pub due_retries: u64,
    /// Dead letters that the service wrote.
    pub dead_letters: u64,
    /// Dead letters that operators replayed.
    pub replayed: u64,
    /// Failed events by reason.
    pub failures: BTreeMap<String, u64>,
}

/// Why a refresh event failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FailureReason {
    /// The upstream failed (5xx) on every attempt.
    #[serde(rename = "API_5XX")]
    Api5xx,
    /// The upstream rejected the call (4xx other than 429).
    #[serde(rename = "API_4XX")]
    Api4xx,
    /// The event or the upstream's response is malformed.
    ParseError,
    /// The upstream's response exceeds the size limit.
    TooLarge,
    /// Every attempt timed out or lost its connection.
    Timeout,
    /// The upstream redirected the call, and the service does not follow redirects.
    Redirected,
    /// The event names a source that the configuration does not have.
    UnknownSource,
}

/// A refresh event that failed for good.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The position in the log: `<partition>-<offset>`.
    pub position: String,
    /// When the service wrote the dead letter.
    pub written_at: Time,
    /// Why the event failed; absent if the dead letter itself is malformed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<FailureReason>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The causes of the error, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack_trace: Vec<String>,
    /// Attempts after the first one.
    #[serde(default)]
    pub retry_count: u32,
    /// When the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Time>,
    /// The worker that made the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The source of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The key of the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The refresh event, any JSON; absent if it is malformed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub original_event: Option<Box<RawValue>>,
    /// The bytes of a malformed event, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_event: Option<String>,
    /// Who replayed or purged the dead letter, and when; absent while it is unhandled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handled: Option<DeadLetterHandled>,
}

/// The command that handled a dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterHandled {
    /// Whether the operator replayed or purged it.
    pub how: DeadLetterHandling,
    /// When the operator handled it.
    pub at: Time,
    /// The name of the operator's API key.
    pub by: String,
}

/// The way in which an operator handled a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeadLetterHandling {
    /// The operator requested a new refresh of the record.
    Replayed,
    /// The operator marked the dead letter as purged.
    Purged,
}

/// Selects dead letters: the named `positions`, or all that match `source` and `reason`, or `all`. The service
/// refuses an empty selection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadLetterSelection {
    /// Selects these dead letters, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub positions: Option<Vec<String>>,
    /// Selects only dead letters of this source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Selects only dead letters with this failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FailureReason>,
    /// Selects every dead letter.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The reason for the command, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The name of one dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterName {
    /// The position in the log: `<partition>-<offset>`.
    pub position: String,
}
