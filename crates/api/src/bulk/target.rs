//! Push targets: downstreams that the service calls for each job.

use serde::{Deserialize, Serialize};

use crate::Time;

/// A push target with its calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Target {
    /// The name of the target in the configuration.
    pub name: String,
    /// The queue of its jobs.
    pub queue: String,
    /// The job types that the target takes.
    pub types: Vec<String>,
    /// The address, without credentials and query.
    pub url: String,
    /// The state of the target, derived from its last calls.
    pub state: TargetState,
    /// Why the target is disabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The most concurrent calls.
    pub concurrency: u32,
    /// Calls that are in progress.
    pub busy: u32,
    /// Job starts per second that the configuration allows.
    pub configured_rps: f64,
    /// Job starts per second in effect: the service lowers the rate while the target throttles.
    pub rps: f64,
    /// Finished calls by outcome.
    pub calls: Calls,
    /// The last finished calls, at most 100, by outcome.
    pub recent_calls: Calls,
    /// When a call last succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_at: Option<Time>,
    /// The last call that did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

/// The state of a push target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TargetState {
    /// The service has not called the target yet.
    Idle,
    /// The last call succeeded, and of the last 100 calls fewer than 10 % failed.
    Healthy,
    /// The target throttled the last call, or the service still calls it at a lowered rate.
    Throttled,
    /// The last call failed, or at least 10 % of the last 100 calls.
    Failing,
    /// The target answered 410, or an operator disabled it.
    Disabled,
}

/// Calls of this process, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Calls {
    /// Calls that succeeded.
    pub completed: u64,
    /// Calls whose job can never succeed.
    pub failed: u64,
    /// Calls that the target throttled.
    pub throttled: u64,
    /// Failed calls that the service retries.
    pub retried: u64,
}

impl Calls {
    /// The share of calls that failed, whether the service retries them or not. Throttled calls count as calls.
    pub fn failed_share(&self) -> f64 {
        let all = self.completed + self.failed + self.throttled + self.retried;
        (self.failed + self.retried) as f64 / all.max(1) as f64
    }
}

/// The last call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LastFailure {
    /// When the call ended.
    pub at: Time,
    /// What went wrong.
    pub error: String,
}
