//! Extractors for bodies, paths and queries. Their errors say what is wrong with the request.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::bulk::views::Cursor;

use crate::problem::{ApiError, ApiResult, BAD_CURSOR, BAD_REQUEST, MEDIA_TYPE, TIMEOUT, TOO_LARGE};
use crate::state::App;

/// The media type of the body, without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or(value).trim())
}

fn is_json(media: &str) -> bool {
    media.eq_ignore_ascii_case("application/json")
        || (media.len() > 5 && media[media.len() - 5..].eq_ignore_ascii_case("+json"))
}

/// Reads a whole body. Fails if the client pauses for longer than `pause`, or sends more than `max` bytes.
pub(crate) async fn whole_body(body: Body, max: u64, pause: Duration) -> ApiResult<Bytes> {
    let mut stream = body.into_data_stream();
    let mut whole = BytesMut::new();
    loop {
        let next = tokio::time::timeout(pause, stream.next()).await;
        match next.map_err(|_| slow(pause))? {
            None => return Ok(whole.freeze()),
            Some(Err(error)) => return Err(broken(&error)),
            Some(Ok(piece)) => {
                if (whole.len() + piece.len()) as u64 > max {
                    return Err(ApiError::new(
                        TOO_LARGE,
                        format!(
                            "the body has more than {max} bytes; send less at once, or send jobs as application/x-ndjson"
                        ),
                    ));
                }
                whole.extend_from_slice(&piece);
            }
        }
    }
}

pub(crate) fn slow(pause: Duration) -> ApiError {
    let ms = pause.as_millis();
    ApiError::new(
        TIMEOUT,
        format!("the client paused for more than {ms} ms within the body"),
    )
}

pub(crate) fn broken(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::new(BAD_REQUEST, format!("cannot read the body: {error}"))
}

/// A JSON body. An absent one counts as `{}`, so that requests without arguments need no body.
#[derive(Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let media = media_type(request.headers()).map(str::to_owned);
        let server = &app.config.server;
        let body = whole_body(
            request.into_body(),
            server.max_body_bytes,
            server.body_pause_ms.into(),
        );
        let longest = Duration::from(server.request_timeout_ms);
        let body = tokio::time::timeout(longest, body).await.map_err(|_| {
            let ms = longest.as_millis();
            ApiError::new(TIMEOUT, format!("the body did not arrive within {ms} ms"))
        })??;
        match media.as_deref() {
            Some(media) if is_json(media) => {}
            None if body.is_empty() => {}
            Some(other) => {
                let detail = format!("the body is {other}; it must be application/json");
                return Err(ApiError::new(MEDIA_TYPE, detail));
            }
            None => {
                let detail = "the body has no Content-Type; it must be application/json";
                return Err(ApiError::new(MEDIA_TYPE, detail));
            }
        }
        let text = if body.is_empty() { &b"{}"[..] } else { &body };
        serde_json::from_slice(text).map(Json).map_err(|error| {
            // JSON with wrong fields is 422; a text that is not JSON is 400.
            let detail = format!("invalid request body: {error}");
            if error.is_data() {
                ApiError::invalid(detail)
            } else {
                ApiError::new(BAD_REQUEST, detail)
            }
        })
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => {
                let mut response = body.into_response();
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            }
            Err(error) => {
                tracing::error!(%error, "failed to serialize a response");
                ApiError::new(
                    crate::problem::INTERNAL,
                    "the response cannot be serialized; see the service's log",
                )
                .into_response()
            }
        }
    }
}

/// The parameters in a path.
#[derive(Debug)]
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for PathParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Path(names) = Path::<T>::from_request_parts(parts, app)
            .await
            .map_err(|error| ApiError::invalid(format!("invalid path parameter: {}", error.body_text())))?;
        Ok(Self(names))
    }
}

/// The parameters after the question mark.
#[derive(Debug)]
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<App> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let Query(params) = Query::<T>::from_request_parts(parts, app)
            .await
            .map_err(|error| ApiError::invalid(format!("invalid query parameter: {}", error.body_text())))?;
        Ok(Self(params))
    }
}

/// Writes a cursor as the API shows it. It is opaque, so that clients do not calculate with it.
pub(crate) fn cursor_text(cursor: Cursor) -> String {
    format!("c{:x}", cursor.0)
}

pub(crate) fn cursor(text: Option<&str>) -> ApiResult<Option<Cursor>> {
    // Limit: the stores compare both halves of a cursor as doubles.
    let exact = |number: &u128| (*number as u64) < 1 << 53 && number >> 64 < 1 << 53;
    cursor_that(text, exact)
}

/// A cursor into the jobs of the whole store, which is a place and not a number.
pub(crate) fn place(text: Option<&str>) -> ApiResult<Option<Cursor>> {
    cursor_that(text, |_| true)
}

fn cursor_that(text: Option<&str>, fits: impl Fn(&u128) -> bool) -> ApiResult<Option<Cursor>> {
    let Some(text) = text else { return Ok(None) };
    let number = text
        .strip_prefix('c')
        .filter(|hex| !hex.starts_with('+'))
        .and_then(|hex| u128::from_str_radix(hex, 16).ok())
        .filter(fits);
    match number {
        Some(number) => Ok(Some(Cursor(number))),
        None => {
            let detail = format!(
                "{text:?} is not a cursor; pass `next` of the previous page, or leave the cursor out"
            );
            Err(ApiError::new(BAD_CURSOR, detail))
        }
    }
}
