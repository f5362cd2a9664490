//! Dead jobs: list them with their reasons, replay or purge some or all of them.

use axum::extract::State;
use futures_util::StreamExt;
use serde::Deserialize;
use tidegate_api::{DeadDone, DeadSelection, DeathReason, Job, Page, Role, Skipped};
use tidegate_core::bulk::views::DeadFilter;
use tidegate_core::bulk::{PurgeParams, Refusal, ReplayParams};
use tidegate_core::ids::{GroupId, JobId, JobType};
use tidegate_store::StoreExt;
use utoipa::IntoParams;

use super::listing::{Filling, page_size};
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::convert;
use crate::extract::{Json, QueryParams, cursor};
use crate::problem::{ApiError, ApiResult, kind_of};
use crate::state::{App, group_id, job_id};

/// Limit: jobs read, and calls under way, at once; skipped jobs told.
const PAGE: u32 = 500;
const AT_ONCE: usize = 64;
const MAX_ERRORS: usize = 100;
/// Limit: jobs named in one call.
const MAX_NAMED: usize = 1_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadListing {
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

/// A key for some groups has to name one of them, or it would read through everybody's jobs.
fn need(caller: &Caller, role: Role, filter: &DeadFilter) -> ApiResult<()> {
    match &filter.group {
        Some(group) => caller.need_for(role, group),
        None => caller.need_for_all(role),
    }
}

/// Lists dead jobs, the latest accepted first.
///
/// A key for some groups has to name one of them in `group`.
#[utoipa::path(
    get, path = "/v1/dead-jobs",
    operation_id = "listDeadJobs", tag = "dead jobs", security(("apiKey" = ["READ"]), ()),
    params(DeadListing),
    responses((status = 200, description = "One page of dead jobs.", body = Page<Job>))
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    QueryParams(asked): QueryParams<DeadListing>,
) -> ApiResult<Json<Page<Job>>> {
    let filter = filter(asked.group.as_deref(), asked.kind.as_deref(), asked.reason)?;
    need(&caller, Role::Read, &filter)?;
    let (after, max) = (cursor(asked.cursor.as_deref())?, page_size(asked.limit)?);
    let mut filling = Filling::new(after, max);
    while let Some((after, max)) = filling.wants() {
        let read = app.reach()?.dead(&filter, after, max).await?;
        filling.take(read, |dead| dead.details.bytes());
    }
    let page = filling.page();
    Ok(Json(convert::page(page, |dead| {
        convert::job(dead.group.as_str(), Some(dead.batch.as_str()), dead.details)
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
        (status = 200, description = "How many jobs the service replayed and skipped.", body = DeadDone)
    )
)]
pub(super) async fn replay(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<DeadSelection>,
) -> ApiResult<Json<DeadDone>> {
    each(&app, &caller, asked, Fate::Replay).await.map(Json)
}

/// Deletes dead jobs for good.
#[utoipa::path(
    post, path = "/v1/dead-jobs/purge",
    operation_id = "purgeDeadJobs", tag = "dead jobs", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = DeadSelection, description = "Which dead jobs to take.",
        example = json!({"group": "acme", "reason": "ATTEMPTS_USED_UP", "why": "The mail server is back"})
    ),
    responses((status = 200, description = "How many jobs the service deleted and skipped.", body = DeadDone))
)]
pub(super) async fn purge(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<DeadSelection>,
) -> ApiResult<Json<DeadDone>> {
    each(&app, &caller, asked, Fate::Purge).await.map(Json)
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Replay,
    Purge,
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Fate::Replay => "dead.replay",
            Fate::Purge => "dead.purge",
        }
    }

    async fn on(self, app: &App, group: GroupId, job: JobId) -> ApiResult<Result<(), Refusal>> {
        let store = app.reach()?;
        Ok(match self {
            Fate::Replay => store.call(ReplayParams { group, job }).await?.map(|_| ()),
            Fate::Purge => store.call(PurgeParams { group, job }).await?,
        })
    }
}

async fn each(app: &App, caller: &Caller, asked: DeadSelection, fate: Fate) -> ApiResult<DeadDone> {
    let filter = filter(asked.group.as_deref(), asked.kind.as_deref(), asked.reason)?;
    let filtered = filter != DeadFilter::default();
    let mut named = Vec::new();
    match &asked.jobs {
        Some(_) if filtered || asked.all => {
            return Err(ApiError::invalid(
                "give `jobs`, or a filter, or `all`; not several of them",
            ));
        }
        Some(jobs) if jobs.len() > MAX_NAMED => {
            let len = jobs.len();
            return Err(ApiError::invalid(format!(
                "{len} jobs are named; at most {MAX_NAMED} are allowed"
            )));
        }
        Some(jobs) => {
            for job in jobs {
                let group = group_id(&job.group)?;
                caller.need_for(Role::Admin, &group)?;
                named.push((group, job_id(&job.id)?));
            }
        }
        None if filtered && asked.all => {
            return Err(ApiError::invalid(
                "`all` means every dead job; leave it out with a filter",
            ));
        }
        None if filtered || asked.all => need(caller, Role::Admin, &filter)?,
        None => {
            return Err(ApiError::invalid(
                "nothing is selected: give `jobs`, or a filter (`group`, `type`, `reason`), or `all`: true",
            ));
        }
    }
    let on = filter.group.as_ref().map_or("dead jobs", GroupId::as_str);
    let command = AuditedCommand::new(fate.name(), on)
        .asked(&asked)
        .because(asked.why);
    app.audited(caller, command, async {
        let mut done = DeadDone::default();
        match asked.jobs {
            Some(_) => these(app, named, fate, &mut done).await?,
            None => filtered_ones(app, &filter, fate, &mut done).await?,
        }
        Ok(done)
    })
    .await
}

async fn filtered_ones(app: &App, filter: &DeadFilter, fate: Fate, done: &mut DeadDone) -> ApiResult<()> {
    let mut after = None;
    loop {
        let page = app.reach()?.dead(filter, after, PAGE).await?;
        let jobs = page.items.into_iter().map(|dead| (dead.group, dead.details.id));
        these(app, jobs.collect(), fate, done).await?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn these(app: &App, jobs: Vec<(GroupId, JobId)>, fate: Fate, done: &mut DeadDone) -> ApiResult<()> {
    let calls = jobs.into_iter().map(|(group, job)| async move {
        let answer = fate.on(app, group.clone(), job.clone()).await;
        (group, job, answer)
    });
    let mut answers = futures_util::stream::iter(calls).buffered(AT_ONCE);
    while let Some((group, job, answer)) = answers.next().await {
        match answer? {
            Ok(()) => done.jobs += 1,
            Err(refusal) => {
                done.skipped += 1;
                if done.errors.len() < MAX_ERRORS {
                    done.errors.push(Skipped {
                        group: group.into(),
                        id: job.into(),
                        code: kind_of(&refusal).1.to_owned(),
                        detail: refusal.to_string(),
                    });
                }
            }
        }
    }
    Ok(())
}
