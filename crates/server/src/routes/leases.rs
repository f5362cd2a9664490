//! Pull: workers in any language lease jobs, extend their leases and settle them.

use std::time::Duration;

use axum::extract::State;
use tidegate_api::{
    Extend, ExtendedLease, ExtendedLeases, Lease, LeasedJob, LeasedJobs, Nothing, Role, Settle, SettledJob,
    SettledJobs, SettledState, Verdict,
};
use tidegate_core::bulk::{
    self, ExtendParams, Extended, LeaseParams, LeaseRef, SettleParams, Settled, Stop, default_lane,
};
use tidegate_core::ids::{LaneId, Owner};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::LeasedJob as StoredLease;
use tokio::time::Instant;

use crate::auth::Caller;
use crate::convert::{self, time};
use crate::extract::Json;
use crate::problem::{Answer, Refused};
use crate::state::App;

/// Limit: leases of one call, and how long a call may wait.
const MAX_BATCH: u32 = 1_000;
const MAX_WAIT_MS: u64 = 60_000;
const MAX_EXTENSION_MS: u64 = 86_400_000;
/// A waiting call looks by itself at least so often: a bell can be missed on a store that is shared.
const LOOK: Duration = Duration::from_secs(1);

/// Leases jobs of a lane. With `wait_ms` the call waits until there is one.
#[utoipa::path(post, path = "/v1/leases", tag = "workers", request_body = Lease, responses((status = 200, body = LeasedJobs)))]
pub(super) async fn lease(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<Lease>,
) -> Answer<Json<LeasedJobs>> {
    caller.need_for_all(Role::Work)?;
    let lane = match &asked.lane {
        Some(lane) => LaneId::new(lane)?,
        None => default_lane(),
    };
    if let Some(target) = app.targets.of_lane(&lane) {
        return Err(Refused::invalid(format!(
            "lane {lane:?} belongs to push target {target:?}, which gets its jobs by itself"
        )));
    }
    let max = match asked.max.unwrap_or(1) {
        max @ 1..=MAX_BATCH => max,
        other => {
            return Err(Refused::invalid(format!(
                "max = {other}: it may be from 1 to {MAX_BATCH}"
            )));
        }
    };
    let wait = asked.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(Refused::invalid(format!(
            "wait_ms = {wait}: it may be up to {MAX_WAIT_MS}"
        )));
    }
    let params = LeaseParams {
        lane: lane.clone(),
        max,
        owner: match &asked.worker {
            Some(worker) => Owner::new(worker)?,
            None => Owner::new(&caller.name)?,
        },
    };
    let _asking = app.lanes.asks(&lane, app.now());
    let wait = wait.min(app.config.server.max_wait_ms.0);
    let arrived = Instant::now();
    let until = arrived + Duration::from_millis(wait);
    let wakeups = app.store.wakeups();
    loop {
        // Before the lease, so that a bell that rings during it is heard.
        let bell = wakeups.work.notified();
        let waited = arrived.elapsed();
        let outcome = app.lease(params.clone()).await?;
        let over = Instant::now() >= until || app.stopping.is_cancelled();
        if !outcome.jobs.is_empty() || over {
            return Ok(Json(LeasedJobs {
                jobs: outcome.jobs.into_iter().map(leased).collect(),
                waited_ms: waited.as_millis() as u64,
                nothing: nothing(outcome.stop),
            }));
        }
        let (pause, limited) = match outcome.stop {
            Stop::Enough | Stop::More => continue,
            Stop::Limited { until } => (wait_for(&app, until), true),
            Stop::Held { until } => (wait_for(&app, until), false),
            Stop::Empty | Stop::Full => (LOOK, false),
        };
        tokio::select! {
            // In a spent window no bell brings work.
            () = bell, if !limited => {}
            () = tokio::time::sleep_until(until.min(Instant::now() + pause)) => {}
            () = app.stopping.cancelled() => {}
        }
    }
}

fn wait_for(app: &App, until: Timestamp) -> Duration {
    let wait = Duration::from(until.since(app.now()));
    wait.clamp(Duration::from_millis(1), LOOK)
}

fn nothing(stop: Stop) -> Option<Nothing> {
    match stop {
        Stop::Enough | Stop::More => None,
        Stop::Empty | Stop::Full => Some(Nothing::Empty),
        Stop::Limited { until } => Some(Nothing::Limited { until: time(until) }),
        Stop::Held { until } => Some(Nothing::Held { until: time(until) }),
    }
}

fn leased(job: StoredLease) -> LeasedJob {
    let StoredLease { leased, id, payload } = job;
    LeasedJob {
        lease: convert::lease_text(leased.lease),
        group: leased.group.into(),
        action: leased.action.into(),
        id: id.into(),
        kind: leased.kind.into(),
        level: convert::level(leased.level),
        attempt: leased.attempt,
        deadline: time(leased.deadline),
        timeout_ms: leased.timeout.0,
        payload: convert::raw(&payload),
    }
}

fn lease_ref(text: &str, index: usize) -> Answer<LeaseRef> {
    convert::lease(text).ok_or_else(|| {
        Refused::invalid(format!(
            "lease {text:?} at index {index} is not one that was handed out here"
        ))
    })
}

fn batch(len: usize) -> Answer<()> {
    if len > MAX_BATCH as usize {
        return Err(Refused::invalid(format!(
            "{len} leases in one call; at most {MAX_BATCH} are allowed"
        )));
    }
    Ok(())
}

/// Gives running jobs more time.
#[utoipa::path(post, path = "/v1/leases/extend", tag = "workers", request_body = Extend, responses((status = 200, body = ExtendedLeases)))]
pub(super) async fn extend(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<Extend>,
) -> Answer<Json<ExtendedLeases>> {
    caller.need_for_all(Role::Work)?;
    batch(asked.leases.len())?;
    if !(1..=MAX_EXTENSION_MS).contains(&asked.by_ms) {
        let by = asked.by_ms;
        return Err(Refused::invalid(format!(
            "by_ms = {by}: it may be from 1 to {MAX_EXTENSION_MS}"
        )));
    }
    let leases = asked
        .leases
        .iter()
        .enumerate()
        .map(|(index, text)| lease_ref(text, index));
    let params = ExtendParams {
        leases: leases.collect::<Answer<_>>()?,
        by: Millis(asked.by_ms),
    };
    let extended = app.ask(params).await?.into_iter().map(|one| ExtendedLease {
        until: match one {
            Extended::Until(until) => Some(time(until)),
            Extended::Stale => None,
        },
    });
    Ok(Json(ExtendedLeases {
        extended: extended.collect(),
    }))
}

/// Takes workers' answers. A late one, whose lease had ended, is told so and changes nothing.
#[utoipa::path(post, path = "/v1/leases/settle", tag = "workers", request_body = Settle, responses((status = 200, body = SettledJobs)))]
pub(super) async fn settle(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<Settle>,
) -> Answer<Json<SettledJobs>> {
    caller.need_for_all(Role::Work)?;
    batch(asked.answers.len())?;
    let answers = asked.answers.into_iter().enumerate().map(|(index, answer)| {
        Ok(bulk::Answer {
            lease: lease_ref(&answer.lease, index)?,
            verdict: verdict(answer, index)?,
        })
    });
    let params = SettleParams {
        answers: answers.collect::<Answer<_>>()?,
    };
    let settled = app.ask(params).await?.into_iter().map(settled);
    Ok(Json(SettledJobs {
        settled: settled.collect(),
    }))
}

fn verdict(answer: tidegate_api::Answer, index: usize) -> Answer<bulk::Verdict> {
    let misplaced = match answer.verdict {
        Verdict::Done => answer.error.is_some() || answer.retry_after_ms.is_some(),
        Verdict::Failed => answer.result.is_some() || answer.retry_after_ms.is_some(),
        Verdict::Throttled => answer.result.is_some() || answer.error.is_some(),
        Verdict::Retry => answer.result.is_some(),
        Verdict::Returned => {
            answer.result.is_some() || answer.error.is_some() || answer.retry_after_ms.is_some()
        }
    };
    if misplaced {
        return Err(Refused::invalid(format!(
            "answer {index}: `result` goes with done, `error` with failed and retry, `retry_after_ms` with throttled and retry"
        )));
    }
    let error = answer.error.unwrap_or_else(|| "the worker gave no reason".into());
    let after = answer.retry_after_ms.map(Millis);
    Ok(match answer.verdict {
        Verdict::Done => bulk::Verdict::Done {
            result: convert::bytes(answer.result),
        },
        Verdict::Failed => bulk::Verdict::Failed { error },
        Verdict::Throttled => bulk::Verdict::Throttled { retry_after: after },
        Verdict::Retry => bulk::Verdict::Retry { error, after },
        Verdict::Returned => bulk::Verdict::Returned,
    })
}

fn settled(settled: Settled) -> SettledJob {
    let mut job = SettledJob {
        state: SettledState::Stale,
        until: None,
        delay_reason: None,
        death_reason: None,
        action_complete: false,
    };
    match settled {
        Settled::Done { action_complete } => {
            job.state = SettledState::Done;
            job.action_complete = action_complete;
        }
        Settled::Delayed { until, reason } => {
            job.state = SettledState::Delayed;
            job.until = Some(time(until));
            job.delay_reason = Some(convert::delay_reason(reason));
        }
        Settled::Dead {
            reason,
            action_complete,
        } => {
            job.state = SettledState::Dead;
            job.death_reason = Some(convert::death_reason(reason));
            job.action_complete = action_complete;
        }
        Settled::Returned => job.state = SettledState::Returned,
        Settled::Stale => {}
    }
    job
}
