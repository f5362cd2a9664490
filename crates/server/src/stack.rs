//! The layers around every request, outermost first: compression, request id, panics, authentication, decompression,
//! timeout.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::decompression::RequestDecompressionLayer;
use tracing::Instrument;

use crate::problem::{ApiError, INTERNAL, Kind, MEDIA_TYPE, TOO_SLOW};
use crate::stale::{self, Stale};
use crate::state::App;
use crate::{auth, pages, routes, telemetry};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Builds the router for everything that the port serves.
pub(crate) fn router(app: &App) -> Router {
    let (api, visitors, description) = routes::api();
    let api = api
        .layer(middleware::from_fn_with_state(
            Arc::new(Stale::default()),
            stale::cache,
        ))
        .layer(middleware::from_fn_with_state(app.clone(), in_time))
        .layer(RequestDecompressionLayer::new());
    Router::new()
        .merge(api)
        .merge(visitors)
        .merge(crate::room::page::route::routes())
        .merge(pages::private(description))
        .merge(pages::public())
        .merge(auth::routes())
        .fallback(pages::nothing_here)
        .method_not_allowed_fallback(pages::wrong_method)
        .layer(middleware::from_fn_with_state(app.clone(), auth::guard))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(app.clone(), identified))
        // Outermost, because the inner layers read bodies that are not compressed.
        .layer(CompressionLayer::new())
        .with_state(app.clone())
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("no message"), "a request panicked");
    ApiError::new(INTERNAL, "the request handler panicked; see the service's log").into_response()
}

/// Gives every request an id. The response, its problem and the log carry it.
async fn identified(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let given = request.headers().get(&REQUEST_ID).filter(|id| {
        // The id goes into the log, so only short and plain ones are accepted.
        id.len() <= 64
            && id
                .as_bytes()
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    });
    let id = given.cloned().unwrap_or_else(|| {
        let id = format!("{:x}-{:x}", app.now().0, app.request_number());
        HeaderValue::try_from(id).expect("hex digits and a dash")
    });
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|route| route.as_str().to_owned());
    let text = id.to_str().unwrap_or_default();
    let span = telemetry::request_span(method.as_str(), route.as_deref(), text, request.headers());
    let begun = Instant::now();
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status().as_u16(), begun.elapsed());
    span.record("status", status);
    app.metrics.request(&method, route.as_deref(), status, took);
    tracing::debug!(id = text, %method, path, route, status, ms = took.as_millis() as u64, "request");
    // The decompression layer answers without a problem document.
    if status == 415 && response.extensions().get::<Kind>().is_none() {
        let detail = "the body's Content-Encoding is not supported; use gzip, zstd or none";
        response = ApiError::new(MEDIA_TYPE, detail).into_response();
    }
    if response.extensions().get::<Kind>().is_some() {
        response = with_id(response, text).await;
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Adds the request's id to a problem, so that a screenshot is enough to find the request in the log.
async fn with_id(response: Response, id: &str) -> Response {
    let (mut head, body) = response.into_parts();
    let Ok(body) = body.collect().await else {
        return Response::from_parts(head, Body::empty());
    };
    let body = body.to_bytes();
    let body = match serde_json::from_slice::<tidegate_api::Problem>(&body) {
        Ok(mut problem) => {
            problem.request_id = Some(id.to_owned());
            serde_json::to_vec(&problem).map_or(body, Into::into)
        }
        Err(_) => body,
    };
    head.headers.remove(axum::http::header::CONTENT_LENGTH);
    Response::from_parts(head, Body::from(body))
}

/// Routes with bounds of their own: long polls, streams of jobs, and commands on all dead jobs or dead letters.
const UNBOUNDED: [&str; 8] = [
    "/v1/leases",
    "/v1/jobs",
    "/v1/groups/{group}/jobs",
    "/v1/groups/{group}/batches/{batch}/jobs",
    "/v1/dead-jobs/replay",
    "/v1/dead-jobs/purge",
    "/v1/refresh/dead-letters/replay",
    "/v1/refresh/dead-letters/purge",
];

/// Ends a request that takes longer than `server.request_timeout_ms`.
async fn in_time(
    State(app): State<App>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    if route.is_some_and(|route| UNBOUNDED.contains(&route.as_str())) {
        return next.run(request).await;
    }
    let longest = app.config.server.request_timeout_ms;
    match tokio::time::timeout(longest.into(), next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::new(
            TOO_SLOW,
            format!("the request took longer than {longest}; it may or may not have been carried out"),
        )
        .into_response(),
    }
}
