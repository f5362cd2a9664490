//! Push targets: who is called, and how that goes.

use serde::{Deserialize, Serialize};

use crate::Time;

/// A push target with its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The target's name in the configuration.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The job types that it takes.
    pub types: Vec<String>,
    /// Without credentials and query.
    pub url: String,
    pub state: TargetState,
    /// Why it is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The most calls at once.
    pub concurrency: u32,
    /// Calls that run now.
    pub busy: u32,
    /// Starts per second that the configuration allows.
    pub configured_rps: f64,
    /// Starts per second that hold now: the service lowers the rate when the target throttles.
    pub rps: f64,
    pub calls: Calls,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

/// How a target does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TargetState {
    /// The service has not called it yet.
    Idle,
    /// Its last call succeeded.
    Healthy,
    /// It throttles, and the service has lowered its rate.
    Throttled,
    /// Its last call failed.
    Failing,
    /// It answered 410, or an operator disabled it.
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

/// The last failed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    pub at: Time,
    pub error: String,
}
