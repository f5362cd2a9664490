//! Batches: open, read, seal, pause, resume, cancel, results, progress.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tidegate_api::{Batch, Cancelled, Job, OpenBatch, Page, Reason, Role, Sealed, StreamEvent};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    BatchOptions, OpenBatchParams, Opened, PauseParams, ResumeParams, SealBatchParams, Target,
};
use tidegate_core::ids::{BatchId, GroupId};
use tidegate_store::JobDetails;

use super::groups::cancel_all;
use super::listing::{Filling, Listing, page_size};
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::convert;
use crate::events::{event, events};
use crate::extract::{Json, PathParams, QueryParams, cursor};
use crate::problem::{ApiError, ApiResult};
use crate::state::{App, batch_id, group_id};

/// How often progress is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// Names a group and a batch of it.
type Pair = PathParams<(String, String)>;

fn pair(names: &(String, String)) -> ApiResult<(GroupId, BatchId)> {
    Ok((group_id(&names.0)?, batch_id(&names.1)?))
}

fn on(group: &GroupId, batch: &BatchId) -> String {
    format!("{group}/{batch}")
}

async fn view(app: &App, group: GroupId, batch: BatchId) -> ApiResult<Batch> {
    match app.view(Query::Batch(group, batch)).await? {
        View::Batch(view) => Ok(convert::batch(view)),
        other => unreachable!("a batch is answered with a batch, not {other:?}"),
    }
}

/// Opens a batch that jobs can be fed to. Opening it again changes nothing.
#[utoipa::path(put, path = "/v1/groups/{group}/batches/{batch}", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)), request_body = OpenBatch,
    responses((status = 201, description = "It was opened", body = Batch), (status = 200, description = "It was open already", body = Batch)))]
pub(super) async fn open(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(asked): Json<OpenBatch>,
) -> ApiResult<Response> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Submit, &group)?;
    if let Some(callback) = &asked.callback
        && !app.config.callbacks.contains_key(callback)
    {
        let known: Vec<&str> = app.config.callbacks.keys().map(String::as_str).collect();
        return Err(ApiError::invalid(format!(
            "callback {callback:?} is not configured; known are {known:?}"
        )));
    }
    let params = OpenBatchParams {
        group: group.clone(),
        batch: batch.clone(),
        base_priority: asked.base_priority,
        options: BatchOptions {
            failure_threshold_percent: asked.failure_threshold_percent.unwrap_or(100),
            keep_results: asked.keep_results,
            callback: asked.callback,
        },
    };
    let status = match app.call(params).await? {
        Opened::New => StatusCode::CREATED,
        Opened::Already => StatusCode::OK,
    };
    let body = Json(view(&app, group, batch).await?);
    Ok((status, body).into_response())
}

/// Reads one batch.
#[utoipa::path(get, path = "/v1/groups/{group}/batches/{batch}", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)), responses((status = 200, body = Batch)))]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
) -> ApiResult<Json<Batch>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    Ok(Json(view(&app, group, batch).await?))
}

/// Says that a batch takes no more jobs, so that it can complete.
#[utoipa::path(post, path = "/v1/groups/{group}/batches/{batch}/seal", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)), responses((status = 200, body = Sealed)))]
pub(super) async fn seal(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
) -> ApiResult<Json<Sealed>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Submit, &group)?;
    seal_batch(&app, group, batch).await.map(Json)
}

pub(super) async fn seal_batch(app: &App, group: GroupId, batch: BatchId) -> ApiResult<Sealed> {
    let params = SealBatchParams {
        group,
        batch: Some(batch),
    };
    let sealed = app.call(params).await?;
    Ok(Sealed {
        batch: sealed.batch.into(),
        total_jobs: sealed.total_jobs,
        batch_complete: sealed.batch_complete,
    })
}

/// Takes a batch's jobs out of the order.
#[utoipa::path(post, path = "/v1/groups/{group}/batches/{batch}/pause", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)), request_body = Reason, responses((status = 200, body = Batch)))]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Batch>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("batch.pause", on(&group, &batch)).because(reason.why);
    let target = Target::Batch(group.clone(), batch.clone());
    app.audited(&caller, command, app.call(PauseParams { target }))
        .await?;
    Ok(Json(view(&app, group, batch).await?))
}

/// Puts them back.
#[utoipa::path(post, path = "/v1/groups/{group}/batches/{batch}/resume", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)), request_body = Reason, responses((status = 200, body = Batch)))]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Batch>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("batch.resume", on(&group, &batch)).because(reason.why);
    let target = Target::Batch(group.clone(), batch.clone());
    app.audited(&caller, command, app.call(ResumeParams { target }))
        .await?;
    Ok(Json(view(&app, group, batch).await?))
}

/// Ends every job of a batch that is not running.
#[utoipa::path(post, path = "/v1/groups/{group}/batches/{batch}/cancel", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)), request_body = Reason, responses((status = 200, body = Cancelled)))]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Cancelled>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("batch.cancel", on(&group, &batch)).because(reason.why);
    let cancelled = cancel_all(&app, Target::Batch(group, batch));
    app.audited(&caller, command, cancelled).await.map(Json)
}

/// Lists a batch's jobs with their results, in the order in which they came.
#[utoipa::path(get, path = "/v1/groups/{group}/batches/{batch}/results", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path), Listing), responses((status = 200, body = Page<Job>)))]
pub(super) async fn results(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    QueryParams(asked): QueryParams<Listing>,
) -> ApiResult<Json<Page<Job>>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    let (after, max) = (cursor(asked.cursor.as_deref())?, page_size(asked.limit)?);
    let mut filling = Filling::new(after, max);
    while let Some((after, max)) = filling.wants() {
        let read = app.reach()?.results(&group, &batch, after, max).await??;
        filling.take(read, JobDetails::bytes);
    }
    let page = filling.page();
    Ok(Json(convert::page(page, |details| {
        convert::job(group.as_str(), Some(batch.as_str()), details)
    })))
}

/// Follows a batch: an event `progress` whenever it has changed, the last one when it is decided.
#[utoipa::path(get, path = "/v1/groups/{group}/batches/{batch}/events", tag = "batches",
    params(("group" = String, Path), ("batch" = String, Path)),
    responses((status = 200, description = "Events named `progress`, each with a Batch", body = StreamEvent, content_type = "text/event-stream")))]
pub(super) async fn progress(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
) -> ApiResult<Response> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    let first = view(&app, group.clone(), batch.clone()).await?;
    let stream = follow(app.clone(), group, batch, first);
    events(&app, stream)
}

fn follow(
    app: App,
    group: GroupId,
    batch: BatchId,
    first: Batch,
) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(Some((None, Some(first))), move |state| {
        let (app, group, batch) = (app.clone(), group.clone(), batch.clone());
        async move {
            let (mut last, mut first) = state?;
            loop {
                let seen = match first.take() {
                    Some(seen) => Ok(seen),
                    None => {
                        tokio::time::sleep(INTERVAL).await;
                        view(&app, group.clone(), batch.clone()).await
                    }
                };
                match seen {
                    Ok(seen) => {
                        let key = (seen.status, seen.counts, seen.paused, seen.cancelled, seen.sealed);
                        if last == Some(key) {
                            continue;
                        }
                        last = Some(key);
                        let more = !seen.status.is_finished();
                        return Some((Ok(event("progress", &seen)), more.then_some((last, None))));
                    }
                    // The store may come back; what is gone does not.
                    Err(refused) if refused.kind.0.is_server_error() => {
                        tokio::time::sleep(INTERVAL * 5).await;
                    }
                    Err(refused) => return Some((Ok(event("problem", &refused.problem())), None)),
                }
            }
        }
    })
}
