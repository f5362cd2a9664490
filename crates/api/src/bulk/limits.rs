//! Limits, and their changes at run time.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Nullable, Time};

/// A rate: so many starts per unit of time, such as `10/s`, `30/min`, `500/h` or `10000/day`. A bare number is per second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct Rate(pub String);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "a rate is a text like \"30/min\" or a number per second"
        )]
        enum Given {
            Text(String),
            PerSecond(f64),
        }
        Ok(Self(match Given::deserialize(deserializer)? {
            Given::Text(text) => text,
            Given::PerSecond(number) => format!("{number}/s"),
        }))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How fast jobs may start, and how many may run concurrently. What is absent is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limit {
    /// Job starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Jobs that run concurrently, over all processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub max_running: Option<u32>,
}

impl Limit {
    /// Whether it limits nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The limits in effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// Job starts of the whole system.
    pub rate: Rate,
    /// Job starts of the whole system that the configuration sets.
    pub configured_rate: Rate,
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
    /// Job starts; absent if it is the configured rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Jobs that run concurrently, over all processes; absent if it is the configured number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// The limit of every group in the queue that has none of its own there; absent if it is the configured one.
    #[serde(default, skip_serializing_if = "Limit::is_none")]
    pub per_group: Limit,
}

/// A limit that can be changed at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum LimitSetting {
    /// Job starts, of the queue or the whole system.
    Rate,
    /// Jobs that run concurrently.
    MaxRunning,
    /// Job starts of every group in the queue.
    GroupRate,
    /// Jobs of every group in the queue that run concurrently.
    GroupMaxRunning,
    /// Whether queues follow what their downstream sustains: `on` or `off`.
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
    pub from: Option<String>,
    /// The value after the change; absent if there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Limits to change. They hold until somebody changes them again, also after a restart. `null` restores
/// the configured value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchLimits {
    /// Job starts of the whole system.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Rate>))]
    pub rate: Nullable<Rate>,
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

/// A limit to change. `null` restores the configured value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchLimit {
    /// Job starts.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Rate>))]
    pub rate: Nullable<Rate>,
    /// Jobs that run concurrently, over all processes.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub max_running: Nullable<u32>,
}

impl PatchLimit {
    /// Restores everything that is configured.
    pub const RESET: Self = Self {
        rate: Nullable::Null,
        max_running: Nullable::Null,
    };

    fn is_empty(&self) -> bool {
        self.rate.is_absent() && self.max_running.is_absent()
    }
}

/// Limits of one queue to change. `null` restores the configured value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchQueueLimits {
    /// Job starts.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Rate>))]
    pub rate: Nullable<Rate>,
    /// Jobs that run concurrently, over all processes.
    #[serde(default, skip_serializing_if = "Nullable::is_absent")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>))]
    pub max_running: Nullable<u32>,
    /// The limit of every group in the queue that has none of its own there.
    #[serde(default, skip_serializing_if = "PatchLimit::is_empty")]
    pub per_group: PatchLimit,
}

impl PatchQueueLimits {
    /// Restores everything that is configured.
    pub const RESET: Self = Self {
        rate: Nullable::Null,
        max_running: Nullable::Null,
        per_group: PatchLimit::RESET,
    };
}
