//! Groups: list, read, change, pause, resume, cancel.

use axum::extract::State;
use tidegate_api::{Cancelled, Group, GroupLimits, Page, PatchGroup, Reason, Role};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    CancelParams, ConfigureGroupParams, PauseParams, ResetStatsParams, ResumeParams, Scope,
};
use tidegate_core::ids::GroupId;

use super::convert::{self, time};
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::extract::{Json, PathParams, QueryParams, cursor};
use crate::problem::{ApiError, ApiResult};
use crate::routes::listing::{Listing, page_size};
use crate::state::{App, group_id};

/// Limit: jobs that one step of a cancellation visits.
const CANCEL_BATCH: u32 = 1_000;

/// Lists groups.
///
/// Groups come in the order in which the service first saw them. A key for some groups sees only those.
#[utoipa::path(
    get, path = "/v1/groups",
    operation_id = "listGroups", tag = "groups", security(("apiKey" = ["READ"]), ()),
    params(Listing),
    responses((status = 200, description = "One page of groups.", body = Page<Group>))
)]
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    QueryParams(params): QueryParams<Listing>,
) -> ApiResult<Json<Page<Group>>> {
    caller.need(Role::Read)?;
    let query = Query::Groups {
        after: cursor(params.cursor.as_deref())?,
        max: page_size(params.limit)?,
    };
    let View::Groups(mut page) = app.query(query).await? else {
        unreachable!("a query for groups returns groups")
    };
    page.items.retain(|group| caller.sees(group.id.as_str()));
    Ok(Json(convert::page(page, convert::group)))
}

async fn view(app: &App, group: GroupId) -> ApiResult<Group> {
    match app.query(Query::Group(group)).await? {
        View::Group(view) => Ok(convert::group(view)),
        other => unreachable!("a query for a group returned {other:?}"),
    }
}

/// Reads one group.
#[utoipa::path(
    get, path = "/v1/groups/{group}",
    operation_id = "getGroup", tag = "groups", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path)),
    responses((status = 200, description = "The group.", body = Group))
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
) -> ApiResult<Json<Group>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    Ok(Json(view(&app, group).await?))
}

/// Changes a group's weight and limits.
///
/// Fields that the body leaves out keep their value. The change holds at once, also for jobs that already wait.
#[utoipa::path(
    patch, path = "/v1/groups/{group}",
    operation_id = "updateGroup", tag = "groups", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path)),
    request_body(
        content = PatchGroup, description = "What to change.",
        example = json!({"weight": 2.0, "limits": {"rate": "500/min", "maxRunning": 10, "queues": {"mail": {"rate": "30/min"}}}, "why": "Bigger contract"})
    ),
    responses((status = 200, description = "The group after the change.", body = Group))
)]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    Json(body): Json<PatchGroup>,
) -> ApiResult<Json<Group>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Admin, &group)?;
    let base_priority = match (body.weight, body.base_priority) {
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid(
                "weight and basePriority both set the group's share; give only one of them",
            ));
        }
        (Some(weight), None) if (1.0 / 64.0..=64.0).contains(&weight) => Some(convert::base_priority(weight)),
        (Some(weight), None) => {
            return Err(ApiError::invalid(format!(
                "weight = {weight}: it must be from 0.015625 to 64"
            )));
        }
        (None, priority) => priority,
    };
    let limits = body.limits.as_ref().map(convert::given_limits).transpose()?;
    let command = AuditedCommand::new("group.patch", &group)
        .with_detail(&body)
        .because(body.why);
    let params = ConfigureGroupParams {
        group: group.clone(),
        base_priority,
        limits,
    };
    app.audited(&caller, command, app.execute(params)).await?;
    Ok(Json(view(&app, group).await?))
}

/// Pauses a group.
///
/// The service starts no more jobs of the group. Jobs that run already continue.
#[utoipa::path(
    post, path = "/v1/groups/{group}/pause",
    operation_id = "pauseGroup", tag = "groups", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The paused group.", body = Group))
)]
pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Group>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("group.pause", &group).because(reason.why);
    let scope = Scope::Group(group.clone());
    app.audited(&caller, command, app.execute(PauseParams { scope }))
        .await?;
    Ok(Json(view(&app, group).await?))
}

/// Resumes a paused group.
#[utoipa::path(
    post, path = "/v1/groups/{group}/resume",
    operation_id = "resumeGroup", tag = "groups", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The resumed group.", body = Group))
)]
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Group>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("group.resume", &group).because(reason.why);
    let scope = Scope::Group(group.clone());
    app.audited(&caller, command, app.execute(ResumeParams { scope }))
        .await?;
    Ok(Json(view(&app, group).await?))
}

/// Cancels every job of a group that is not running.
///
/// Cancelled jobs are dead with the reason `CANCELLED`. Running jobs stay with their workers.
#[utoipa::path(
    post, path = "/v1/groups/{group}/cancel",
    operation_id = "cancelGroup", tag = "groups", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses(
        (status = 200, description = "How many jobs the service cancelled, and how many still run.", body = Cancelled)
    )
)]
pub(crate) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Cancelled>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("group.cancel", &group).because(reason.why);
    let cancelled = cancel_all(&app, Scope::Group(group));
    app.audited(&caller, command, cancelled).await.map(Json)
}

/// Cancels step by step, so that other calls get their turn in between. If this loop ends early, the store continues the
/// cancellation itself.
pub(crate) async fn cancel_all(app: &App, scope: Scope) -> ApiResult<Cancelled> {
    let mut total = Cancelled::default();
    loop {
        let params = CancelParams {
            scope: scope.clone(),
            max: CANCEL_BATCH,
        };
        let outcome = app.execute(params).await?;
        total.cancelled += u64::from(outcome.cancelled);
        total.running += u64::from(outcome.running);
        if !outcome.more {
            return Ok(total);
        }
    }
}

/// Clears a group's congestion statistics.
#[utoipa::path(
    post, path = "/v1/groups/{group}/reset-stats",
    operation_id = "resetGroupStats", tag = "groups", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The group after the reset.", body = Group))
)]
pub(crate) async fn reset_stats(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Group>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("group.reset_stats", &group).because(reason.why);
    let reset = app.execute(ResetStatsParams { group: group.clone() });
    app.audited(&caller, command, reset).await?;
    Ok(Json(view(&app, group).await?))
}

/// Reads the current rate window as a group sees it.
///
/// The counts say how many jobs the whole system and this group have started in the window, and how many they may
/// start.
#[utoipa::path(
    get, path = "/v1/groups/{group}/limits",
    operation_id = "getGroupLimits", tag = "groups", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path)),
    responses((status = 200, description = "Counts and limits of the current window.", body = GroupLimits))
)]
pub(crate) async fn limits(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
) -> ApiResult<Json<GroupLimits>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Read, &group)?;
    let View::LimitStatus(status) = app.query(Query::LimitStatus(group)).await? else {
        unreachable!("a query for limits returns limits")
    };
    Ok(Json(GroupLimits {
        global_count: status.global_count,
        global_limit: status.global_limit,
        group_count: status.group_count,
        per_group_limit: status.per_group_limit,
        active_group_count: status.active_group_count,
        window_ends: time(status.window_ends),
    }))
}
