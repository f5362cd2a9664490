//! Limits: read, and change at run time.

use axum::extract::State;
use tidegate_api::{Limits, Nullable, PatchLimits, Role};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{ConfigureLimitsParams, Set};
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

/// Reads the rates that hold now, and who changed them.
#[utoipa::path(
    get, path = "/v1/limits",
    operation_id = "getLimits", tag = "limits", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "The rates and their latest changes.", body = Limits))
)]
pub(crate) async fn read(State(app): State<App>, caller: Caller) -> ApiResult<Json<Limits>> {
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
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PatchLimits>,
) -> ApiResult<Json<Limits>> {
    caller.need_for_all(Role::Admin)?;
    let set = |rps: Option<f64>| rps.map_or(Set::Reset, Set::To);
    let queues = body
        .queues
        .iter()
        .map(|(queue, rps)| Ok((QueueId::new(queue)?, set(*rps))));
    let params = ConfigureLimitsParams {
        global_rps: match body.global_rps {
            Nullable::Absent => Set::Keep,
            Nullable::Null => Set::Reset,
            Nullable::Value(rps) => Set::To(rps),
        },
        queues: queues.collect::<ApiResult<_>>()?,
        by: caller.name.clone(),
        why: body.why.clone().unwrap_or_default(),
    };
    if params.global_rps == Set::Keep && params.queues.is_empty() {
        return Err(ApiError::invalid(
            "the body changes nothing; give `globalRps` or `queues`",
        ));
    }
    let command = AuditedCommand::new("limits.patch", "limits")
        .with_detail(&body)
        .because(body.why);
    app.audited(&caller, command, app.execute(params)).await?;
    view(&app).await.map(Json)
}
