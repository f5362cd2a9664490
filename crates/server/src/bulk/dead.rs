//! Dead jobs: list, replay and purge.

use axum::extract::State;
use futures_util::StreamExt;
use serde::Deserialize;
use tidegate_api::{DeadOutcome, DeadSelection, DeathReason, Job, JobName, Page, Role};
use tidegate_core::bulk::views::DeadFilter;
use tidegate_core::bulk::{PurgeParams, Refusal, ReplayParams};
use tidegate_core::ids::{GroupId, JobId, JobType};
use tidegate_store::bulk::BulkStoreExt;
use utoipa::IntoParams;

use super::convert;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::dead_items::{Command, PAGE, Selection, Skip, count};
use crate::extract::{Json, QueryParams, cursor};
use crate::problem::{ApiResult, kind_of};
use crate::routes::listing::{Filling, page_size};
use crate::state::{App, group_id, job_id};

/// Limit: calls under way at once.
const AT_ONCE: usize = 64;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadListing {
    /// The `next` of the page before; absent for the first page.
    cursor: Option<String>,
    /// The most items of the page; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only jobs of this group.
    group: Option<String>,
    /// Only jobs of this type.
    #[serde(rename = "type")]
    #[param(rename = "type")]
    kind: Option<String>,
    /// Only jobs that died for this reason.
    reason: Option<DeathReason>,
}

fn filter(group: Option<&str>, kind: Option<&str>, reason: Option<DeathReason>) -> ApiResult<DeadFilter> {
    Ok(DeadFilter {
        group: group.map(group_id).transpose()?,
        kind: kind.map(JobType::new).transpose()?,
        reason: reason.map(convert::core_death_reason),
    })
}

/// Requires that a key for some groups names one of them. Otherwise the listing would read the jobs of all groups.
fn need(caller: &Caller, role: Role, filter: &DeadFilter) -> ApiResult<()> {
    match &filter.group {
        Some(group) => caller.need_for(role, group),
        None => caller.need_for_all(role),
    }
}

/// Lists dead jobs, those that died last first.
///
/// A key for some groups has to name one of them in `group`.
#[utoipa::path(
    get, path = "/v1/dead-jobs",
    operation_id = "listDeadJobs", tag = "dead jobs", security(("apiKey" = ["READ"]), ()),
    params(DeadListing),
    responses((status = 200, description = "One page of dead jobs.", body = Page<Job>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    QueryParams(query): QueryParams<DeadListing>,
) -> ApiResult<Json<Page<Job>>> {
    let filter = filter(query.group.as_deref(), query.kind.as_deref(), query.reason)?;
    need(&caller, Role::Read, &filter)?;
    let (after, max) = (cursor(query.cursor.as_deref())?, page_size(query.limit)?);
    let mut filling = Filling::new(after, max);
    while let Some((after, max)) = filling.wants() {
        let read = app.available_store()?.dead(&filter, after, max).await?;
        filling.take(read, |dead| dead.details.bytes());
    }
    let page = filling.page();
    Ok(Json(convert::page(page, |dead| {
        convert::job(dead.group.as_str(), dead.details)
    })))
}

/// Replays dead jobs.
///
/// Each job waits again as if it were new, with all its attempts.
#[utoipa::path(
    post, path = "/v1/dead-jobs/replay",
    operation_id = "replayDeadJobs", tag = "dead jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = DeadSelection, description = "Which dead jobs to take.",
        example = json!({"group": "acme", "reason": "ATTEMPTS_USED_UP", "why": "The mail server is back"})
    ),
    responses(
        (status = 200, description = "How many jobs the service replayed and skipped.", body = DeadOutcome<JobName>)
    )
)]
pub(crate) async fn replay(
    State(app): State<App>,
    caller: Caller,
    Json(selection): Json<DeadSelection>,
) -> ApiResult<Json<DeadOutcome<JobName>>> {
    run(&app, &caller, selection, Command::Replay).await.map(Json)
}

/// Deletes dead jobs for good.
#[utoipa::path(
    post, path = "/v1/dead-jobs/purge",
    operation_id = "purgeDeadJobs", tag = "dead jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = DeadSelection, description = "Which dead jobs to take.",
        example = json!({"group": "acme", "reason": "ATTEMPTS_USED_UP", "why": "The mail server is back"})
    ),
    responses((status = 200, description = "How many jobs the service deleted and skipped.", body = DeadOutcome<JobName>))
)]
pub(crate) async fn purge(
    State(app): State<App>,
    caller: Caller,
    Json(selection): Json<DeadSelection>,
) -> ApiResult<Json<DeadOutcome<JobName>>> {
    run(&app, &caller, selection, Command::Purge).await.map(Json)
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Replay => "dead.replay",
        Command::Purge => "dead.purge",
    }
}

async fn run(
    app: &App,
    caller: &Caller,
    selection: DeadSelection,
    command: Command,
) -> ApiResult<DeadOutcome<JobName>> {
    let (group, kind) = (selection.group.as_deref(), selection.kind.as_deref());
    let filter = filter(group, kind, selection.reason)?;
    Selection {
        named: selection.jobs.as_ref().map(Vec::len),
        filtered: filter != DeadFilter::default(),
        all: selection.all,
        field: "jobs",
        filters: "`group`, `type`, `reason`",
    }
    .check()?;
    let named = match &selection.jobs {
        Some(jobs) => Some(named(caller, jobs)?),
        None => {
            need(caller, Role::Admin, &filter)?;
            None
        }
    };
    let on = filter.group.as_ref().map_or("dead jobs", GroupId::as_str);
    let audited = AuditedCommand::new(name(command), on)
        .with_detail(&selection)
        .because(selection.why);
    app.audited(caller, audited, async {
        let mut outcome = DeadOutcome::default();
        match named {
            Some(jobs) => run_on(app, jobs, command, &mut outcome).await?,
            None => run_on_filtered(app, &filter, command, &mut outcome).await?,
        }
        Ok(outcome)
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

async fn run_on_filtered(
    app: &App,
    filter: &DeadFilter,
    command: Command,
    outcome: &mut DeadOutcome<JobName>,
) -> ApiResult<()> {
    let mut after = None;
    loop {
        let page = app.available_store()?.dead(filter, after, PAGE).await?;
        let jobs = page.items.into_iter().map(|dead| (dead.group, dead.details.id));
        run_on(app, jobs.collect(), command, outcome).await?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn run_on(
    app: &App,
    jobs: Vec<(GroupId, JobId)>,
    command: Command,
    outcome: &mut DeadOutcome<JobName>,
) -> ApiResult<()> {
    let calls = jobs.into_iter().map(|(group, job)| async move {
        let item = JobName {
            group: group.to_string(),
            id: job.to_string(),
        };
        (item, call(app, command, group, job).await)
    });
    let mut answers = futures_util::stream::iter(calls).buffered(AT_ONCE);
    while let Some((item, answer)) = answers.next().await {
        let skipped = answer?.err().map(|refusal| Skip {
            code: kind_of(&refusal).1,
            detail: refusal.to_string(),
        });
        count(outcome, item, skipped);
    }
    Ok(())
}

async fn call(app: &App, command: Command, group: GroupId, job: JobId) -> ApiResult<Result<(), Refusal>> {
    let store = app.available_store()?;
    Ok(match command {
        Command::Replay => store.call(ReplayParams { group, job }).await?.map(|_| ()),
        Command::Purge => store.call(PurgeParams { group, job }).await?,
    })
}
