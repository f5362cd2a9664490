//! Records: cached data in front of a limited API, and requests to refresh them.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// How good the data of a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Freshness {
    /// The upstream confirmed it within its tier's time.
    Fresh,
    /// There is data, but it is older than that.
    Stale,
    /// There is no data yet; a refresh is on its way.
    Updating,
    /// The upstream says that the record does not exist.
    NotFound,
    /// There is no data, and no refresh could be queued. Try again later.
    Unavailable,
}

/// How the last refresh went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UpdateState {
    /// It succeeded.
    Success,
    /// It has not finished yet.
    Pending,
    /// It failed, and the service tries again.
    Retrying,
    /// It failed for good; see `why`.
    Failed,
}

/// How often the service refreshes a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Tier {
    Hot,
    Warm,
    Cold,
}

/// What delays a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HoldCode {
    /// The upstream said that the record does not exist. The service asks again at `until`.
    Absent,
    /// The last refresh failed for good. The service tries again at `until` at the earliest.
    Failed,
    /// The last refresh failed. The service tries again at `until`.
    Retry,
    /// The provider asked for no calls until then.
    TargetHeld,
    /// The day's calls are used up until then.
    DayUsedUp,
    /// No refresh could be queued, because the store or the log is unavailable. Try again later.
    NotQueued,
    /// The service did not learn in time whether a refresh is queued.
    NotKnown,
}

/// Why a refresh is delayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    pub code: HoldCode,
    /// The same in words.
    pub detail: String,
    /// Until when.
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
    pub source: String,
    pub key: String,
    pub freshness: Freshness,
    /// When the data last changed; null if there is none.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_updated_at: Option<Time>,
    /// When the upstream last confirmed the data; null if never.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub last_checked_at: Option<Time>,
    /// Whether a refresh certainly is on its way.
    pub update_queued: bool,
    /// How long the refresh on its way should take; null if there is none or nobody can tell.
    #[cfg_attr(feature = "openapi", schema(required))]
    pub estimated_wait_ms: Option<u64>,
    /// The version of the last refresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    pub state: UpdateState,
    pub tier: Tier,
    /// What delays a refresh, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Hold>,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        // Everything but the data, which knows no equality of its own.
        let told = |record: &Record| {
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
        told(self) == told(other) && text(self) == text(other)
    }
}

/// Names one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordName {
    /// The source in the configuration.
    pub source: String,
    /// Unique within its source.
    pub key: String,
}

/// Records to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadRecords {
    /// At most 1,000 records.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub records: Vec<RecordName>,
}

/// One of several records: the record, or why the service could not read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadRecord {
    pub source: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// Why the service could not read it.
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

/// What a request for a refresh did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefreshOutcome {
    /// A refresh is on its way.
    Published,
    /// A refresh was on its way, and now has high priority.
    Upgraded,
    /// A refresh was on its way already.
    AlreadyProcessing,
    /// A refresh finished a moment ago.
    JustRefreshed,
}

/// A requested refresh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshRequested {
    pub source: String,
    pub key: String,
    pub outcome: RefreshOutcome,
    /// The refresh's version. Stream the record's events with it to see the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The service's time of the request.
    pub requested_at: Time,
}

/// Where records of one kind come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Source {
    pub name: String,
    /// The budget that pays for its calls.
    pub budget: String,
    /// Scheme and host of its addresses.
    pub address: String,
    /// The fields that the service keeps of an answer.
    pub fields: Vec<String>,
    /// Part of every hash: a new number refreshes all records.
    pub projection_version: u32,
    /// Whether the service refreshes records before somebody asks.
    pub prefetch: bool,
    /// How long a hot record is fresh.
    pub hot_fresh_ms: u64,
    /// How long a warm record is fresh.
    pub warm_fresh_ms: u64,
    /// How long a cold record is fresh.
    pub cold_fresh_ms: u64,
}
