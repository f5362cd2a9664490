//! Explains why a job or a group waits.

use axum::extract::State;
use tidegate_api::{JobState, Role, WaitReason, Why};
use tidegate_core::bulk::views::{self, Query, View, Wait};
use tidegate_core::ids::QueueId;

use super::convert::{self, time};
use crate::auth::Caller;
use crate::extract::{Json, PathParams};
use crate::problem::ApiResult;
use crate::state::{App, group_id, job_id};

/// Explains why a job waits.
///
/// The answer names everything that keeps the job from starting, the nearest reason first, and estimates when it
/// starts.
#[utoipa::path(
    get, path = "/v1/groups/{group}/jobs/{job}/why",
    operation_id = "explainJobWait", tag = "jobs", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    responses((status = 200, description = "The reasons and the estimated start.", body = Why))
)]
pub(crate) async fn job(
    State(app): State<App>,
    caller: Caller,
    PathParams((group, job)): PathParams<(String, String)>,
) -> ApiResult<Json<Why>> {
    let (group, job) = (group_id(&group)?, job_id(&job)?);
    caller.need_for(Role::Read, &group)?;
    why(&app, Query::WhyJob(group, job)).await.map(Json)
}

/// Explains why a group's next job waits.
///
/// The answer names everything that keeps the job from starting, the nearest reason first, and estimates when it
/// starts.
#[utoipa::path(
    get, path = "/v1/groups/{group}/why",
    operation_id = "explainGroupWait", tag = "groups", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path)),
    responses((status = 200, description = "The reasons and the estimated start.", body = Why))
)]
pub(crate) async fn group(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
) -> ApiResult<Json<Why>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    why(&app, Query::WhyGroup(group)).await.map(Json)
}

async fn why(app: &App, query: Query) -> ApiResult<Why> {
    let View::Why(why) = app.query(query).await? else {
        unreachable!("a query for the reasons returns the reasons")
    };
    Ok(explain(app, why))
}

fn explain(app: &App, why: views::Why) -> Why {
    let no_worker = why.starts == Some(Err(views::NoEstimate::NoWorker));
    let to_reason = |wait| reason(app, wait, no_worker);
    let reasons: Vec<WaitReason> = why.waits.into_iter().map(to_reason).collect();
    let state = why.state.map(convert::state);
    // It is unknown when a worker polls, or when an operator enables the target.
    let stuck = |reason: &WaitReason| {
        matches!(
            reason,
            WaitReason::NoWorkers { .. } | WaitReason::TargetDisabled { .. }
        )
    };
    let starts = match why.starts {
        Some(Ok(_)) if reasons.iter().any(stuck) => Some(Err(views::NoEstimate::NoWorker)),
        other => other,
    };
    Why {
        text: text(state, &reasons),
        state,
        reasons,
        starts: starts.map(convert::estimate),
    }
}

fn reason(app: &App, wait: Wait, no_worker: bool) -> WaitReason {
    match wait {
        Wait::Behind { jobs } => WaitReason::Behind { jobs },
        Wait::GroupPaused => WaitReason::GroupPaused,
        Wait::BatchPaused => WaitReason::BatchPaused,
        Wait::Delayed { until, reason } => WaitReason::Delayed {
            until: time(until),
            reason: convert::delay_reason(reason),
        },
        Wait::GroupSpent { limit, until } => WaitReason::GroupSpent {
            limit,
            until: time(until),
        },
        Wait::GroupInQueueSpent { limit, until } => WaitReason::GroupInQueueSpent {
            limit,
            until: time(until),
        },
        Wait::GroupBusy { limit } => WaitReason::GroupBusy { limit },
        Wait::GroupInQueueBusy { limit } => WaitReason::GroupInQueueBusy { limit },
        Wait::QueueBusy { limit } => WaitReason::QueueBusy { limit },
        Wait::WindowSpent { limit, until } => WaitReason::WindowSpent {
            limit,
            until: time(until),
        },
        Wait::QueueSpent { limit, until } => WaitReason::QueueSpent {
            limit,
            until: time(until),
        },
        Wait::ReadyFull { ready } => WaitReason::ReadyFull { ready },
        Wait::Workers { queue } => workers(app, queue, no_worker),
    }
}

/// The reason that concerns the queue's workers. The store knows whether any has asked lately, of whatever process; how
/// busy they are, this process knows.
fn workers(app: &App, queue: QueueId, none: bool) -> WaitReason {
    if let Some(target) = app.targets.view(&queue) {
        let queue = queue.into();
        return match target.reason {
            Some(reason) => WaitReason::TargetDisabled {
                target: target.name,
                reason,
            },
            None if target.busy >= target.concurrency => WaitReason::WorkersBusy {
                queue,
                busy: target.busy,
            },
            None => WaitReason::Turn { queue },
        };
    }
    let waiting = app.queues.of(&queue).waiting;
    let queue = queue.into();
    match waiting {
        _ if none => WaitReason::NoWorkers { queue },
        0 => WaitReason::WorkersBusy { queue, busy: 0 },
        _ => WaitReason::Turn { queue },
    }
}

fn text(state: Option<JobState>, reasons: &[WaitReason]) -> String {
    match state {
        None => return "The group has no waiting jobs.".into(),
        Some(JobState::Running) => return "The job is running.".into(),
        Some(JobState::Completed) => return "The job is completed.".into(),
        Some(JobState::Dead) => return "The job is dead; an operator can replay it.".into(),
        Some(JobState::Waiting | JobState::Ready | JobState::Delayed) => {}
    }
    let parts: Vec<String> = reasons.iter().map(sentence).collect();
    let mut text = parts.join("; ");
    if let Some(first) = text.get(..1) {
        text = first.to_uppercase() + &text[1..] + ".";
    }
    text
}

fn starts(limit: &u64) -> String {
    match limit {
        1 => "1 start per window".to_owned(),
        _ => format!("{limit} starts per window"),
    }
}

fn sentence(reason: &WaitReason) -> String {
    match reason {
        WaitReason::Behind { jobs: 1 } => "behind one job of its group".into(),
        WaitReason::Behind { jobs } => format!("behind {jobs} jobs of its group"),
        WaitReason::GroupPaused => "its group is paused".into(),
        WaitReason::BatchPaused => "its batch is paused".into(),
        WaitReason::Delayed { until, reason } => {
            let why = match reason {
                tidegate_api::DelayReason::RateLimited => "the rate was used up",
                tidegate_api::DelayReason::ApiThrottled => "the downstream service throttled it",
                tidegate_api::DelayReason::TransientError => "its last run failed",
                tidegate_api::DelayReason::LeaseExpired => "its worker did not answer",
                tidegate_api::DelayReason::Scheduled => "it is scheduled",
            };
            format!("delayed until {until}: {why}")
        }
        WaitReason::GroupSpent { limit, until } => {
            format!("its group used up its {} until {until}", starts(limit))
        }
        WaitReason::GroupInQueueSpent { limit, until } => {
            format!(
                "its group used up its {} in this queue until {until}",
                starts(limit)
            )
        }
        WaitReason::GroupBusy { limit } => {
            format!("its group has {limit} running jobs, which is its limit")
        }
        WaitReason::GroupInQueueBusy { limit } => {
            format!("its group has {limit} running jobs in this queue, which is its limit there")
        }
        WaitReason::QueueBusy { limit } => {
            format!("its queue has {limit} running jobs, which is its limit")
        }
        WaitReason::WindowSpent { limit, until } => {
            format!("the rate of {} is used up until {until}", starts(limit))
        }
        WaitReason::QueueSpent { limit, until } => {
            format!("its queue's rate of {} is used up until {until}", starts(limit))
        }
        WaitReason::ReadyFull { ready } => {
            format!("the ready queue is full with {ready} jobs: workers are too slow")
        }
        WaitReason::WorkersBusy { queue, .. } => format!("every worker of queue {queue} is busy"),
        WaitReason::NoWorkers { queue } => format!("no worker has polled queue {queue} recently"),
        WaitReason::TargetDisabled { target, reason } => format!("target {target} is disabled: {reason}"),
        WaitReason::Turn { queue } => format!("nothing delays it: it is about to start in queue {queue}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_become_one_sentence() {
        let reasons = [WaitReason::Behind { jobs: 12 }, WaitReason::GroupPaused];
        assert_eq!(
            text(Some(JobState::Waiting), &reasons),
            "Behind 12 jobs of its group; its group is paused."
        );
        assert_eq!(text(None, &[]), "The group has no waiting jobs.");
    }
}
