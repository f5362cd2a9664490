//! Push targets: who is called, and how that goes.

use serde::{Deserialize, Serialize};

use crate::Time;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Target {
    pub name: String,
    pub queue: String,
    pub types: Vec<String>,
    /// Without credentials and query.
    pub url: String,
    pub state: TargetState,
    /// Why it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub concurrency: u32,
    pub busy: u32,
    /// Starts per second that are allowed, and those that it bears now.
    pub configured_rps: f64,
    pub rps: f64,
    pub calls: Calls,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TargetState {
    /// Not called yet.
    Idle,
    Healthy,
    /// It said that it was too much; its rate is lowered.
    Throttled,
    /// Its last call failed.
    Failing,
    /// It answered 410, or an operator switched it off.
    Disabled,
}

/// Calls of this process since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    pub done: u64,
    pub failed: u64,
    pub throttled: u64,
    pub retried: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    pub at: Time,
    pub error: String,
}
