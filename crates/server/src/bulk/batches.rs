//! Batches: open, read, seal, pause, resume, cancel, results, progress.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tidegate_api::{Batch, Cancelled, Job, OpenBatch, Page, Reason, Role, Sealed};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    BatchOptions, OpenBatchParams, Opened, PauseParams, ResumeParams, Scope, SealBatchParams,
};
use tidegate_core::ids::{BatchId, GroupId};
use tidegate_store::bulk::JobDetails;

use super::convert;
use super::groups::cancel_all;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::events::{event, events};
use crate::extract::{Json, PathParams, QueryParams, cursor};
use crate::problem::{ApiError, ApiResult};
use crate::routes::listing::{Filling, Listing, page_size};
use crate::state::{App, batch_id, group_id};

/// How often a stream reads the progress.
const INTERVAL: Duration = Duration::from_millis(200);

/// The path parameters of a batch: its group and its id.
type Pair = PathParams<(String, String)>;

fn pair(names: &(String, String)) -> ApiResult<(GroupId, BatchId)> {
    Ok((group_id(&names.0)?, batch_id(&names.1)?))
}

fn on(group: &GroupId, batch: &BatchId) -> String {
    format!("{group}/{batch}")
}

async fn view(app: &App, group: GroupId, batch: BatchId) -> ApiResult<Batch> {
    match app.query(Query::Batch(group, batch)).await? {
        View::Batch(view) => Ok(convert::batch(view)),
        other => unreachable!("a query for a batch returned {other:?}"),
    }
}

/// Opens a batch.
///
/// Jobs can be added to the batch until somebody seals it. Opening an open batch again changes nothing.
#[utoipa::path(
    put, path = "/v1/groups/{group}/batches/{batch}",
    operation_id = "openBatch", tag = "batches", security(("apiKey" = ["SUBMIT"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
    request_body(
        content = OpenBatch, description = "Options of the batch. Every field has a default.",
        example = json!({"failureThresholdPercent": 50, "keepResults": true})
    ),
    responses(
        (status = 201, description = "The service opened the batch.", body = Batch),
        (status = 200, description = "The batch was open already.", body = Batch)
    )
)]
pub(crate) async fn open(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(body): Json<OpenBatch>,
) -> ApiResult<Response> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Submit, &group)?;
    if let Some(callback) = &body.callback
        && !app.config.callbacks.contains_key(callback)
    {
        let known: Vec<&str> = app.config.callbacks.keys().map(String::as_str).collect();
        return Err(ApiError::invalid(format!(
            "callback {callback:?} is not configured; the configuration has {known:?}"
        )));
    }
    let params = OpenBatchParams {
        group: group.clone(),
        batch: batch.clone(),
        base_priority: body.base_priority,
        options: BatchOptions {
            failure_threshold_percent: body.failure_threshold_percent.unwrap_or(100),
            keep_results: body.keep_results,
            callback: body.callback,
        },
    };
    let status = match app.execute(params).await? {
        Opened::New => StatusCode::CREATED,
        Opened::Already => StatusCode::OK,
    };
    let body = Json(view(&app, group, batch).await?);
    Ok((status, body).into_response())
}

/// Reads one batch with its progress.
#[utoipa::path(
    get, path = "/v1/groups/{group}/batches/{batch}",
    operation_id = "getBatch", tag = "batches", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
    responses(
        (
            status = 200, description = "The batch.", body = Batch, example = json!({
                "group": "acme", "id": "newsletter-7", "status": "RUNNING", "sealed": true, "paused": false, "cancelled": false,
                "counts": {"total": 2, "success": 1, "failed": 0}, "errors": [], "createdAt": "2026-03-01T09:30:00.250Z",
                "estimate": {"earliestSeconds": 38, "latestSeconds": 46}
            })
        )
    )
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
) -> ApiResult<Json<Batch>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    Ok(Json(view(&app, group, batch).await?))
}

/// Seals a batch.
///
/// A sealed batch takes no more jobs, so that it can complete.
#[utoipa::path(
    post, path = "/v1/groups/{group}/batches/{batch}/seal",
    operation_id = "sealBatch", tag = "batches", security(("apiKey" = ["SUBMIT"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
    responses(
        (
            status = 200, description = "The batch is sealed.", body = Sealed,
            example = json!({"batch": "newsletter-7", "totalJobs": 2, "batchComplete": false})
        )
    )
)]
pub(crate) async fn seal(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
) -> ApiResult<Json<Sealed>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Submit, &group)?;
    seal_batch(&app, group, batch).await.map(Json)
}

pub(crate) async fn seal_batch(app: &App, group: GroupId, batch: BatchId) -> ApiResult<Sealed> {
    let params = SealBatchParams {
        group,
        batch: Some(batch),
    };
    let sealed = app.execute(params).await?;
    Ok(Sealed {
        batch: sealed.batch.into(),
        total_jobs: sealed.total_jobs,
        batch_complete: sealed.batch_complete,
    })
}

/// Pauses a batch.
///
/// The service starts no more jobs of the batch. Jobs that run already continue.
#[utoipa::path(
    post, path = "/v1/groups/{group}/batches/{batch}/pause",
    operation_id = "pauseBatch", tag = "batches", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The paused batch.", body = Batch))
)]
pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Batch>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("batch.pause", on(&group, &batch)).because(reason.why);
    let scope = Scope::Batch(group.clone(), batch.clone());
    app.audited(&caller, command, app.execute(PauseParams { scope }))
        .await?;
    Ok(Json(view(&app, group, batch).await?))
}

/// Resumes a paused batch.
#[utoipa::path(
    post, path = "/v1/groups/{group}/batches/{batch}/resume",
    operation_id = "resumeBatch", tag = "batches", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The resumed batch.", body = Batch))
)]
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Batch>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("batch.resume", on(&group, &batch)).because(reason.why);
    let scope = Scope::Batch(group.clone(), batch.clone());
    app.audited(&caller, command, app.execute(ResumeParams { scope }))
        .await?;
    Ok(Json(view(&app, group, batch).await?))
}

/// Cancels every job of a batch that is not running.
///
/// Cancelled jobs are dead with the reason `CANCELLED`; they can be replayed, and their ids submitted again. Running jobs
/// stay with their workers. When they have ended, the batch is `CANCELLED`.
#[utoipa::path(
    post, path = "/v1/groups/{group}/batches/{batch}/cancel",
    operation_id = "cancelBatch", tag = "batches", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
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
    PathParams(names): Pair,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Cancelled>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("batch.cancel", on(&group, &batch)).because(reason.why);
    let cancelled = cancel_all(&app, Scope::Batch(group, batch));
    app.audited(&caller, command, cancelled).await.map(Json)
}

/// Lists a batch's jobs with their results.
///
/// Jobs come in the order in which the service accepted them. A batch that was opened with `keepResults` keeps its
/// finished jobs until it is decided.
#[utoipa::path(
    get, path = "/v1/groups/{group}/batches/{batch}/results",
    operation_id = "listBatchResults", tag = "batches", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path), ("batch" = String, Path), Listing),
    responses((status = 200, description = "One page of jobs.", body = Page<Job>))
)]
pub(crate) async fn results(
    State(app): State<App>,
    caller: Caller,
    PathParams(names): Pair,
    QueryParams(params): QueryParams<Listing>,
) -> ApiResult<Json<Page<Job>>> {
    let (group, batch) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    let (after, max) = (cursor(params.cursor.as_deref())?, page_size(params.limit)?);
    let mut filling = Filling::new(after, max);
    while let Some((after, max)) = filling.wants() {
        let store = app.available_store()?;
        let read = store.results(&group, &batch, after, max).await??;
        filling.take(read, JobDetails::bytes);
    }
    let page = filling.page();
    Ok(Json(convert::page(page, |details| {
        convert::job(group.as_str(), details)
    })))
}

/// Streams a batch's progress.
///
/// The service sends an event `progress` at once and after every change. Each one carries a `Batch` as JSON. The event
/// that reports `COMPLETED`, `FAILED` or `CANCELLED` is the last one. If the service can no longer follow the batch, it sends an
/// event `problem` with a `Problem` and ends the stream.
#[utoipa::path(
    get, path = "/v1/groups/{group}/batches/{batch}/events",
    operation_id = "streamBatchEvents", tag = "batches", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path), ("batch" = String, Path)),
    responses(
        (
            status = 200, description = "Server-sent events named `progress`, each with a `Batch`; or one named `problem` with a `Problem`.",
            content_type = "text/event-stream", body = String,
            example = json!("event: progress\ndata: {\"group\":\"acme\",\"id\":\"newsletter-7\",\"status\":\"RUNNING\"}\n\n")
        )
    )
)]
pub(crate) async fn progress(
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
                        let key = (seen.status, seen.counts, seen.cancelled, seen.sealed);
                        if last == Some(key) {
                            continue;
                        }
                        last = Some(key);
                        let more = !seen.status.is_finished();
                        return Some((Ok(event("progress", &seen)), more.then_some((last, None))));
                    }
                    // An outage may end; a batch that is gone stays gone.
                    Err(refused) if refused.kind.0.is_server_error() => {
                        tokio::time::sleep(INTERVAL * 5).await;
                    }
                    Err(refused) => return Some((Ok(event("problem", &refused.problem())), None)),
                }
            }
        }
    })
}
