//! Records: cached data of a rate-limited API, and requests to refresh them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// The freshness of a record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Freshness {
    /// The upstream confirmed the data within the fresh time of its tier.
    Fresh,
    /// The data is older than that.
    Stale,
    /// There is no data yet, and a refresh is pending.
    Updating,
    /// The upstream reported that the record does not exist.
    NotFound,
    /// There is no data, and the service could not queue a refresh. Try again later.
    Unavailable,
}

/// The state of the last refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UpdateState {
    /// The refresh succeeded.
    Success,
    /// The refresh has not finished yet.
    Pending,
    /// The refresh failed, and the service retries.
    Retrying,
    /// The refresh failed for good; see `why`.
    Failed,
}

/// The activity class of a record, which decides how often the service refreshes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Tier {
    /// The record was active within the last day, unless the configuration sets another time.
    Hot,
    /// The record was active within the last 7 days, unless the configuration sets another time.
    Warm,
    /// The record was not active for longer, or never.
    Cold,
}

/// The cause that delays a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HoldCode {
    /// The upstream reported that the record does not exist. The service asks again at `until`.
    Absent,
    /// The last refresh failed for good. The service tries again at `until` at the earliest.
    Failed,
    /// The last refresh failed. The service tries again at `until`.
    Retry,
    /// The provider asked for no calls before `until`.
    TargetHeld,
    /// The daily quota of the provider is used up until `until`.
    DayUsedUp,
    /// The service could not queue a refresh, because the store or the log is unavailable. Try again later.
    NotQueued,
    /// In doubt: the log did not confirm in time whether a refresh is queued.
    NotKnown,
}

/// Why a refresh is delayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// The cause, for programs.
    pub code: HoldCode,
    /// The cause, for people.
    pub detail: String,
    /// When the delay ends; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A record as the service knows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The stored projection, any JSON; null if there is none.
    // The first field: the service puts the stored text in its place without reading it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>, required))]
    pub snapshot: Option<Box<RawValue>>,
    /// The source of the record.
    pub source: String,
    /// The key of the record, unique within its source.
    pub key: String,
    /// The freshness of the data.
    pub freshness: Freshness,
    /// When the data last changed; null if there is none.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_updated_at: Option<Time>,
    /// When the upstream last confirmed the data; null if never.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_checked_at: Option<Time>,
    /// Whether a refresh is certainly pending.
    pub update_queued: bool,
    /// The estimated time until the pending refresh finishes, in milliseconds; null if none is pending or there
    /// is no estimate.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub estimated_wait_ms: Option<u64>,
    /// The version of the refresh that last checked the snapshot; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The state of the last refresh.
    pub state: UpdateState,
    /// The activity class of the record.
    pub tier: Tier,
    /// The cause that delays a refresh, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Hold>,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        // All other fields: raw JSON has no equality of its own, so its text is compared below.
        let fields = |record: &Record| {
            (
                (record.source.clone(), record.key.clone(), record.freshness),
                (
                    record.last_updated_at,
                    record.last_checked_at,
                    record.update_queued,
                ),
                (record.estimated_wait_ms, record.version, record.state),
                (record.tier, record.why.clone()),
            )
        };
        let text = |record: &Record| record.snapshot.as_ref().map(|raw| raw.get().to_owned());
        fields(self) == fields(other) && text(self) == text(other)
    }
}

/// The name of one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordName {
    /// The name of the source in the configuration.
    pub source: String,
    /// The key of the record, unique within its source.
    pub key: String,
}

/// Records to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadRecords {
    /// The names of the records, at most 1,000.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub records: Vec<RecordName>,
}

/// One of several records: the record, or the problem that prevented the read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadRecord {
    /// The source of the record.
    pub source: String,
    /// The key of the record.
    pub key: String,
    /// The record; absent if the service could not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// Why the service could not read the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<RecordProblem>,
}

/// Why the service could not read a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordProblem {
    /// The problem code.
    pub code: String,
    /// What exactly is wrong.
    pub detail: String,
}

/// Several records.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordsRead {
    /// One entry per record, in the order of the request.
    pub records: Vec<ReadRecord>,
}

/// The outcome of a refresh request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefreshOutcome {
    /// The request queued a refresh.
    Published,
    /// A refresh was pending with low priority, and the request raised it to high.
    Upgraded,
    /// A refresh was pending already, and the request joined it.
    AlreadyProcessing,
    /// A refresh finished a moment ago.
    JustRefreshed,
}

/// The result of a refresh request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshRequested {
    /// The source of the record.
    pub source: String,
    /// The key of the record.
    pub key: String,
    /// The outcome of the request.
    pub outcome: RefreshOutcome,
    /// The version of the refresh. Stream the record's events with it to see the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// When the service received the request.
    pub requested_at: Time,
}

/// One kind of records, and the upstream they come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// The name of the source in the configuration.
    pub name: String,
    /// The budget that pays for its calls.
    pub budget: String,
    /// Scheme and host of the upstream.
    pub address: String,
    /// The fields of an upstream response that the snapshot keeps.
    pub fields: Vec<String>,
    /// The version of the projection, part of every snapshot hash: a new number refreshes all records.
    pub projection_version: u32,
    /// Whether the service refreshes records before anybody reads them.
    pub prefetch: bool,
    /// The time for which a hot record stays fresh, in milliseconds.
    pub hot_fresh_ms: u64,
    /// The time for which a warm record stays fresh, in milliseconds.
    pub warm_fresh_ms: u64,
    /// The time for which a cold record stays fresh, in milliseconds.
    pub cold_fresh_ms: u64,
}
