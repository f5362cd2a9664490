//! Jobs of all groups: list them, and commands on one, on several, or on all that match a filter.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;
use tidegate_api::{
    ChangedJobs, DropFinishedJobs, DroppedJobs, Job, JobName, JobSelection, JobState, Page, Reason,
    ReprioritiseJob, ReprioritiseJobs, RescheduleJob, RescheduleJobs, Role, SkippedJob, Time,
};
use tidegate_core::bulk::views::{Cursor, JobFilter};
use tidegate_core::bulk::{ChangeJobsParams, DropFinishedParams, JobCommand, Refusal};
use tidegate_core::ids::{GroupId, JobId, JobType, QueueId};
use tidegate_core::time::{Millis, Timestamp};
use tokio::time::Instant;
use utoipa::IntoParams;

use super::convert;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::dead_items::Selection;
use crate::extract::{Json, PathParams, QueryParams, place};
use crate::problem::{ApiError, ApiResult, kind_of};
use crate::routes::listing::{Filling, page_size};
use crate::state::{App, batch_id, group_id, job_id};

/// Limit: jobs read at once for a command.
const READ: u32 = 500;
/// Limit: how long one call of a command begins further work, and how many jobs it takes. Its response says where the next
/// call continues.
const CALL_TIME: Duration = Duration::from_secs(2);
const CALL_JOBS: usize = 10_000;
/// Limit: skipped jobs that one response names.
const MAX_ERRORS: usize = 100;
/// Limit: reads of one page that find less than they could hold, because the filter matches few jobs.
const SHORT_READS: u32 = 20;
/// Limit: finished data deleted in one call of the store.
const DROPPED_AT_ONCE: u32 = 1_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JobListing {
    /// The `next` of the page before; absent for the first page.
    cursor: Option<String>,
    /// The most items of the page; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only jobs of this group.
    group: Option<String>,
    /// Only jobs of this batch of `group`.
    batch: Option<String>,
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Only jobs of this type.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// Only jobs in this state.
    state: Option<JobState>,
    /// Only jobs that the service accepted in this second or later.
    #[serde(rename = "createdAfter")]
    #[param(rename = "createdAfter")]
    created_after: Option<Time>,
    /// Only jobs that the service accepted before this second.
    #[serde(rename = "createdBefore")]
    #[param(rename = "createdBefore")]
    created_before: Option<Time>,
}

/// The filter of a selection.
fn filter(select: &JobSelection) -> ApiResult<JobFilter> {
    if select.batch.is_some() && select.group.is_none() {
        return Err(ApiError::invalid(
            "`batch` without `group`: the name of a batch means something within its group only; give both",
        ));
    }
    let text = Option::as_deref;
    Ok(JobFilter {
        group: text(&select.group).map(group_id).transpose()?,
        batch: text(&select.batch).map(batch_id).transpose()?,
        queue: text(&select.queue).map(QueueId::new).transpose()?,
        kind: text(&select.kind).map(JobType::new).transpose()?,
        state: select.state.map(convert::core_state),
        created_after: select.created_after.map(|at| Timestamp(at.0)),
        created_before: select.created_before.map(|at| Timestamp(at.0)),
    })
}

/// Requires that a key for some groups names one of them. Otherwise the listing would read the jobs of all groups.
fn need(caller: &Caller, role: Role, filter: &JobFilter) -> ApiResult<()> {
    match &filter.group {
        Some(group) => caller.need_for(role, group),
        None => caller.need_for_all(role),
    }
}

/// Lists jobs, batch by batch, and within a batch in the order of arrival.
///
/// A page may hold fewer jobs than `limit`, or none, although there are more: only a page without `next` is the last. A key for
/// some groups has to name one of them in `group`.
#[utoipa::path(
    get, path = "/v1/jobs",
    operation_id = "listJobs", tag = "jobs", security(("apiKey" = ["READ"]), ()),
    params(JobListing),
    responses((status = 200, description = "One page of jobs.", body = Page<Job>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    QueryParams(query): QueryParams<JobListing>,
) -> ApiResult<Json<Page<Job>>> {
    let filter = filter(&JobSelection {
        group: query.group,
        batch: query.batch,
        queue: query.queue,
        kind: query.kind,
        state: query.state,
        created_after: query.created_after,
        created_before: query.created_before,
        ..JobSelection::default()
    })?;
    need(&caller, Role::Read, &filter)?;
    let (after, max) = (place(query.cursor.as_deref())?, page_size(query.limit)?);
    let mut filling = Filling::new(after, max);
    let mut short = 0;
    while short < SHORT_READS
        && let Some((after, max)) = filling.wants()
    {
        let read = app.available_store()?.jobs(&filter, after, max).await?;
        short += u32::from(read.items.len() < max as usize);
        filling.take(read, |found| found.details.bytes());
    }
    Ok(Json(convert::page(filling.page(), |found| {
        convert::job(found.group.as_str(), found.details)
    })))
}

/// Cancels jobs.
///
/// A job that does not run is dead at once. A running job ends with its run, unless the run completes it. While the response has a `next`, repeat the call with it as `cursor`.
#[utoipa::path(
    post, path = "/v1/jobs/cancel",
    operation_id = "cancelJobs", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = JobSelection, description = "Which jobs.",
        example = json!({"group": "acme", "state": "DELAYED", "why": "Sent by mistake"})
    ),
    responses((status = 200, description = "How many jobs the service cancelled and skipped.", body = ChangedJobs))
)]
pub(crate) async fn cancel_all(
    State(app): State<App>,
    caller: Caller,
    Json(select): Json<JobSelection>,
) -> ApiResult<Json<ChangedJobs>> {
    run(&app, &caller, select, JobCommand::Cancel).await.map(Json)
}

/// Starts delayed jobs early, within the limits.
///
/// The jobs wait for their turn from now on. While the response has a `next`, repeat the call with it as `cursor`.
#[utoipa::path(
    post, path = "/v1/jobs/run-now",
    operation_id = "runJobsNow", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = JobSelection, description = "Which jobs.",
        example = json!({"queue": "mail", "state": "DELAYED", "why": "The provider sent a wrong Retry-After"})
    ),
    responses((status = 200, description = "How many jobs wait for their turn now, and how many the service skipped.", body = ChangedJobs))
)]
pub(crate) async fn run_all_now(
    State(app): State<App>,
    caller: Caller,
    Json(select): Json<JobSelection>,
) -> ApiResult<Json<ChangedJobs>> {
    run(&app, &caller, select, JobCommand::RunNow).await.map(Json)
}

/// Reschedules jobs.
///
/// The jobs start no earlier than `runAt`, whatever they waited for. While the response has a `next`, repeat the call
/// with it as `cursor`.
#[utoipa::path(
    post, path = "/v1/jobs/reschedule",
    operation_id = "rescheduleJobs", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = RescheduleJobs, description = "Which jobs, and when they may start.",
        example = json!({"select": {"group": "acme", "why": "After the night"}, "runAt": "2026-03-02T06:00:00Z"})
    ),
    responses((status = 200, description = "How many jobs the service rescheduled and skipped.", body = ChangedJobs))
)]
pub(crate) async fn reschedule_all(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<RescheduleJobs>,
) -> ApiResult<Json<ChangedJobs>> {
    let command = reschedule(body.run_at);
    run(&app, &caller, body.select, command).await.map(Json)
}

/// Gives jobs another priority.
///
/// A running job has the new priority if it is tried again. While the response has a `next`, repeat the call with it as
/// `cursor`.
#[utoipa::path(
    post, path = "/v1/jobs/reprioritise",
    operation_id = "reprioritiseJobs", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = ReprioritiseJobs, description = "Which jobs, and their priority.",
        example = json!({"select": {"group": "acme", "type": "REPORT"}, "priority": "LOW"})
    ),
    responses((status = 200, description = "How many jobs the service changed and skipped.", body = ChangedJobs))
)]
pub(crate) async fn reprioritise_all(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ReprioritiseJobs>,
) -> ApiResult<Json<ChangedJobs>> {
    let command = reprioritise(body.priority);
    run(&app, &caller, body.select, command).await.map(Json)
}

/// Cancels a job.
///
/// A job that does not run is dead at once. A running job ends with its run, unless the run completes it.
#[utoipa::path(
    post, path = "/v1/groups/{group}/jobs/{job}/cancel",
    operation_id = "cancelJob", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    request_body(content = Reason, description = "The reason, for the audit log.", example = json!({"why": "Sent by mistake"})),
    responses((status = 200, description = "The job.", body = Job))
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<(String, String)>,
    Json(body): Json<Reason>,
) -> ApiResult<Json<Job>> {
    run_on_one(&app, &caller, name, JobCommand::Cancel, body.why).await
}

/// Starts a delayed job early, within the limits.
///
/// The job waits for its turn from now on.
#[utoipa::path(
    post, path = "/v1/groups/{group}/jobs/{job}/run-now",
    operation_id = "runJobNow", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    request_body(content = Reason, description = "The reason, for the audit log.", example = json!({"why": "The provider is back"})),
    responses((status = 200, description = "The job.", body = Job))
)]
pub(crate) async fn run_now(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<(String, String)>,
    Json(body): Json<Reason>,
) -> ApiResult<Json<Job>> {
    run_on_one(&app, &caller, name, JobCommand::RunNow, body.why).await
}

/// Reschedules a job.
///
/// The job starts no earlier than `runAt`, whatever it waited for.
#[utoipa::path(
    post, path = "/v1/groups/{group}/jobs/{job}/reschedule",
    operation_id = "rescheduleJob", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    request_body(
        content = RescheduleJob, description = "When the job may start.",
        example = json!({"runAt": "2026-03-02T06:00:00Z", "why": "After the night"})
    ),
    responses((status = 200, description = "The job.", body = Job))
)]
pub(crate) async fn reschedule_one(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<(String, String)>,
    Json(body): Json<RescheduleJob>,
) -> ApiResult<Json<Job>> {
    run_on_one(&app, &caller, name, reschedule(body.run_at), body.why).await
}

/// Gives a job another priority.
///
/// A running job has the new priority if it is tried again.
#[utoipa::path(
    post, path = "/v1/groups/{group}/jobs/{job}/reprioritise",
    operation_id = "reprioritiseJob", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    request_body(
        content = ReprioritiseJob, description = "The priority.",
        example = json!({"priority": "HIGH", "why": "The customer waits for it"})
    ),
    responses((status = 200, description = "The job.", body = Job))
)]
pub(crate) async fn reprioritise_one(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<(String, String)>,
    Json(body): Json<ReprioritiseJob>,
) -> ApiResult<Json<Job>> {
    run_on_one(&app, &caller, name, reprioritise(body.priority), body.why).await
}

/// Deletes finished jobs by age.
///
/// Also deletes batches and groups that are due by the configuration. While the response says `more`, repeat the call.
#[utoipa::path(
    post, path = "/v1/jobs/drop-finished",
    operation_id = "dropFinishedJobs", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = DropFinishedJobs, description = "How old the jobs are at least.",
        example = json!({"olderThanSec": 86400, "why": "The disk is nearly full"})
    ),
    responses((status = 200, description = "What the service deleted.", body = DroppedJobs))
)]
pub(crate) async fn drop_finished(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<DropFinishedJobs>,
) -> ApiResult<Json<DroppedJobs>> {
    caller.need_for_all(Role::Admin)?;
    let command = AuditedCommand::new("jobs.drop_finished", "jobs")
        .with_detail(&body)
        .because(body.why);
    let older_than = Some(Millis(body.older_than_sec.saturating_mul(1_000)));
    let dropped = app.audited(&caller, command, async {
        let (mut whole, until) = (DroppedJobs::default(), Instant::now() + CALL_TIME);
        loop {
            let params = DropFinishedParams {
                max: DROPPED_AT_ONCE,
                older_than,
            };
            let one = app.apply(params).await?;
            whole.jobs += u64::from(one.jobs);
            whole.batches += u64::from(one.batches);
            whole.groups += u64::from(one.groups);
            whole.more = one.more;
            if !one.more || Instant::now() >= until {
                return Ok(whole);
            }
        }
    });
    dropped.await.map(Json)
}

fn reschedule(run_at: Time) -> JobCommand {
    JobCommand::Reschedule {
        run_at: Timestamp(run_at.0),
    }
}

fn reprioritise(priority: tidegate_api::JobPriority) -> JobCommand {
    JobCommand::Reprioritise {
        priority: convert::core_priority(priority),
    }
}

/// The name of a command in the audit log.
fn name(command: JobCommand) -> &'static str {
    match command {
        JobCommand::Cancel => "job.cancel",
        JobCommand::RunNow => "job.run_now",
        JobCommand::Reschedule { .. } => "job.reschedule",
        JobCommand::Reprioritise { .. } => "job.reprioritise",
    }
}

async fn run_on_one(
    app: &App,
    caller: &Caller,
    (group, job): (String, String),
    command: JobCommand,
    why: Option<String>,
) -> ApiResult<Json<Job>> {
    let (group, job) = (group_id(&group)?, job_id(&job)?);
    caller.need_for(Role::Admin, &group)?;
    let audited = AuditedCommand::new(name(command), format!("{group}/{job}")).because(why);
    let params = ChangeJobsParams {
        group: group.clone(),
        jobs: vec![job.clone()],
        command,
    };
    app.audited(caller, audited, async {
        for changed in app.apply(params).await? {
            changed?;
        }
        Ok(())
    })
    .await?;
    let details = app.available_store()?.job(&group, &job).await??;
    Ok(Json(convert::job(group.as_str(), details)))
}

async fn run(
    app: &App,
    caller: &Caller,
    select: JobSelection,
    command: JobCommand,
) -> ApiResult<ChangedJobs> {
    let filter = filter(&select)?;
    Selection {
        named: select.jobs.as_ref().map(Vec::len),
        filtered: !filter.is_empty(),
        all: select.all,
        field: "jobs",
        filters: "`group`, `batch`, `queue`, `type`, `state`, `createdAfter`, `createdBefore`",
    }
    .check()?;
    let after = place(select.cursor.as_deref())?;
    let named = match &select.jobs {
        Some(_) if after.is_some() => {
            return Err(ApiError::invalid(
                "`cursor` goes with a filter or `all`, not with `jobs`",
            ));
        }
        Some(jobs) => Some(named(caller, jobs)?),
        None => {
            need(caller, Role::Admin, &filter)?;
            None
        }
    };
    let on = filter.group.as_ref().map_or("jobs", GroupId::as_str);
    let audited = AuditedCommand::new(name(command), on)
        .with_detail(&select)
        .because(select.why);
    app.audited(caller, audited, async {
        let mut changed = ChangedJobs::default();
        match named {
            Some(jobs) => change(app, jobs, command, &mut changed).await?,
            None => change_filtered(app, &filter, after, command, &mut changed).await?,
        }
        Ok(changed)
    })
    .await
}

/// The jobs that a request names, if the caller may administer their groups.
fn named(caller: &Caller, jobs: &[JobName]) -> ApiResult<Vec<(GroupId, JobId)>> {
    let name = |job: &JobName| {
        let group = group_id(&job.group)?;
        caller.need_for(Role::Admin, &group)?;
        Ok((group, job_id(&job.id)?))
    };
    jobs.iter().map(name).collect()
}

/// Takes the matching jobs page by page. Jobs in a state that the command does not fit are none of its business, unless the
/// filter names that state.
async fn change_filtered(
    app: &App,
    filter: &JobFilter,
    mut after: Option<Cursor>,
    command: JobCommand,
    changed: &mut ChangedJobs,
) -> ApiResult<()> {
    let until = Instant::now() + CALL_TIME;
    let mut taken = 0;
    loop {
        let page = app.available_store()?.jobs(filter, after, READ).await?;
        let fits = |state| filter.state.is_some() || command.kind().fits(state);
        let jobs: Vec<(GroupId, JobId)> = page
            .items
            .into_iter()
            .filter(|found| fits(found.details.view.state))
            .map(|found| (found.group, found.details.id))
            .collect();
        taken += jobs.len();
        change(app, jobs, command, changed).await?;
        after = page.next;
        if after.is_none() || taken >= CALL_JOBS || Instant::now() >= until {
            changed.next = after.map(crate::extract::cursor_text);
            return Ok(());
        }
    }
}

async fn change(
    app: &App,
    jobs: Vec<(GroupId, JobId)>,
    command: JobCommand,
    changed: &mut ChangedJobs,
) -> ApiResult<()> {
    let mut of_groups: BTreeMap<GroupId, Vec<JobId>> = BTreeMap::new();
    for (group, job) in jobs {
        of_groups.entry(group).or_default().push(job);
    }
    for (group, jobs) in of_groups {
        let params = ChangeJobsParams {
            group: group.clone(),
            jobs: jobs.clone(),
            command,
        };
        for (job, answer) in jobs.into_iter().zip(app.apply(params).await?) {
            count(changed, &group, &job, answer.map(drop));
        }
    }
    Ok(())
}

fn count(changed: &mut ChangedJobs, group: &GroupId, job: &JobId, answer: Result<(), Refusal>) {
    let Err(refusal) = answer else {
        changed.handled += 1;
        return;
    };
    changed.skipped += 1;
    if changed.errors.len() < MAX_ERRORS {
        changed.errors.push(SkippedJob {
            item: JobName {
                group: group.to_string(),
                id: job.to_string(),
            },
            code: kind_of(&refusal).1.to_owned(),
            detail: refusal.to_string(),
        });
    }
}
