//! Rate limits, and their changes at run time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Nullable;

use crate::Time;

/// The rate limits in effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Job starts per second of the whole system.
    pub global_rps: f64,
    /// Job starts per second of the whole system that the configuration sets.
    pub configured_global_rps: f64,
    /// Job starts of the whole system per window.
    pub limit_per_window: u64,
    /// The length of a window, in milliseconds.
    pub window_ms: u64,
    /// Queues whose rate somebody changed at run time.
    pub queues: Vec<QueueRate>,
    /// The latest changes, the newest last.
    pub changes: Vec<LimitChange>,
}

/// The rate limit of one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueRate {
    /// The name of the queue.
    pub queue: String,
    /// Job starts per second.
    pub rps: f64,
}

/// A change of a rate limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LimitChange {
    /// When the change took effect.
    pub at: Time,
    /// The name of the API key that made the change.
    pub by: String,
    /// The reason that the caller gave.
    pub why: String,
    /// The queue; absent for the whole system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Job starts per second before the change.
    pub from_rps: f64,
    /// Job starts per second after the change.
    pub to_rps: f64,
}

/// Rate limits to change. They hold until somebody changes them again, also after a restart. `null` restores
/// the configured rate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchLimits {
    /// Job starts per second of the whole system.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub global_rps: Nullable<f64>,
    /// Job starts per second of single queues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = std::collections::BTreeMap<String, Option<f64>>))]
    pub queues: BTreeMap<String, Option<f64>>,
    /// The reason, which the service keeps with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
