//! The rates, and their change at run time.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::Time;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Starts per second over the whole system.
    pub global_rps: f64,
    /// What the configuration says.
    pub configured_global_rps: f64,
    pub limit_per_window: u64,
    pub window_ms: u64,
    /// Queues whose rate was changed at run time.
    pub queues: Vec<QueueRate>,
    /// The latest changes, the newest last.
    pub changes: Vec<LimitChange>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueRate {
    pub queue: String,
    pub rps: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitChange {
    pub at: Time,
    pub by: String,
    pub why: String,
    /// Absent for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    pub from_rps: f64,
    pub to_rps: f64,
}

/// Changes rates until they are changed again; a restart keeps them. `null` goes back to the configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchLimits {
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub global_rps: Option<Option<f64>>,
    /// Rates of single queues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, Option<f64>>))]
    pub queues: BTreeMap<String, Option<f64>>,
    /// Kept beside the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Tells an absent value from a null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
