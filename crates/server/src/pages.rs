//! Routes beside the API: health, metrics, the OpenAPI document, and the dashboard's files.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::RustEmbed;
use serde::Deserialize;
use tidegate_api::Role;
use utoipa::openapi::OpenApi;

use crate::auth::Caller;
use crate::extract::QueryParams;
use crate::problem::{ApiError, ApiResult, NOT_FOUND};
use crate::state::App;

/// The files of `web/`.
#[derive(RustEmbed)]
#[folder = "../../web"]
struct Web;

/// The content security policy of the pages: only own resources, nothing inline, nothing framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";

/// Routes that need no key.
pub(crate) fn public() -> Router<App> {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/", get(index))
        .route("/docs", get(docs))
        .route("/assets/{*path}", get(asset))
}

/// Routes that need the role `read`.
pub(crate) fn private(description: OpenApi) -> Router<App> {
    let description = axum::body::Bytes::from(description.to_json().unwrap_or_default());
    Router::new().route("/metrics", get(metrics)).route(
        "/openapi.json",
        get(move || {
            let json = [(header::CONTENT_TYPE, "application/json")];
            std::future::ready((json, description.clone()))
        }),
    )
}

/// Liveness of the process. It ignores the store, because restarting this process would not repair the store.
async fn healthz() -> &'static str {
    "ok\n"
}

/// What a readiness check can be limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Records,
}

#[derive(Debug, Deserialize)]
struct Readiness {
    #[serde(rename = "for")]
    part: Option<Part>,
}

/// Readiness: `ok`, or every reason why not, one per line.
///
/// The reasons are general, because callers need no key; the log has the details. Reads of records need only the database.
/// An unavailable store is no reason to send them to another process, for which it is unavailable as well.
async fn readyz(State(app): State<App>, QueryParams(query): QueryParams<Readiness>) -> Response {
    let only_records = query.part == Some(Part::Records);
    let needs_store = !only_records && !app.config.only_queries();
    let rooms = app.rooms.as_ref().filter(|_| !only_records);
    let rooms_failed = rooms.is_some_and(|rooms| rooms.handle.has_failed());
    let rooms_unavailable = rooms.is_some_and(|rooms| rooms.handle.is_unavailable());
    let reasons: String = [
        (app.stopping.is_cancelled(), "the service is shutting down\n"),
        (
            needs_store && app.sampler.unavailable_since().is_some(),
            "the store is unavailable\n",
        ),
        (
            !needs_store && !can_read(&app).await,
            "the database of the records is unavailable\n",
        ),
        (
            rooms_failed,
            "the store of the rooms has failed: restart the service\n",
        ),
        (
            rooms_unavailable && !rooms_failed,
            "the store of the rooms is unavailable: nobody is let in, and nobody loses a ticket\n",
        ),
    ]
    .into_iter()
    .filter_map(|(holds, reason)| holds.then_some(reason))
    .collect();
    match reasons.is_empty() {
        true => "ok\n".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, reasons).into_response(),
    }
}

async fn can_read(app: &App) -> bool {
    match &app.refresh {
        Some(refresh) => refresh.can_read().await,
        None => false,
    }
}

async fn metrics(State(app): State<App>, caller: Caller) -> ApiResult<Response> {
    caller.need_for_all(Role::Read)?;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], app.metrics.render(&app)).into_response())
}

async fn index() -> ApiResult<Response> {
    file("index.html")
}

async fn docs() -> ApiResult<Response> {
    file("docs.html")
}

async fn asset(Path(path): Path<String>) -> ApiResult<Response> {
    file(&path)
}

fn file(path: &str) -> ApiResult<Response> {
    let file =
        Web::get(path).ok_or_else(|| ApiError::new(NOT_FOUND, format!("file {path:?} does not exist")))?;
    let kind = match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    };
    let mut response = file.data.into_owned().into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // A browser must not run a cached page of another version against this API.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(guarded(response))
}

/// Adds the security headers of a page.
pub(crate) fn guarded(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

pub(crate) async fn nothing_here(request: axum::extract::Request) -> ApiError {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    ApiError::new(
        NOT_FOUND,
        format!("{method} {path} does not exist; see /docs for the API"),
    )
}

pub(crate) async fn wrong_method(request: axum::extract::Request) -> ApiError {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    ApiError::new(
        crate::problem::METHOD,
        format!("{path} does not support {method}; see /docs for the API"),
    )
}
