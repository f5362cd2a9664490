//! Records: read, ask for a refresh, follow until fresh. Answered from the database alone: what else is away does not
//! matter to a reader.

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

use crate::auth::Caller;
use crate::convert::time;
use crate::convert_refresh as convert;
use crate::events::{event, events};
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{
    ApiError, ApiResult, DATABASE, INTERNAL, NO_REFRESH, NOT_QUEUED, REFRESH_HELD, STOPPING, UNAVAILABLE,
    UNKNOWN_SOURCE,
};
use crate::state::App;

/// Limit: records in one batch.
const MAX_BATCH: usize = 1_000;
/// How much longer than the refresh part itself a request for a refresh is waited for.
const MARGIN: Duration = Duration::from_millis(500);

/// The names of a source and a record of it.
type Pair = PathParams<(String, String)>;

impl App {
    /// The refresh part, if anything is refreshed here.
    pub(super) fn refreshes(&self) -> ApiResult<&RefreshHandle> {
        self.refresh.as_ref().ok_or_else(|| {
            let detail =
                "no source is configured, so nothing is refreshed; add one to [sources] of the settings";
            ApiError::new(NO_REFRESH, detail)
        })
    }
}

/// A record that may be asked for.
fn record_id(handle: &RefreshHandle, source: &str, key: &str) -> ApiResult<RecordId> {
    let source = SourceId::new(source).map_err(|_| unknown_source(handle, source))?;
    let Some(options) = handle.sources().get(&source) else {
        return Err(unknown_source(handle, source.as_str()));
    };
    let odd = |error: &dyn std::fmt::Display| {
        ApiError::invalid(format!("this is no key of source {source:?}: {error}"))
    };
    options.keys.check(key).map_err(|error| odd(&error))?;
    let key = RecordKey::new(key).map_err(|error| odd(&error))?;
    Ok(RecordId { source, key })
}

pub(super) fn unknown_source(handle: &RefreshHandle, source: &str) -> ApiError {
    let known: Vec<&str> = handle.sources().keys().map(SourceId::as_str).collect();
    let detail = format!(
        "source {source:?} is not configured; there are {}",
        known.join(", ")
    );
    ApiError::new(UNKNOWN_SOURCE, detail)
}

impl From<RefreshError> for ApiError {
    fn from(error: RefreshError) -> Self {
        let told = error.to_string();
        match error {
            RefreshError::Snapshots(_) | RefreshError::ReadTimeout(_) | RefreshError::Overloaded => {
                ApiError::new(DATABASE, told)
            }
            RefreshError::Store(error) => error.into(),
            RefreshError::Log(_) => ApiError::new(UNAVAILABLE, told),
            RefreshError::UnknownSource(_) => ApiError::new(UNKNOWN_SOURCE, told),
            RefreshError::BadKey { .. } => ApiError::invalid(told),
            RefreshError::NotQuerying => ApiError::new(
                NO_REFRESH,
                "refresh.roles of this process is \"work\": it answers no reads; ask one whose roles are \"query\" or \"all\"",
            ),
            RefreshError::Closed => ApiError::new(STOPPING, told),
            RefreshError::Config(_) => ApiError::new(INTERNAL, told),
        }
    }
}

fn told(app: &App, handle: &RefreshHandle, view: &RecordView) -> Record {
    let target = handle
        .sources()
        .get(&view.record.source)
        .map(|source| &source.target);
    let budget = app.budgets.as_ref().zip(target);
    let budget = budget.and_then(|(budgets, target)| budgets.of(target));
    convert::record(view, budget.as_ref(), handle.now())
}

/// A record as JSON, with the stored text as it is: it is JSON already, and nobody here has to read it.
fn body(record: &Record, view: &RecordView) -> ApiResult<Vec<u8>> {
    const EMPTY: &[u8] = b"{\"snapshot\":null";
    let broken = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, record = %view.record, "what is stored of a record cannot be read");
        ApiError::new(
            INTERNAL,
            "what is stored of the record cannot be read; it is in the service's log",
        )
    };
    let head = serde_json::to_vec(record).map_err(|error| broken(&error))?;
    let Some(data) = view.data().map_err(|error| broken(&error))? else {
        return Ok(head);
    };
    let rest = head
        .strip_prefix(EMPTY)
        .ok_or_else(|| broken(&"it does not begin with its snapshot"))?;
    let mut whole = Vec::with_capacity(data.len() + head.len());
    whole.extend_from_slice(b"{\"snapshot\":");
    whole.extend_from_slice(&data);
    whole.extend_from_slice(rest);
    Ok(whole)
}

/// Weak: the estimate may differ. Of everything else two answers with the same tag say the same.
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
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams((source, key)): Pair,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refreshes()?;
    let id = record_id(handle, &source, &key)?;
    let view = handle.read(&id, correlation(&headers)).await?;
    let record = told(&app, handle, &view);
    let tag = tag(&record, &view);
    let mut known = headers.get_all(header::IF_NONE_MATCH).iter();
    let same = tag
        .as_ref()
        .is_some_and(|tag| known.any(|known| matches_tag(known, tag)));
    let mut response = match same {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => {
            let mut response = body(&record, &view)?.into_response();
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

/// Ties what one request set off together: its id, which the log has, too.
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
pub(super) async fn read_many(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<ReadRecords>,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refreshes()?;
    if asked.records.len() > MAX_BATCH {
        let len = asked.records.len();
        return Err(ApiError::invalid(format!(
            "{len} records are named; at most {MAX_BATCH} are allowed"
        )));
    }
    let ids: Vec<ApiResult<RecordId>> = asked
        .records
        .iter()
        .map(|name| record_id(handle, &name.source, &name.key))
        .collect();
    let good: Vec<RecordId> = ids.iter().flatten().cloned().collect();
    let mut views = handle.read_many(&good).await?.into_iter();
    let mut whole = b"{\"records\":[".to_vec();
    for (index, (name, id)) in asked.records.into_iter().zip(ids).enumerate() {
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
                let record = told(&app, handle, &view);
                let mut head = written(&item)?;
                // The record goes before the closing brace.
                head.pop();
                whole.extend_from_slice(&head);
                whole.extend_from_slice(b",\"record\":");
                whole.extend_from_slice(&body(&record, &view)?);
                whole.push(b'}');
            }
            Err(refused) => {
                item.problem = Some(RecordProblem {
                    code: refused.kind.1.to_owned(),
                    detail: refused.detail,
                });
                whole.extend_from_slice(&written(&item)?);
            }
        }
    }
    whole.extend_from_slice(b"]}");
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, whole).into_response())
}

fn written(item: &ReadRecord) -> ApiResult<Vec<u8>> {
    serde_json::to_vec(item).map_err(|_| ApiError::new(INTERNAL, "the answer cannot be written"))
}

/// Requests a refresh of a record.
///
/// The service refreshes the record also if it is fresh, and before records that nobody asked for. Requests for the
/// same record share one refresh.
#[utoipa::path(
    post, path = "/v1/records/{source}/{key}/refresh",
    operation_id = "refreshRecord", tag = "records", security(("apiKey" = ["SUBMIT"]), ()),
    params(("source" = String, Path), ("key" = String, Path)),
    responses(
        (status = 202, description = "A refresh is queued, or was finished a moment ago.", body = RefreshRequested)
    )
)]
pub(super) async fn refresh(
    State(app): State<App>,
    caller: Caller,
    PathParams((source, key)): Pair,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Submit)?;
    let handle = app.refreshes()?;
    let id = record_id(handle, &source, &key)?;
    let requested_at = handle.now();
    let wait = Duration::from(handle.options().query.ask_timeout_ms) + MARGIN;
    let asked = handle.request_refresh(&id, correlation(&headers), wait).await?;
    let (outcome, version) = outcome(asked, handle.now())?;
    let body = Json(RefreshRequested {
        source,
        key,
        outcome,
        version,
        requested_at: time(requested_at),
    });
    Ok((StatusCode::ACCEPTED, body).into_response())
}

fn outcome(asked: PublishOutcome, now: Timestamp) -> ApiResult<(RefreshOutcome, Option<u64>)> {
    let unqueued = |detail: String| Err(ApiError::new(NOT_QUEUED, detail));
    match asked {
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
                "its last refresh failed or was put aside; it is not tried again before {}",
                time(at)
            );
            Err(ApiError::new(REFRESH_HELD, detail).after(at.since(now)))
        }
        PublishOutcome::Refused { why } => unqueued(format!("{why}; repeating the request later is safe")),
        PublishOutcome::Unknown => {
            unqueued("whether it is queued was not heard in time; repeating the request is safe".to_owned())
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Since {
    /// The stream ends when the refresh of this `version`, as the request for it told, or a later one has ended. Without it
    /// the stream ends when the record is fresh.
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
pub(super) async fn follow(
    State(app): State<App>,
    caller: Caller,
    PathParams((source, key)): Pair,
    QueryParams(asked): QueryParams<Since>,
) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refreshes()?;
    let id = record_id(handle, &source, &key)?;
    let follower = handle.follow(id, asked.version.map(Version))?;
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
            let text = body(&told(&app, &handle, &view), &view);
            let text = text.and_then(|text| {
                String::from_utf8(text).map_err(|_| ApiError::new(INTERNAL, "what is stored is no text"))
            });
            match text {
                Ok(text) => Some((Ok(Event::default().event(name).data(text)), Some(follower))),
                Err(refused) => Some((Ok(event("problem", &refused.problem())), None)),
            }
        }
    })
}
