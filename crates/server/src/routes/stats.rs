//! The whole system: statistics, the last minutes, targets, what was done by whom.

use std::convert::Infallible;

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures_core::Stream;
use serde::Deserialize;
use tidegate_api::{AuditEntry, Identity, Page, Reason, Role, Samples, Stats, StreamEvent, Target};
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

/// The whole system at this moment. While the store is away: as it was last seen.
#[utoipa::path(get, path = "/v1/stats", tag = "statistics", responses((status = 200, body = Stats)))]
pub(super) async fn stats(State(app): State<App>, caller: Caller) -> ApiResult<Json<Stats>> {
    caller.need_for_all(Role::Read)?;
    app.sampler.stats(&app).await.map(Json)
}

/// The last minutes, a sample per second.
#[utoipa::path(get, path = "/v1/history", tag = "statistics", responses((status = 200, body = Samples)))]
pub(super) async fn history(State(app): State<App>, caller: Caller) -> ApiResult<Json<Samples>> {
    caller.need_for_all(Role::Read)?;
    Ok(Json(Samples {
        samples: app.sampler.samples(),
    }))
}

/// Follows the whole system: an event `stats` every second.
#[utoipa::path(get, path = "/v1/events", tag = "statistics",
    responses((status = 200, description = "Events named `stats`, each with Stats", body = StreamEvent, content_type = "text/event-stream")))]
pub(super) async fn follow(State(app): State<App>, caller: Caller) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let first = app.sampler.stats(&app).await?;
    events(&app, every_second(app.clone(), first))
}

fn every_second(app: App, first: Stats) -> impl Stream<Item = Result<Event, Infallible>> {
    let news = app.sampler.subscribe();
    futures_util::stream::unfold((news, Some(first)), |(mut news, first)| async move {
        if let Some(first) = first {
            return Some((Ok(event("stats", &first)), (news, None)));
        }
        loop {
            match news.recv().await {
                Ok(stats) => return Some((Ok(event("stats", &*stats)), (news, None))),
                // A reader that is too slow misses some seconds.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

/// Push targets and how their calls go.
#[utoipa::path(get, path = "/v1/targets", tag = "targets", responses((status = 200, body = Page<Target>)))]
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

/// Sends jobs to a target again.
#[utoipa::path(post, path = "/v1/targets/{target}/enable", tag = "targets", params(("target" = String, Path)), request_body = Reason, responses((status = 200, body = Target)))]
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

/// Sends no more jobs to a target; they wait.
#[utoipa::path(post, path = "/v1/targets/{target}/disable", tag = "targets", params(("target" = String, Path)), request_body = Reason, responses((status = 200, body = Target)))]
pub(super) async fn disable(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Target>> {
    caller.need_for_all(Role::Admin)?;
    target(&app, &name)?;
    let why = reason.why.as_deref().unwrap_or("no reason given");
    let shown = format!("switched off by {}: {why}", caller.name);
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
    /// Most entries, the latest ones, 1 to 1,000; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
}

/// What was done by whom, the latest first.
#[utoipa::path(get, path = "/v1/audit", tag = "statistics", params(Recent), responses((status = 200, body = Page<AuditEntry>)))]
pub(super) async fn audit(
    State(app): State<App>,
    caller: Caller,
    QueryParams(asked): QueryParams<Recent>,
) -> ApiResult<Json<Page<AuditEntry>>> {
    caller.need_for_all(Role::Admin)?;
    Ok(Json(Page {
        items: app.audit.latest(page_size(asked.limit)? as usize).await?,
        next: None,
    }))
}

/// Who the server takes you for.
#[utoipa::path(get, path = "/v1/me", tag = "statistics", responses((status = 200, body = Identity)))]
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
