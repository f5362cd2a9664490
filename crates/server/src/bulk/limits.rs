//! Limits: read, and change at run time.

use axum::extract::State;
use tidegate_api::{Limits, Nullable, PatchLimits, PatchQueueLimits, Role};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{ConfigureLimitsParams, Set, SetQueueLimits};
use tidegate_core::ids::QueueId;

use super::convert;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::extract::Json;
use crate::problem::{ApiError, ApiResult};
use crate::state::App;

async fn view(app: &App) -> ApiResult<Limits> {
    match app.query(Query::Limits).await? {
        View::Limits(view) => Ok(convert::limits(view)),
        other => unreachable!("a query for limits returned {other:?}"),
    }
}

fn set<T>(value: Nullable<T>) -> Set<T> {
    match value {
        Nullable::Absent => Set::Keep,
        Nullable::Null => Set::Reset,
        Nullable::Value(value) => Set::To(value),
    }
}

/// Reads the limits that hold now, and who changed them.
#[utoipa::path(
    get, path = "/v1/limits",
    operation_id = "getLimits", tag = "limits", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "The limits and their latest changes.", body = Limits))
)]
pub(crate) async fn read(State(app): State<App>, caller: Caller) -> ApiResult<Json<Limits>> {
    caller.need_for_all(Role::Read)?;
    view(&app).await.map(Json)
}

/// Changes limits.
///
/// The new limits hold at once, and until somebody changes them again. `null` restores the configured value.
#[utoipa::path(
    patch, path = "/v1/limits",
    operation_id = "updateLimits", tag = "limits", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = PatchLimits, description = "The limits to change.",
        example = json!({"globalRps": 50.0, "queues": {"mailer": {"maxRunning": 5}}, "why": "The provider is slow today"})
    ),
    responses((status = 200, description = "The limits after the change.", body = Limits))
)]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PatchLimits>,
) -> ApiResult<Json<Limits>> {
    caller.need_for_all(Role::Admin)?;
    let of_queue = |limits: &PatchQueueLimits| SetQueueLimits {
        rps: set(limits.rps),
        max_running: set(limits.max_running),
    };
    let queues = body
        .queues
        .iter()
        .map(|(queue, limits)| Ok((QueueId::new(queue)?, of_queue(limits))));
    let params = ConfigureLimitsParams {
        global_rps: set(body.global_rps),
        adaptive: set(body.adaptive),
        queues: queues.collect::<ApiResult<_>>()?,
        by: caller.name.clone(),
        why: body.why.clone().unwrap_or_default(),
    };
    let of_all = params.global_rps == Set::Keep && params.adaptive == Set::Keep;
    if of_all
        && params
            .queues
            .iter()
            .all(|(_, set)| *set == SetQueueLimits::default())
    {
        return Err(ApiError::invalid(
            "the body changes nothing; give `globalRps`, `adaptive`, or `queues` with `rps` or `maxRunning`",
        ));
    }
    let command = AuditedCommand::new("limits.patch", "limits")
        .with_detail(&body)
        .because(body.why);
    app.audited(&caller, command, app.execute(params)).await?;
    view(&app).await.map(Json)
}
