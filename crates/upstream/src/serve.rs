//! Routes, and connections that can be reset.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, StatusCode};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tower::ServiceExt;

use crate::answer::{Call, Reset};
use crate::call_counter::BEAT;
use crate::clock::Moment;
use crate::shared::Shared;

fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/character/basic", get(by_ocid))
        .route("/character/{key}", get(by_key).post(by_key))
        .route("/report", get(report))
        .route("/set", post(set))
        .route("/reset", post(reset))
        .with_state(shared)
}

/// Accepts connections until `stop`; then all of them end at once.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: oneshot::Receiver<()>) {
    let router = router(shared.clone());
    let mut connections = JoinSet::new();
    let mut beat = tokio::time::interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Checked again at every beat.
            accepted = listener.accept(), if shared.current().0.accepting => {
                if let Ok((stream, _)) = accepted {
                    let _ = stream.set_nodelay(true);
                    connections.spawn(connection(stream, router.clone()));
                } else {
                    // Too many open files, say: others must end first.
                    tokio::task::yield_now().await;
                }
            }
            _ = beat.tick() => {
                // Read first: time that is spent waiting for the counter belongs to the next beat.
                let now = Instant::now();
                shared.counter.beat(now);
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            _ = &mut stop => return,
        }
    }
}

async fn connection(stream: TcpStream, router: Router) {
    let reset = Arc::new(AtomicBool::new(false));
    let stream = ResettableStream {
        stream,
        reset: reset.clone(),
    };
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (router, reset) = (router.clone(), reset.clone());
        async move {
            let Ok(response) = router.oneshot(request.map(axum::body::Body::new)).await;
            if response.extensions().get::<Reset>().is_some() {
                reset.store(true, Ordering::Relaxed);
                return Err(io::Error::other("reset as the settings say"));
            }
            Ok(response)
        }
    });
    // The caller sees the error; nothing here needs it.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn by_ocid(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    // A call without its parameter counts, too.
    let key = query
        .get("ocid")
        .cloned()
        .unwrap_or_else(|| "missing-ocid".to_owned());
    call(&shared, key, headers).await
}

async fn by_key(State(shared): State<Arc<Shared>>, Path(key): Path<String>, headers: HeaderMap) -> Response {
    call(&shared, key, headers).await
}

async fn call(shared: &Shared, key: String, headers: HeaderMap) -> Response {
    shared.counter.send();
    let (settings, library) = shared.admit().await;
    let call = Call {
        now: Moment::now(settings.clock_offset_s, shared.started),
        rng: shared.rng(),
        counter: shared.counter.clone(),
        key,
        headers,
        settings,
        library,
    };
    call.answer().await
}

async fn report(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<HashMap<String, String>>,
) -> impl IntoResponse {
    let with_keys = query.get("keys").is_some_and(|value| value == "true");
    Json(shared.counter.report(with_keys))
}

async fn set(
    State(shared): State<Arc<Shared>>,
    Json(patch): Json<serde_json::Map<String, serde_json::Value>>,
) -> Response {
    let (settings, _) = shared.current();
    let changed = settings
        .patched(patch)
        .and_then(|settings| shared.set(settings).map_err(|error| error.to_string()));
    match changed {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error).into_response(),
    }
}

async fn reset(State(shared): State<Arc<Shared>>) -> StatusCode {
    shared.counter.reset();
    StatusCode::NO_CONTENT
}

/// A connection that ends with a reset instead of an orderly close, if `reset` is set.
struct ResettableStream {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for ResettableStream {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ResettableStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ResettableStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
