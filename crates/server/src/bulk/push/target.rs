//! One target: calls it for each job, and keeps the history of the calls.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use reqwest::StatusCode;
use serde::Serialize;
use serde_json::value::RawValue;
use tidegate_api::{Calls, LastFailure, TargetState, Time};
use tidegate_core::bulk::ThrottleScope;
use tidegate_core::bulk::views::QueueView;
use tidegate_core::clock::Clock;
use tidegate_core::ids::QueueId;
use tidegate_core::limits::quota::Quota;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::bulk::{Gate, Handler, Job, JobError};
use tokio::time::Instant;
use tracing::Instrument;

use super::budget::Budget;
use super::call::{Address, CallError, Reply, Within};
use super::sign::message_id;
use crate::bulk::convert::{raw, time};
use crate::config::{TargetConfig, ThrottleScopeConfig};
use crate::telemetry;

/// Limit: how much of an error response the job's error contains.
const MAX_ERROR_BYTES: u64 = 2_048;
/// How many of its last calls tell whether a target is healthy.
const RECENT: usize = 100;
/// A target is failing from this share of failed calls on.
const FAILING_SHARE: f64 = 0.1;

pub(crate) struct Target {
    name: QueueId,
    config: TargetConfig,
    address: Address,
    pub(crate) gate: Gate,
    clock: Arc<dyn Clock>,
    max_result: u64,
    throttle_scope: ThrottleScope,
    configured_rps: f64,
    busy: AtomicU32,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    calls: Calls,
    last_success: Option<Timestamp>,
    last_failure: Option<(Timestamp, String)>,
    /// The last calls, the newest last.
    recent: VecDeque<Ended>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    Completed,
    /// The target throttled it.
    Throttled,
    /// The job can never succeed.
    Failed,
    /// The service retries it.
    Retried,
    /// The target is gone: the job was released.
    Gone,
}

impl Ended {
    fn count(self, calls: &mut Calls) {
        match self {
            Self::Completed => calls.completed += 1,
            Self::Throttled => calls.throttled += 1,
            Self::Failed => calls.failed += 1,
            Self::Retried => calls.retried += 1,
            Self::Gone => {}
        }
    }
}

impl History {
    fn put(&mut self, ended: Ended) {
        ended.count(&mut self.calls);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(ended);
    }

    fn recent(&self) -> Calls {
        let mut calls = Calls::default();
        for ended in &self.recent {
            ended.count(&mut calls);
        }
        calls
    }

    fn state(&self, disabled: bool, slowed: bool) -> TargetState {
        match self.recent.back() {
            _ if disabled => TargetState::Disabled,
            None => TargetState::Idle,
            Some(Ended::Failed | Ended::Retried | Ended::Gone) => TargetState::Failing,
            _ if self.recent().failed_share() >= FAILING_SHARE => TargetState::Failing,
            Some(Ended::Throttled) => TargetState::Throttled,
            Some(Ended::Completed) if slowed => TargetState::Throttled,
            Some(Ended::Completed) => TargetState::Healthy,
        }
    }
}

/// The message to a target.
#[derive(Serialize)]
struct Message<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    timestamp: Time,
    group: &'a str,
    batch: &'a str,
    id: &'a str,
    attempt: u32,
    deadline: Time,
    payload: Box<RawValue>,
}

impl Target {
    pub(crate) fn new(
        name: &QueueId,
        config: &TargetConfig,
        address: Address,
        clock: Arc<dyn Clock>,
        defaults: Defaults,
    ) -> Self {
        Self {
            name: name.clone(),
            address,
            gate: Gate::default(),
            clock,
            max_result: defaults.max_result,
            throttle_scope: match config.throttle_scope {
                ThrottleScopeConfig::Queue => ThrottleScope::Queue,
                ThrottleScopeConfig::Group => ThrottleScope::Group,
            },
            configured_rps: config.rate.map_or(defaults.rps, Quota::per_second),
            busy: AtomicU32::new(0),
            history: Mutex::default(),
            config: config.clone(),
        }
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view(&self, queue: Option<&QueueView>) -> tidegate_api::Target {
        let (history, reason) = (self.history(), self.gate.reason());
        let configured = queue.map_or(self.configured_rps, |queue| queue.configured_rps);
        let rps = queue.map_or(self.configured_rps, |queue| queue.rps);
        let state = history.state(reason.is_some(), rps < configured);
        tidegate_api::Target {
            name: self.name.as_str().to_owned(),
            queue: self.name.as_str().to_owned(),
            types: self
                .config
                .types
                .iter()
                .map(|kind| kind.as_str().to_owned())
                .collect(),
            url: self.address.shown(),
            state,
            reason,
            concurrency: self.config.concurrency,
            busy: self.busy.load(Ordering::Relaxed),
            configured_rps: configured,
            rps,
            calls: history.calls,
            recent_calls: history.recent(),
            last_success_at: history.last_success.map(time),
            last_failure: history.last_failure.as_ref().map(|(at, error)| LastFailure {
                at: time(*at),
                error: error.clone(),
            }),
        }
    }

    fn completed(&self) {
        let mut history = self.history();
        history.put(Ended::Completed);
        history.last_success = Some(self.clock.now());
    }

    fn failed(&self, error: &str, ended: Ended) {
        let mut history = self.history();
        history.put(ended);
        history.last_failure = Some((self.clock.now(), error.to_owned()));
    }

    /// Calls the target. The job has used `spent` of its time already.
    async fn call(&self, job: &Job, spent: Duration, send_by: Option<Instant>) -> Result<Reply, CallError> {
        let now = self.clock.now();
        // A little shorter than the engine's timeout, so that the error names the call.
        let left = Duration::from(job.timeout).saturating_sub(spent);
        let timeout = left - (left / 10).min(Duration::from_millis(50));
        // After this the service ignores the response, although the lease lasts a little longer.
        let deadline = time(now + Millis(left.as_millis() as u64));
        let message = Message {
            kind: job.kind.as_str(),
            timestamp: time(now),
            group: job.group.as_str(),
            batch: job.batch.as_str(),
            id: job.id.as_str(),
            attempt: job.attempt,
            deadline,
            payload: raw(&job.payload),
        };
        let body = serde_json::to_vec(&message).map_err(|error| CallError::Failed(error.to_string()))?;
        let name = format!("{}/{}", job.batch, job.id);
        let id = message_id("job", job.group.as_str(), &name);
        let extra = [
            ("tidegate-attempt", job.attempt.to_string()),
            ("tidegate-deadline", deadline.to_string()),
        ];
        let within = Within {
            timeout,
            max_answer: self.max_result,
            send_by,
        };
        self.address.post(&id, now, body, &extra, within).await
    }

    /// Decides what becomes of the job.
    fn settle(&self, reply: Result<Reply, CallError>) -> Result<Bytes, JobError> {
        let Reply {
            status,
            retry_after,
            scope,
            body,
        } = match reply {
            Ok(reply) => reply,
            Err(error) => {
                let error = error.to_string();
                self.failed(&error, Ended::Retried);
                return Err(JobError::overloaded(error));
            }
        };
        let says = |body: &Option<Bytes>| {
            let text = body
                .as_ref()
                .map(|body| &body[..body.len().min(MAX_ERROR_BYTES as usize)]);
            let text = String::from_utf8_lossy(text.unwrap_or_default())
                .trim()
                .to_owned();
            if text.is_empty() {
                format!("answered {status}")
            } else {
                format!("answered {status}: {text}")
            }
        };
        if status.is_success() {
            let Some(body) = body else {
                let error = format!(
                    "answered {status} with more than {} bytes, the limit for results",
                    self.max_result
                );
                self.failed(&error, Ended::Failed);
                return Err(JobError::Failed(error));
            };
            self.completed();
            return Ok(result(body));
        }
        let error = says(&body);
        match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                self.failed(&error, Ended::Throttled);
                Err(JobError::Throttled {
                    retry_after,
                    scope: scope.unwrap_or(self.throttle_scope),
                })
            }
            StatusCode::GONE => {
                let reason = format!("answered 410 Gone at {}", time(self.clock.now()));
                tracing::error!(target = %self.name, "the target answered 410 Gone; the service has disabled it");
                self.failed(&error, Ended::Gone);
                self.gate.close(reason);
                Err(JobError::Released)
            }
            status if status.is_client_error() => {
                self.failed(&error, Ended::Failed);
                Err(JobError::Failed(error))
            }
            status => {
                let error = if status.is_redirection() {
                    format!("{error}; redirects are not followed: configure the URL that it redirects to")
                } else {
                    error
                };
                self.failed(&error, Ended::Retried);
                Err(JobError::Retry {
                    error,
                    after: retry_after,
                    overloaded: matches!(status, StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT),
                })
            }
        }
    }
}

/// Settings that all targets share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) rps: f64,
    pub(crate) max_result: u64,
}

/// Converts a response to a result: JSON stays as it is, other text becomes a JSON string.
fn result(body: Bytes) -> Bytes {
    let json = serde_json::from_slice::<&RawValue>(&body).is_ok();
    match std::str::from_utf8(&body) {
        Ok(text) if !json && !text.is_empty() => serde_json::to_vec(text).map_or(body.clone(), Bytes::from),
        _ => body,
    }
}

/// Counts a running call until it is dropped.
struct Busy<'a>(&'a AtomicU32);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The handler of a target's job types.
pub(crate) struct Push {
    pub(crate) target: Arc<Target>,
    /// The budget that its calls need tokens of; `None` if only the rate limits them.
    pub(crate) budget: Option<Budget>,
}

#[async_trait]
impl Handler for Push {
    async fn run(&self, job: Job) -> Result<Bytes, JobError> {
        let target = &*self.target;
        let begun = Instant::now();
        let span = telemetry::push_span(
            target.name.as_str(),
            job.group.as_str(),
            job.id.as_str(),
            job.attempt,
        );
        let reply = loop {
            let send_by = match &self.budget {
                Some(budget) => Some(budget.take(&job).await?),
                None => None,
            };
            target.busy.fetch_add(1, Ordering::Relaxed);
            let _busy = Busy(&target.busy);
            let call = target.call(&job, begun.elapsed(), send_by);
            match call.instrument(span.clone()).await {
                // The token expired before there was a connection: try again with another token.
                Err(CallError::NotSent) => {}
                reply => break reply,
            }
        };
        if let Ok(reply) = &reply {
            span.record("status", reply.status.as_u16());
            if let Some(budget) = &self.budget {
                budget.observe(reply).await;
            }
        }
        target.settle(reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(calls: impl IntoIterator<Item = Ended>) -> History {
        let mut history = History::default();
        for ended in calls {
            history.put(ended);
        }
        history
    }

    #[test]
    fn a_target_that_fails_a_tenth_of_its_calls_is_not_healthy() {
        let state = |history: &History| history.state(false, false);
        assert_eq!(state(&History::default()), TargetState::Idle);
        let of_100 = |failed: usize| {
            let failed = std::iter::repeat_n(Ended::Retried, failed);
            history(failed.chain([Ended::Completed; 90]))
        };
        assert_eq!(state(&of_100(10)), TargetState::Failing);
        assert_eq!(state(&of_100(9)), TargetState::Healthy);
        let rejected = history([Ended::Failed, Ended::Completed, Ended::Completed]);
        assert_eq!(state(&rejected), TargetState::Failing, "a third of all calls");
        let throttled = history([Ended::Completed, Ended::Throttled]);
        assert_eq!(state(&throttled), TargetState::Throttled);
        assert_eq!(
            history([Ended::Completed]).state(false, true),
            TargetState::Throttled
        );
        assert_eq!(
            history([Ended::Completed]).state(true, false),
            TargetState::Disabled
        );
    }

    #[test]
    fn failures_of_long_ago_are_forgotten() {
        let calls = [Ended::Retried; 100].into_iter().chain([Ended::Completed; 100]);
        let history = history(calls);
        assert_eq!(history.state(false, false), TargetState::Healthy);
        assert_eq!((history.calls.retried, history.recent().retried), (100, 0));
    }
}
