//! The guard before every request: checks the host and the origin, and identifies the caller.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::origin::{changes_something, check_host, check_origin};
use super::{Caller, MaybeSession, keys};
use crate::problem::{ApiError, ApiResult, BAD_CSRF, UNAUTHORIZED};
use crate::state::App;

pub(super) const CSRF: &str = "x-csrf-token";

pub(crate) async fn guard(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match admit(&app, &mut request) {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

fn admit(app: &App, request: &mut Request) -> ApiResult<()> {
    let server = &app.config.server;
    // Health checks may use any host name: their responses reveal nothing but health.
    if !is_health(request.uri().path()) {
        check_host(server, request)?;
        check_origin(server, request)?;
    }
    if !app.keys.required() {
        request.extensions_mut().insert(Caller::anybody());
        return Ok(());
    }
    let caller = match identify(app, request) {
        Ok(caller) => caller,
        Err(_) if is_public(request.uri().path()) => return Ok(()),
        Err(refused) => return Err(refused),
    };
    request.extensions_mut().insert(caller);
    Ok(())
}

/// Identifies the caller by key, or by the session of a browser.
fn identify(app: &App, request: &mut Request) -> ApiResult<Caller> {
    let unknown = |detail: &str| ApiError::new(UNAUTHORIZED, detail);
    match keys::from_headers(request.headers()).map_err(unknown)? {
        Some(key) => {
            let caller = app.keys.caller(key).cloned();
            caller.ok_or_else(|| unknown("the key is not valid for this service"))
        }
        None => {
            let tls = app.config.server.tls.is_some();
            let session = app
                .sessions
                .of(request.headers(), tls, app.now())
                .ok_or_else(|| {
                    unknown("send a key as `Authorization: Bearer <key>`; in a browser, log in first")
                })?;
            let token = request.headers().get(CSRF).map(|token| token.as_bytes());
            if changes_something(request.method()) && !session.allows(token) {
                return Err(ApiError::new(
                    BAD_CSRF,
                    format!(
                        "a change in a session needs the header {CSRF} with the `csrf` token from /v1/me"
                    ),
                ));
            }
            request.extensions_mut().insert(MaybeSession::new(&session));
            Ok(session.caller)
        }
    }
}

fn is_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// Paths whose responses are public.
fn is_public(path: &str) -> bool {
    is_health(path)
        || matches!(
            path,
            "/" | "/docs" | "/login" | "/logout" | "/.well-known/jwks.json"
        )
        || path.starts_with("/assets/")
        || is_visitors(path)
}

/// Paths of visitors of waiting rooms. A cookie or a token identifies visitors, not a key.
fn is_visitors(path: &str) -> bool {
    let last_segment = |path: &str| path.rsplit_once('/').map(|(_, what)| what.to_owned());
    path.starts_with("/rooms/")
        || path.starts_with("/events/")
        || path
            .strip_prefix("/v1/rooms/")
            .and_then(last_segment)
            .is_some_and(|what| matches!(what.as_str(), "join" | "ticket" | "leave" | "challenge" | "draw"))
}
