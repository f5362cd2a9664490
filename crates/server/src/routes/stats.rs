//! The whole system: statistics and their history, targets, the audit log, the caller's identity.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_core::Stream;
use serde::Deserialize;
use tidegate_api::{AuditEntry, Identity, Page, Reason, Role, Samples, Stats, Target};
use tidegate_core::ids::QueueId;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::listing::page_size;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::events::{event, events};
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{ApiError, ApiResult, UNKNOWN_TARGET};
use crate::state::App;

/// Reads statistics of the whole system.
///
/// While the store is unavailable, the answer is the last known state.
#[utoipa::path(
    get, path = "/v1/stats",
    operation_id = "getStats", tag = "statistics", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "The statistics.", body = Stats))
)]
pub(super) async fn stats(State(app): State<App>, caller: Caller) -> ApiResult<Json<Stats>> {
    caller.need_for_all(Role::Read)?;
    app.sampler.stats(&app).await.map(Json)
}

/// Reads the statistics of the last minutes, one sample per second.
#[utoipa::path(
    get, path = "/v1/history",
    operation_id = "getStatsHistory", tag = "statistics", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "The samples, oldest first.", body = Samples))
)]
pub(super) async fn history(State(app): State<App>, caller: Caller) -> ApiResult<Json<Samples>> {
    caller.need_for_all(Role::Read)?;
    Ok(Json(Samples {
        samples: app.sampler.samples(),
    }))
}

/// Streams statistics of the whole system.
///
/// The service sends an event `stats` every second. Each one carries `Stats` as JSON. A client that reads too slowly
/// misses some.
#[utoipa::path(
    get, path = "/v1/events",
    operation_id = "streamStatsEvents", tag = "statistics", security(("apiKey" = ["READ"]), ()),
    responses(
        (
            status = 200, description = "Server-sent events named `stats`, each with `Stats`.",
            content_type = "text/event-stream", body = String,
            example = json!("event: stats\ndata: {\"at\":\"2026-03-01T09:30:00.250Z\",\"activeGroups\":3}\n\n")
        )
    )
)]
pub(super) async fn follow(State(app): State<App>, caller: Caller) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let first = app.sampler.stats(&app).await?;
    events(&app, every_second(app.clone(), first))
}

fn every_second(app: App, first: Stats) -> impl Stream<Item = Result<Event, Infallible>> {
    let updates = app.sampler.subscribe();
    futures_util::stream::unfold((updates, Some(first)), |(mut updates, first)| async move {
        if let Some(first) = first {
            return Some((Ok(event("stats", &first)), (updates, None)));
        }
        loop {
            match updates.recv().await {
                Ok(stats) => return Some((Ok(event("stats", &*stats)), (updates, None))),
                // A client that reads too slowly misses some seconds.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

/// Lists push targets and how their calls go.
#[utoipa::path(
    get, path = "/v1/targets",
    operation_id = "listTargets", tag = "targets", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "Every configured target, on one page.", body = Page<Target>))
)]
pub(super) async fn targets(State(app): State<App>, caller: Caller) -> ApiResult<Json<Page<Target>>> {
    caller.need_for_all(Role::Read)?;
    Ok(Json(Page {
        items: app.targets.views(&app.sampler.queues()),
        next: None,
    }))
}

fn target(app: &App, name: &str) -> ApiResult<Target> {
    let queue = QueueId::new(name)?;
    let found = app.targets.views(&app.sampler.queues()).into_iter();
    found
        .into_iter()
        .find(|target| target.queue == queue.as_str())
        .ok_or_else(|| {
            let detail = format!("target {name:?} is not configured");
            ApiError::new(UNKNOWN_TARGET, detail)
        })
}

/// Enables a target: the service sends jobs to it again.
#[utoipa::path(
    post, path = "/v1/targets/{target}/enable",
    operation_id = "enableTarget", tag = "targets", security(("apiKey" = ["ADMIN"]), ()),
    params(("target" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The enabled target.", body = Target))
)]
pub(super) async fn enable(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Target>> {
    caller.need_for_all(Role::Admin)?;
    target(&app, &name)?;
    let command = AuditedCommand::new("target.enable", &name).because(reason.why);
    app.audited(&caller, command, async {
        app.targets.enable(&QueueId::new(&name)?);
        target(&app, &name).map(Json)
    })
    .await
}

/// Disables a target.
///
/// The service sends no more jobs to it. They wait until somebody enables the target again.
#[utoipa::path(
    post, path = "/v1/targets/{target}/disable",
    operation_id = "disableTarget", tag = "targets", security(("apiKey" = ["ADMIN"]), ()),
    params(("target" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The disabled target.", body = Target))
)]
pub(super) async fn disable(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Target>> {
    caller.need_for_all(Role::Admin)?;
    target(&app, &name)?;
    let why = reason.why.as_deref().unwrap_or("no reason given");
    let shown = format!("disabled by {}: {why}", caller.name);
    let command = AuditedCommand::new("target.disable", &name).because(reason.why);
    app.audited(&caller, command, async {
        app.targets.disable(&QueueId::new(&name)?, shown);
        target(&app, &name).map(Json)
    })
    .await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Recent {
    /// The most entries; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// Lists the latest entries of the audit log, the newest first.
#[utoipa::path(
    get, path = "/v1/audit",
    operation_id = "listAuditEntries", tag = "service", security(("apiKey" = ["ADMIN"]), ()),
    params(Recent),
    responses((status = 200, description = "The latest entries, on one page.", body = Page<AuditEntry>))
)]
pub(super) async fn audit(
    State(app): State<App>,
    caller: Caller,
    QueryParams(query): QueryParams<Recent>,
) -> ApiResult<Json<Page<AuditEntry>>> {
    caller.need_for_all(Role::Admin)?;
    Ok(Json(Page {
        items: app.audit.latest(page_size(query.limit)? as usize).await?,
        next: None,
    }))
}

/// Reads who the service takes the caller for.
#[utoipa::path(
    get, path = "/v1/me",
    operation_id = "getIdentity", tag = "service", security(("apiKey" = []), ()),
    responses((status = 200, description = "Name, roles and groups of the key.", body = Identity))
)]
pub(super) async fn me(
    State(app): State<App>,
    caller: Caller,
    session: crate::auth::MaybeSession,
) -> ApiResult<Json<Identity>> {
    Ok(Json(Identity {
        name: caller.name,
        roles: caller.roles,
        groups: caller.groups,
        csrf: session.csrf(),
        keys_required: app.keys.required(),
    }))
}
