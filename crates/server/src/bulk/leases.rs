//! Pull: workers in any language lease jobs, extend their leases and settle them.

use std::time::Duration;

use axum::extract::State;
use tidegate_api::{
    Extend, ExtendedLease, ExtendedLeases, JobOutcome, Lease, LeaseStop, LeasedJob, LeasedJobs, Role, Settle,
    SettledAs, SettledJob, SettledJobs, ThrottleScope,
};
use tidegate_core::bulk::{
    self, ExtendParams, Extended, LeaseExtension, LeaseParams, LeaseRef, SettleParams, Settled, Stop,
    default_queue,
};
use tidegate_core::ids::{Owner, QueueId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::LeasedJob as StoredLease;
use tokio::time::Instant;

use super::convert::{self, time};
use crate::auth::Caller;
use crate::extract::Json;
use crate::problem::{ApiError, ApiResult};
use crate::state::App;

/// Limit: leases of one call, and how long a call may wait.
const MAX_BATCH: u32 = 1_000;
const MAX_WAIT_MS: u64 = 60_000;
const MAX_EXTENSION_MS: u64 = 86_400_000;
/// A waiting call polls at least this often, because a signal of a shared store can get lost.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Leases jobs of a queue.
///
/// With `waitMs` the call waits until there is a job or the time is up. A worker must settle or extend each lease
/// before its `deadline`; otherwise the service gives the job to another worker.
#[utoipa::path(
    post, path = "/v1/leases",
    operation_id = "leaseJobs", tag = "workers", security(("apiKey" = ["WORK"]), ()),
    request_body(
        content = Lease, description = "Which jobs, and how long to wait for them.",
        example = json!({"queue": "default", "max": 10, "waitMs": 20000, "worker": "mailer-1"})
    ),
    responses((status = 200, description = "The leased jobs, or why there are none.", body = LeasedJobs))
)]
pub(crate) async fn lease(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Lease>,
) -> ApiResult<Json<LeasedJobs>> {
    caller.need_for_all(Role::Work)?;
    let queue = match &body.queue {
        Some(queue) => QueueId::new(queue)?,
        None => default_queue(),
    };
    if let Some(target) = app.targets.of_queue(&queue) {
        return Err(ApiError::invalid(format!(
            "queue {queue:?} belongs to push target {target:?}: the service sends its jobs; lease from another queue"
        )));
    }
    let max = match body.max.unwrap_or(1) {
        max @ 1..=MAX_BATCH => max,
        other => {
            return Err(ApiError::invalid(format!(
                "max = {other}: it must be from 1 to {MAX_BATCH}"
            )));
        }
    };
    let wait = body.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(ApiError::invalid(format!(
            "waitMs = {wait}: it must be from 0 to {MAX_WAIT_MS}"
        )));
    }
    let params = LeaseParams {
        queue: queue.clone(),
        max,
        owner: match &body.worker {
            Some(worker) => Owner::new(worker)?,
            None => Owner::new(&caller.name)?,
        },
    };
    let _tracked = app.queues.track(&queue, app.now());
    let wait = wait.min(app.config.server.max_wait_ms.0);
    let arrived = Instant::now();
    let until = arrived + Duration::from_millis(wait);
    let notifier = app.store.notifier();
    loop {
        // Before the lease, so that a signal during it is not lost.
        let signal = notifier.work.notified();
        let waited = arrived.elapsed();
        let outcome = app.lease(params.clone()).await?;
        let over = Instant::now() >= until || app.stopping.is_cancelled();
        if !outcome.jobs.is_empty() || over {
            return Ok(Json(LeasedJobs {
                jobs: outcome.jobs.into_iter().map(leased).collect(),
                waited_ms: waited.as_millis() as u64,
                stop: lease_stop(outcome.stop),
            }));
        }
        let (pause, limited) = match outcome.stop {
            Stop::Enough | Stop::More => continue,
            Stop::Limited { until } => (wait_for(&app, until), true),
            Stop::Held { until } => (wait_for(&app, until), false),
            Stop::Empty | Stop::Full | Stop::Busy => (POLL_INTERVAL, false),
        };
        tokio::select! {
            // While the rate is used up, a signal brings no work.
            () = signal, if !limited => {}
            () = tokio::time::sleep_until(until.min(Instant::now() + pause)) => {}
            () = app.stopping.cancelled() => {}
        }
    }
}

fn wait_for(app: &App, until: Timestamp) -> Duration {
    let wait = Duration::from(until.since(app.now()));
    wait.clamp(Duration::from_millis(1), POLL_INTERVAL)
}

fn lease_stop(stop: Stop) -> Option<LeaseStop> {
    match stop {
        Stop::Enough | Stop::More => None,
        Stop::Empty | Stop::Full => Some(LeaseStop::Empty),
        Stop::Busy => Some(LeaseStop::Busy),
        Stop::Limited { until } => Some(LeaseStop::Limited { until: time(until) }),
        Stop::Held { until } => Some(LeaseStop::Held { until: time(until) }),
    }
}

fn leased(job: StoredLease) -> LeasedJob {
    let StoredLease { leased, id, payload } = job;
    LeasedJob {
        lease: convert::lease_text(leased.lease),
        group: leased.group.into(),
        batch: leased.batch.into(),
        id: id.into(),
        kind: leased.kind.into(),
        priority: convert::priority(leased.priority),
        attempt: leased.attempt,
        deadline: time(leased.deadline),
        timeout_ms: leased.timeout.0,
        payload: convert::raw(&payload),
    }
}

fn lease_ref(text: &str, index: usize) -> ApiResult<LeaseRef> {
    convert::lease(text).ok_or_else(|| {
        ApiError::invalid(format!(
            "lease {text:?} at index {index} is not a lease; pass `lease` of a leased job"
        ))
    })
}

fn chunk(len: usize) -> ApiResult<()> {
    if len > MAX_BATCH as usize {
        return Err(ApiError::invalid(format!(
            "{len} leases in one call; at most {MAX_BATCH} are allowed"
        )));
    }
    Ok(())
}

/// Extends leases.
///
/// Each lease then ends `durationMs` milliseconds from now. A lease that has ended already cannot be extended: its entry has
/// no `until`. With `progress` the worker reports how far its runs are.
#[utoipa::path(
    post, path = "/v1/leases/extend",
    operation_id = "extendLeases", tag = "workers", security(("apiKey" = ["WORK"]), ()),
    request_body(
        content = Extend, description = "The leases, and how long they should last.",
        example = json!({
            "leases": ["2a.7"], "durationMs": 30000, "progress": {"2a.7": {"percent": 40, "text": "page 4 of 10"}}
        })
    ),
    responses(
        (status = 200, description = "The new end of each lease, in the order of the request.", body = ExtendedLeases)
    )
)]
pub(crate) async fn extend(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Extend>,
) -> ApiResult<Json<ExtendedLeases>> {
    caller.need_for_all(Role::Work)?;
    chunk(body.leases.len())?;
    if !(1..=MAX_EXTENSION_MS).contains(&body.duration_ms) {
        let by = body.duration_ms;
        return Err(ApiError::invalid(format!(
            "durationMs = {by}: it must be from 1 to {MAX_EXTENSION_MS}"
        )));
    }
    if let Some(stranger) = body.progress.keys().find(|lease| !body.leases.contains(lease)) {
        return Err(ApiError::invalid(format!(
            "`progress` has lease {stranger:?}, which is not among `leases`; extend it, too"
        )));
    }
    let leases = body.leases.iter().enumerate().map(|(index, text)| {
        Ok(LeaseExtension {
            lease: lease_ref(text, index)?,
            progress: body.progress.get(text).map(|progress| bulk::Progress {
                percent: progress.percent,
                text: progress.text.clone(),
            }),
        })
    });
    let params = ExtendParams {
        leases: leases.collect::<ApiResult<_>>()?,
        by: Millis(body.duration_ms),
    };
    let extended = app.apply(params).await?.into_iter().map(|one| ExtendedLease {
        until: match one {
            Extended::Until(until) => Some(time(until)),
            Extended::Stale => None,
        },
    });
    Ok(Json(ExtendedLeases {
        extended: extended.collect(),
    }))
}

/// Settles leases.
///
/// A worker reports the outcome of each job. The service answers `STALE` for a lease that had ended, and changes
/// nothing: another worker may have the job.
#[utoipa::path(
    post, path = "/v1/leases/settle",
    operation_id = "settleLeases", tag = "workers", security(("apiKey" = ["WORK"]), ()),
    request_body(
        content = Settle, description = "The outcome of each lease.",
        example = json!({"settlements": [
            {"lease": "2a.7", "outcome": "COMPLETED", "result": {"messageId": "42"}},
            {"lease": "2b.1", "outcome": "RETRY", "error": "Connection reset", "retryAfterMs": 5000}
        ]})
    ),
    responses(
        (status = 200, description = "What became of each job, in the order of the request.", body = SettledJobs)
    )
)]
pub(crate) async fn settle(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<Settle>,
) -> ApiResult<Json<SettledJobs>> {
    caller.need_for_all(Role::Work)?;
    chunk(body.settlements.len())?;
    let answers = body.settlements.into_iter().enumerate().map(|(index, answer)| {
        if let Some(cost) = answer.cost.filter(|&cost| cost > bulk::MAX_COST) {
            return Err(ApiError::invalid(format!(
                "settlements[{index}].cost = {cost}: it must be at most {}",
                bulk::MAX_COST
            )));
        }
        Ok(bulk::Settlement {
            lease: lease_ref(&answer.lease, index)?,
            cost: answer.cost,
            outcome: outcome(answer, index)?,
        })
    });
    let params = SettleParams {
        answers: answers.collect::<ApiResult<_>>()?,
    };
    let settled = app.apply(params).await?.into_iter().map(settled);
    Ok(Json(SettledJobs {
        settled: settled.collect(),
    }))
}

fn outcome(answer: tidegate_api::Settlement, index: usize) -> ApiResult<bulk::JobOutcome> {
    let misplaced = match answer.outcome {
        JobOutcome::Completed => answer.error.is_some() || answer.retry_after_ms.is_some(),
        JobOutcome::Failed => answer.result.is_some() || answer.retry_after_ms.is_some(),
        JobOutcome::Throttled => answer.result.is_some() || answer.error.is_some(),
        JobOutcome::Retry => answer.result.is_some(),
        JobOutcome::Released => {
            answer.result.is_some() || answer.error.is_some() || answer.retry_after_ms.is_some()
        }
    };
    let misplaced = misplaced
        || answer.scope.is_some() && answer.outcome != JobOutcome::Throttled
        || answer.overloaded && answer.outcome != JobOutcome::Retry;
    if misplaced {
        return Err(ApiError::invalid(format!(
            "settlement {index}: `result` goes with COMPLETED, `error` with FAILED and RETRY, `retryAfterMs` with THROTTLED and RETRY, \
             `scope` with THROTTLED, `overloaded` with RETRY"
        )));
    }
    let error = answer.error.unwrap_or_else(|| "the worker gave no reason".into());
    let after = answer.retry_after_ms.map(Millis);
    Ok(match answer.outcome {
        JobOutcome::Completed => bulk::JobOutcome::Completed {
            result: convert::bytes(answer.result),
        },
        JobOutcome::Failed => bulk::JobOutcome::Failed { error },
        JobOutcome::Throttled => bulk::JobOutcome::Throttled {
            retry_after: after,
            scope: match answer.scope.unwrap_or_default() {
                ThrottleScope::Group => bulk::ThrottleScope::Group,
                ThrottleScope::Queue => bulk::ThrottleScope::Queue,
            },
        },
        JobOutcome::Retry => bulk::JobOutcome::Retry {
            error,
            after,
            overloaded: answer.overloaded,
        },
        JobOutcome::Released => bulk::JobOutcome::Released,
    })
}

fn settled(settled: Settled) -> SettledJob {
    let mut job = SettledJob {
        state: SettledAs::Stale,
        until: None,
        delay_reason: None,
        death_reason: None,
        batch_complete: false,
    };
    match settled {
        Settled::Completed { batch_complete } => {
            job.state = SettledAs::Completed;
            job.batch_complete = batch_complete;
        }
        Settled::Delayed { until, reason } => {
            job.state = SettledAs::Delayed;
            job.until = Some(time(until));
            job.delay_reason = Some(convert::delay_reason(reason));
        }
        Settled::Dead {
            reason,
            batch_complete,
        } => {
            job.state = SettledAs::Dead;
            job.death_reason = Some(convert::death_reason(reason));
            job.batch_complete = batch_complete;
        }
        Settled::Released => job.state = SettledAs::Released,
        Settled::Stale => {}
    }
    job
}
