//! Limits: read them, change them at run time.

use axum::extract::State;
use tidegate_api::{Limits, PatchLimits, Role};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{ConfigureLimitsParams, Set};
use tidegate_core::ids::QueueId;

use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::convert;
use crate::extract::Json;
use crate::problem::{ApiError, ApiResult};
use crate::state::App;

async fn view(app: &App) -> ApiResult<Limits> {
    match app.view(Query::Limits).await? {
        View::Limits(view) => Ok(convert::limits(view)),
        other => unreachable!("limits are answered with limits, not {other:?}"),
    }
}

/// Reads the rates that hold now, and who changed them.
#[utoipa::path(
    get, path = "/v1/limits",
    operation_id = "getLimits", tag = "limits", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "The rates and their latest changes.", body = Limits))
)]
pub(super) async fn read(State(app): State<App>, caller: Caller) -> ApiResult<Json<Limits>> {
    caller.need_for_all(Role::Read)?;
    view(&app).await.map(Json)
}

/// Changes rates.
///
/// The new rates hold at once, and until somebody changes them again. `null` restores the configured rate.
#[utoipa::path(
    patch, path = "/v1/limits",
    operation_id = "updateLimits", tag = "limits", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = PatchLimits, description = "The rates to change.",
        example = json!({"globalRps": 50.0, "queues": {"mailer": null}, "why": "The provider is slow today"})
    ),
    responses((status = 200, description = "The rates after the change.", body = Limits))
)]
pub(super) async fn patch(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<PatchLimits>,
) -> ApiResult<Json<Limits>> {
    caller.need_for_all(Role::Admin)?;
    let set = |rps: Option<f64>| rps.map_or(Set::Reset, Set::To);
    let queues = asked
        .queues
        .iter()
        .map(|(queue, rps)| Ok((QueueId::new(queue)?, set(*rps))));
    let params = ConfigureLimitsParams {
        global_rps: asked.global_rps.map_or(Set::Keep, set),
        queues: queues.collect::<ApiResult<_>>()?,
        by: caller.name.clone(),
        why: asked.why.clone().unwrap_or_default(),
    };
    if params.global_rps == Set::Keep && params.queues.is_empty() {
        return Err(ApiError::invalid(
            "nothing to change: give `globalRps`, or `queues`",
        ));
    }
    let command = AuditedCommand::new("limits.patch", "limits")
        .asked(&asked)
        .because(asked.why);
    app.audited(&caller, command, app.call(params)).await?;
    view(&app).await.map(Json)
}
