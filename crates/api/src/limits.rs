//! The rates, and their change at run time.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::Time;

/// The rates that hold now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Starts per second of the whole system.
    pub global_rps: f64,
    /// The same as configured.
    pub configured_global_rps: f64,
    /// Starts in one window.
    pub limit_per_window: u64,
    /// How long a window lasts.
    pub window_ms: u64,
    /// Queues whose rate somebody changed at run time.
    pub queues: Vec<QueueRate>,
    /// The latest changes, the newest last.
    pub changes: Vec<LimitChange>,
}

/// The rate of one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueRate {
    pub queue: String,
    /// Starts per second.
    pub rps: f64,
}

/// A change of a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitChange {
    pub at: Time,
    /// The name of the key.
    pub by: String,
    /// The reason that it gave.
    pub why: String,
    /// The queue; absent for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    pub from_rps: f64,
    pub to_rps: f64,
}

/// Rates to change. They hold until somebody changes them again, also after a restart. `null` restores the configured
/// rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchLimits {
    /// Starts per second of the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "given")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub global_rps: Option<Option<f64>>,
    /// Starts per second of single queues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, Option<f64>>))]
    pub queues: BTreeMap<String, Option<f64>>,
    /// The reason, kept with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Tells an absent value from a null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
