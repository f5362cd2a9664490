//! Records: cached data in front of a limited API, and requests to refresh them. Names are in camelCase here.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// How good an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Freshness {
    /// Checked within the time that holds for it.
    Fresh,
    /// Data, but older than that.
    Stale,
    /// No data yet; a refresh is on its way.
    Updating,
    /// The upstream says that there is no such record.
    NotFound,
    /// No data, and no refresh could be queued: ask again later.
    Unavailable,
}

/// How the last refresh went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UpdateState {
    Success,
    /// Nothing has come of it yet.
    Pending,
    /// It failed and is tried again.
    Retrying,
    /// It failed for good; see `why`.
    Failed,
}

/// How often a record is refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Tier {
    Hot,
    Warm,
    Cold,
}

/// What holds a refresh up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HoldCode {
    /// The upstream said that there is no such record; it is not asked again before `until`.
    Absent,
    /// The last refresh failed for good; it is not tried again before `until`.
    Failed,
    /// The last refresh failed and is tried again at `until`.
    Retry,
    /// The upstream asked to be left alone until then.
    TargetHeld,
    /// The day's calls are used up until then.
    DayUsedUp,
    /// A refresh could not be queued: store or log are away. Ask again later.
    NotQueued,
    /// Whether a refresh is queued was not heard in time.
    NotKnown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    pub code: HoldCode,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A record as it is known.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The stored projection, any JSON; null if there is none.
    // The first field: the service puts the stored text in its place without reading it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub snapshot: Option<Box<RawValue>>,
    pub source: String,
    pub key: String,
    pub freshness: Freshness,
    /// When the data last changed.
    pub last_updated_at: Option<Time>,
    /// When the upstream last said how it stands.
    pub last_checked_at: Option<Time>,
    /// True only if a refresh certainly is on its way.
    pub update_queued: bool,
    /// How long a refresh that is on its way takes, if that can be said.
    pub estimated_wait_ms: Option<u64>,
    /// Of the refresh that checked it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    pub state: UpdateState,
    pub tier: Tier,
    /// What holds a refresh up, if anything does.
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

/// Which record is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordName {
    pub source: String,
    pub key: String,
}

/// Records to be read at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadRecords {
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub records: Vec<RecordName>,
}

/// What came of reading one of several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReadRecord {
    pub source: String,
    pub key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<Record>,
    /// Why it could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<RecordProblem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordProblem {
    pub code: String,
    pub detail: String,
}

/// One answer for each, in their order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecordsRead {
    pub records: Vec<ReadRecord>,
}

/// What came of asking for a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefreshOutcome {
    /// It is on its way.
    Published,
    /// One that nobody waited for goes first now.
    Upgraded,
    /// One was on its way already.
    AlreadyProcessing,
    /// One was finished while this was asked.
    JustRefreshed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefreshRequested {
    pub source: String,
    pub key: String,
    pub outcome: RefreshOutcome,
    /// Of the refresh that is on its way: follow the record up to it to see the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The service's time when it was asked.
    pub requested_at: Time,
}

/// Where records of one kind come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Source {
    pub name: String,
    /// The budget that its calls are taken from.
    pub budget: String,
    /// Scheme and host of its addresses.
    pub address: String,
    /// What is kept of an answer.
    pub fields: Vec<String>,
    /// Part of every hash.
    pub projection_version: u32,
    pub prefetch: bool,
    /// How long its records are fresh, in milliseconds.
    pub hot_fresh_ms: u64,
    pub warm_fresh_ms: u64,
    pub cold_fresh_ms: u64,
}
