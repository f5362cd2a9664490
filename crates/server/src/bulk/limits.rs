//! Limits: read, and change at run time.

use axum::extract::State;
use tidegate_api::{Limits, Nullable, PatchLimits, PatchQueueLimits, Rate, Role};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{ConfigureLimitsParams, Set, SetLimit, SetQueueLimits};
use tidegate_core::ids::QueueId;
use tidegate_core::limits::quota::Quota;

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

fn quota(value: &Nullable<Rate>) -> ApiResult<Set<Quota>> {
    Ok(match value {
        Nullable::Absent => Set::Keep,
        Nullable::Null => Set::Reset,
        Nullable::Value(rate) => Set::To(convert::quota(rate)?),
    })
}

fn limit(rate: &Nullable<Rate>, max_running: Nullable<u32>) -> ApiResult<SetLimit> {
    Ok(SetLimit {
        rate: quota(rate)?,
        max_running: set(max_running),
    })
}

/// A limit of a queue that nothing uses is a typing error.
async fn known(app: &App, queues: impl Iterator<Item = &QueueId>) -> ApiResult<()> {
    let mut known = app.config.bulk().queue_names();
    if let View::Queues(used) = app.query(Query::Queues).await? {
        known.extend(used.into_iter().map(|queue| queue.id));
    }
    for queue in queues {
        if !known.contains(queue) {
            let known: Vec<&str> = known.iter().map(QueueId::as_str).collect();
            return Err(ApiError::invalid(format!(
                "there is no queue {queue:?}; there are {}",
                known.join(", ")
            )));
        }
    }
    Ok(())
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
        example = json!({"rate": "500/min", "queues": {"mailer": {"maxRunning": 5, "perGroup": {"rate": "30/min"}}}, "why": "The provider is slow today"})
    ),
    responses((status = 200, description = "The limits after the change.", body = Limits))
)]
pub(crate) async fn patch(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<PatchLimits>,
) -> ApiResult<Json<Limits>> {
    caller.need_for_all(Role::Admin)?;
    let of_queue = |limits: &PatchQueueLimits| -> ApiResult<SetQueueLimits> {
        Ok(SetQueueLimits {
            all: limit(&limits.rate, limits.max_running)?,
            per_group: limit(&limits.per_group.rate, limits.per_group.max_running)?,
        })
    };
    let queues = body
        .queues
        .iter()
        .map(|(queue, limits)| Ok((QueueId::new(queue)?, of_queue(limits)?)));
    let params = ConfigureLimitsParams {
        global_rps: quota(&body.rate)?,
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
            "the body changes nothing; give `rate`, `adaptive`, or `queues` with `rate`, `maxRunning` or `perGroup`",
        ));
    }
    known(&app, params.queues.iter().map(|(queue, _)| queue)).await?;
    let command = AuditedCommand::new("limits.patch", "limits")
        .with_detail(&body)
        .because(body.why);
    app.audited(&caller, command, app.execute(params)).await?;
    view(&app).await.map(Json)
}
