//! Event streams (SSE). Their number is bounded, and they end when the service stops.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use futures_util::StreamExt;
use serde::Serialize;

use crate::problem::{ApiError, ApiResult, TOO_MANY};
use crate::state::App;

/// The service sends a comment this often when a stream is idle, so that proxies and clients keep the connection.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(crate) fn event<T: Serialize>(name: &str, data: &T) -> Event {
    Event::default()
        .event(name)
        .json_data(data)
        .expect("JSON has no raw line ends")
}

/// Responds with a stream until it ends, the client disconnects, or the service stops.
pub(crate) fn events(
    app: &App,
    stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> ApiResult<Response> {
    let Ok(permit) = app.event_streams.clone().try_acquire_owned() else {
        let most = app.config.server.max_event_streams;
        return Err(ApiError::new(
            TOO_MANY,
            format!("{most} event streams are open; server.max_event_streams allows no more"),
        ));
    };
    let stopping = app.stopping.clone();
    let stream = stream
        .take_until(async move { stopping.cancelled().await })
        .map(move |item| {
            let _held_while_the_stream_lives = &permit;
            item
        });
    let mut response = Sse::new(stream)
        .keep_alive(KeepAlive::new().interval(HEARTBEAT))
        .into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that buffer would delay the events.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}
