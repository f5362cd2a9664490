//! Records: read, request a refresh, follow until fresh. Reads need only the database, so they work while the store or the log
//! is unavailable.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use serde::Deserialize;
use tidegate_api::{
    ReadRecord, ReadRecords, Record, RecordProblem, RecordsRead, RefreshOutcome, RefreshRequested, Role,
};
use tidegate_core::ids::{CorrelationId, RecordId, RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::RequestOutcome;
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::{PublishOutcome, RecordView, RefreshError, RefreshHandle};
use utoipa::IntoParams;

use super::convert;
use crate::auth::Caller;
use crate::bulk::convert::time;
use crate::events::{event, events};
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{
    ApiError, ApiResult, DATABASE, INTERNAL, NO_REFRESH, NOT_QUEUED, REFRESH_HELD, STOPPING, UNAVAILABLE,
    UNKNOWN_SOURCE,
};
use crate::state::App;

/// Limit: records in one batch.
const MAX_BATCH: usize = 1_000;
/// How much longer than the refresh module itself the handler waits for the request to be published.
const MARGIN: Duration = Duration::from_millis(500);

/// The path parameters of a record: its source and its key.
type Pair = PathParams<(String, String)>;

impl App {
    /// The handle of the refresh module; a problem without sources.
    pub(crate) fn refresh_handle(&self) -> ApiResult<&RefreshHandle> {
        self.refresh.as_ref().ok_or_else(|| {
            let detail = "the configuration has no sources; add one to [sources]";
            ApiError::new(NO_REFRESH, detail)
        })
    }
}

/// Checks the source and the key of a record.
fn record_id(handle: &RefreshHandle, source: &str, key: &str) -> ApiResult<RecordId> {
    let source = SourceId::new(source).map_err(|_| unknown_source(handle, source))?;
    let Some(options) = handle.sources().get(&source) else {
        return Err(unknown_source(handle, source.as_str()));
    };
    let odd = |error: &dyn std::fmt::Display| {
        ApiError::invalid(format!("the key is not valid for source {source:?}: {error}"))
    };
    options.keys.check(key).map_err(|error| odd(&error))?;
    let key = RecordKey::new(key).map_err(|error| odd(&error))?;
    Ok(RecordId { source, key })
}

pub(crate) fn unknown_source(handle: &RefreshHandle, source: &str) -> ApiError {
    let known: Vec<&str> = handle.sources().keys().map(SourceId::as_str).collect();
    let detail = format!(
        "source {source:?} is not configured; configured sources are {}",
        known.join(", ")
    );
    ApiError::new(UNKNOWN_SOURCE, detail)
}

impl From<RefreshError> for ApiError {
    fn from(error: RefreshError) -> Self {
        let detail = error.to_string();
        match error {
            RefreshError::Snapshots(_) | RefreshError::ReadTimeout(_) | RefreshError::Overloaded => {
                ApiError::new(DATABASE, detail)
            }
            RefreshError::Store(error) => error.into(),
            RefreshError::Log(_) => ApiError::new(UNAVAILABLE, detail),
            RefreshError::UnknownSource(_) => ApiError::new(UNKNOWN_SOURCE, detail),
            RefreshError::BadKey { .. } => ApiError::invalid(detail),
            RefreshError::NotQuerying => ApiError::new(
                NO_REFRESH,
                "this process has refresh.roles = \"work\", so it answers no reads; send them to one with \"query\" or \"all\"",
            ),
            RefreshError::Closed => ApiError::new(STOPPING, detail),
            RefreshError::Config(_) => ApiError::new(INTERNAL, detail),
        }
    }
}

/// Converts a record without its snapshot.
fn rendered(app: &App, handle: &RefreshHandle, view: &RecordView) -> Record {
    let target = handle
        .sources()
        .get(&view.record.source)
        .map(|source| &source.target);
    let budget = app.budgets.as_ref().zip(target);
    let budget = budget.and_then(|(budgets, target)| budgets.of(target));
    convert::record(view, budget.as_ref(), handle.now())
}

/// Writes a record as JSON. It copies the stored snapshot, which is JSON already, without parsing it.
fn record_json(record: &Record, view: &RecordView) -> ApiResult<Vec<u8>> {
    const EMPTY: &[u8] = b"{\"snapshot\":null";
    let broken = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, record = %view.record, "failed to read a stored record");
        ApiError::new(
            INTERNAL,
            "the stored record cannot be read; see the service's log",
        )
    };
    let head = serde_json::to_vec(record).map_err(|error| broken(&error))?;
    let Some(data) = view.data().map_err(|error| broken(&error))? else {
        return Ok(head);
    };
    let rest = head
        .strip_prefix(EMPTY)
        .ok_or_else(|| broken(&"the JSON does not start with the snapshot"))?;
    let mut whole = Vec::with_capacity(data.len() + head.len());
    whole.extend_from_slice(b"{\"snapshot\":");
    whole.extend_from_slice(&data);
    whole.extend_from_slice(rest);
    Ok(whole)
}

/// The weak `ETag` of a record. Two responses with the same tag are equal except for the estimated wait.
fn tag(record: &Record, view: &RecordView) -> Option<HeaderValue> {
    let snapshot = view.snapshot.as_ref()?;
    let hash = u64::from_be_bytes(snapshot.hash[..8].try_into().ok()?);
    let (checked, queued) = (snapshot.last_checked_at.0, u8::from(record.update_queued));
    let why = record.why.as_ref().map_or(0, |hold| hold.code as u8 + 1);
    let text = format!(
        "W/\"{hash:x}-{checked:x}-{}-{queued}-{why}\"",
        record.freshness as u8
    );
    HeaderValue::try_from(text).ok()
}

/// Reads a record.
///
/// The service answers at once with the snapshot that it has, however old. If the snapshot is stale or missing, the
/// service also requests a refresh. Send `If-None-Match` with the `ETag` of an earlier answer to save the body.
#[utoipa::path(
    get, path = "/v1/records/{source}/{key}",
    operation_id = "getRecord", tag = "records", security(("apiKey" = ["READ"]), ()),
    params(("source" = String, Path), ("key" = String, Path)),
    responses(
        (status = 200, description = "The record as the service knows it.", body = Record),
        (status = 304, description = "The record has not changed since the answer that `If-None-Match` names.")
    )
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams((source, key)): Pair,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refresh_handle()?;
    let id = record_id(handle, &source, &key)?;
    let view = handle.read(&id, correlation(&headers)).await?;
    let record = rendered(&app, handle, &view);
    let tag = tag(&record, &view);
    let mut known = headers.get_all(header::IF_NONE_MATCH).iter();
    let same = tag
        .as_ref()
        .is_some_and(|tag| known.any(|known| matches_tag(known, tag)));
    let mut response = match same {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let mut response = record_json(&record, &view)?.into_response();
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Some(tag) = tag {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

fn matches_tag(known: &HeaderValue, tag: &HeaderValue) -> bool {
    let (Ok(known), Ok(tag)) = (known.to_str(), tag.to_str()) else {
        return false;
    };
    let plain = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    known
        .split(',')
        .any(|known| known.trim() == "*" || plain(known) == plain(tag))
}

/// The request's id as correlation id. It connects the events of one request, and the log has it, too.
fn correlation(headers: &HeaderMap) -> Option<CorrelationId> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    CorrelationId::new(id).ok()
}

/// Reads up to 1,000 records.
///
/// Each record is answered, and refreshed if it is stale or missing, as by a single read.
#[utoipa::path(
    post, path = "/v1/records/read",
    operation_id = "readRecords", tag = "records", security(("apiKey" = ["READ"]), ()),
    request_body(
        content = ReadRecords, description = "Which records.",
        example = json!({"records": [{"source": "products", "key": "4711"}]})
    ),
    responses(
        (status = 200, description = "One entry per record, in the order of the request.", body = RecordsRead)
    )
)]
pub(crate) async fn read_many(
    State(app): State<App>,
    caller: Caller,
    Json(body): Json<ReadRecords>,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refresh_handle()?;
    if body.records.len() > MAX_BATCH {
        let len = body.records.len();
        return Err(ApiError::invalid(format!(
            "{len} records are named; at most {MAX_BATCH} are allowed"
        )));
    }
    let ids: Vec<ApiResult<RecordId>> = body
        .records
        .iter()
        .map(|name| record_id(handle, &name.source, &name.key))
        .collect();
    let good: Vec<RecordId> = ids.iter().flatten().cloned().collect();
    let mut views = handle.read_many(&good).await?.into_iter();
    let mut whole = b"{\"records\":[".to_vec();
    for (index, (name, id)) in body.records.into_iter().zip(ids).enumerate() {
        let read = match id {
            Ok(_) => views
                .next()
                .unwrap_or(Err(RefreshError::Closed))
                .map_err(ApiError::from),
            Err(refused) => Err(refused),
        };
        if index > 0 {
            whole.push(b',');
        }
        let mut item = ReadRecord {
            source: name.source,
            key: name.key,
            record: None,
            problem: None,
        };
        match read {
            Ok(view) => {
                let record = rendered(&app, handle, &view);
                let mut head = serialized(&item)?;
                // The record goes before the closing brace.
                head.pop();
                whole.extend_from_slice(&head);
                whole.extend_from_slice(b",\"record\":");
                whole.extend_from_slice(&record_json(&record, &view)?);
                whole.push(b'}');
            }
            Err(refused) => {
                item.problem = Some(RecordProblem {
                    code: refused.kind.1.to_owned(),
                    detail: refused.detail,
                });
                whole.extend_from_slice(&serialized(&item)?);
            }
        }
    }
    whole.extend_from_slice(b"]}");
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, whole).into_response())
}

fn serialized(item: &ReadRecord) -> ApiResult<Vec<u8>> {
    serde_json::to_vec(item).map_err(|_| ApiError::new(INTERNAL, "the response cannot be serialized"))
}

/// Requests a refresh of a record.
///
/// The service refreshes the record even if it is fresh, and before records that nobody requested. Requests for the same
/// record share one refresh.
#[utoipa::path(
    post, path = "/v1/records/{source}/{key}/refresh",
    operation_id = "refreshRecord", tag = "records", security(("apiKey" = ["SUBMIT"]), ()),
    params(("source" = String, Path), ("key" = String, Path)),
    responses(
        (status = 202, description = "A refresh is queued, or was finished a moment ago.", body = RefreshRequested)
    )
)]
pub(crate) async fn refresh(
    State(app): State<App>,
    caller: Caller,
    PathParams((source, key)): Pair,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Submit)?;
    let handle = app.refresh_handle()?;
    let id = record_id(handle, &source, &key)?;
    let requested_at = handle.now();
    let wait = Duration::from(handle.options().query.request_timeout_ms) + MARGIN;
    let published = handle.request_refresh(&id, correlation(&headers), wait).await?;
    let (outcome, version) = outcome(published, handle.now())?;
    let body = Json(RefreshRequested {
        source,
        key,
        outcome,
        version,
        requested_at: time(requested_at),
    });
    Ok((StatusCode::ACCEPTED, body).into_response())
}

fn outcome(published: PublishOutcome, now: Timestamp) -> ApiResult<(RefreshOutcome, Option<u64>)> {
    let unqueued = |detail: String| Err(ApiError::new(NOT_QUEUED, detail));
    match published {
        PublishOutcome::Queued(RequestOutcome::Published { version }) => {
            Ok((RefreshOutcome::Published, Some(version.0)))
        }
        PublishOutcome::Queued(RequestOutcome::Upgraded { version }) => {
            Ok((RefreshOutcome::Upgraded, Some(version.0)))
        }
        PublishOutcome::Queued(RequestOutcome::AlreadyProcessing { version }) => {
            Ok((RefreshOutcome::AlreadyProcessing, Some(version.0)))
        }
        PublishOutcome::Queued(RequestOutcome::JustRefreshed { .. })
        | PublishOutcome::JustRefreshed { .. } => Ok((RefreshOutcome::JustRefreshed, None)),
        PublishOutcome::NotBefore { at } => {
            let detail = format!(
                "the record's last refresh failed or was delayed; it cannot be refreshed before {}",
                time(at)
            );
            Err(ApiError::new(REFRESH_HELD, detail).after(at.since(now)))
        }
        PublishOutcome::Refused { why } => unqueued(format!("{why}; repeating the request later is safe")),
        PublishOutcome::Unknown => {
            let detail = "the log did not confirm in time whether the refresh is queued; repeating the request is safe";
            unqueued(detail.to_owned())
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Since {
    /// The stream ends when the refresh of this `version`, which the refresh request returned, or a later one has ended.
    /// Without it the stream ends when the record is fresh.
    #[param(minimum = 0)]
    version: Option<u64>,
}

/// Streams a record until it is settled.
///
/// The service sends an event `record` at once and after every change. The event `last` ends the stream: the record is
/// fresh, the upstream says that it does not exist, or the service gave up. Each one carries a `Record` as JSON. An
/// event `problem` with a `Problem` ends the stream early.
#[utoipa::path(
    get, path = "/v1/records/{source}/{key}/events",
    operation_id = "streamRecordEvents", tag = "records", security(("apiKey" = ["READ"]), ()),
    params(("source" = String, Path), ("key" = String, Path), Since),
    responses(
        (
            status = 200, description = "Server-sent events named `record`, the last one `last`, each with a `Record`; or one named `problem` with a `Problem`.",
            content_type = "text/event-stream", body = String,
            example = json!("event: last\ndata: {\"snapshot\":{\"name\":\"Tea\"},\"source\":\"products\",\"key\":\"4711\",\"freshness\":\"FRESH\"}\n\n")
        )
    )
)]
pub(crate) async fn follow(
    State(app): State<App>,
    caller: Caller,
    PathParams((source, key)): Pair,
    QueryParams(query): QueryParams<Since>,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refresh_handle()?;
    let id = record_id(handle, &source, &key)?;
    let follower = handle.follow(id, query.version.map(Version))?;
    let stream = followed(app.clone(), handle.clone(), follower);
    events(&app, stream)
}

fn followed(
    app: App,
    handle: RefreshHandle,
    follower: tidegate_engine::refresh::RecordFollower,
) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(Some(follower), move |follower| {
        let (app, handle) = (app.clone(), handle.clone());
        async move {
            let mut follower = follower?;
            let view = match follower.next().await? {
                Ok(view) => view,
                Err(error) => {
                    let refused = ApiError::from(error);
                    return Some((Ok(event("problem", &refused.problem())), None));
                }
            };
            let name = if follower.has_ended() { "last" } else { "record" };
            let text = record_json(&rendered(&app, &handle, &view), &view);
            let text = text.and_then(|text| {
                String::from_utf8(text)
                    .map_err(|_| ApiError::new(INTERNAL, "the stored record is not valid UTF-8"))
            });
            match text {
                Ok(text) => Some((Ok(Event::default().event(name).data(text)), Some(follower))),
                Err(refused) => Some((Ok(event("problem", &refused.problem())), None)),
            }
        }
    })
}
