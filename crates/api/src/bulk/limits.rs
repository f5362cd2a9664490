//! Limits, and their changes at run time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Nullable;

use crate::Time;

/// The limits in effect.
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
    /// Whether queues follow what their downstream sustains.
    pub adaptive: bool,
    /// Queues whose limits somebody changed at run time.
    pub queues: Vec<QueueLimits>,
    /// The latest changes, the newest last.
    pub changes: Vec<LimitChange>,
}

/// The limits of one queue that somebody changed at run time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueLimits {
    /// The name of the queue.
    pub queue: String,
    /// Job starts per second; absent if it is the configured rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps: Option<f64>,
    /// Jobs that run concurrently, over all processes; absent if it is the configured number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
}

/// A limit that can be changed at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LimitSetting {
    /// Job starts per second.
    Rps,
    /// Jobs that run concurrently.
    MaxRunning,
    /// Whether queues follow what their downstream sustains: 1 or 0.
    Adaptive,
}

/// A change of a limit.
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
    /// What changed.
    pub setting: LimitSetting,
    /// The value before the change; absent if there was no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<f64>,
    /// The value after the change; absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<f64>,
}

/// Limits to change. They hold until somebody changes them again, also after a restart. `null` restores
/// the configured value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchLimits {
    /// Job starts per second of the whole system.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub global_rps: Nullable<f64>,
    /// Whether queues follow what their downstream sustains.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    pub adaptive: Nullable<bool>,
    /// Limits of single queues.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, PatchQueueLimits>,
    /// The reason, which the service keeps with the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Limits of one queue to change. `null` restores the configured value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchQueueLimits {
    /// Job starts per second.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<f64>))]
    pub rps: Nullable<f64>,
    /// Jobs that run concurrently, over all processes.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub max_running: Nullable<u32>,
}

impl PatchQueueLimits {
    /// Restores everything that is configured.
    pub const RESET: Self = Self {
        rps: Nullable::Null,
        max_running: Nullable::Null,
    };
}
