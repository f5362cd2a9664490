//! The login of a browser, which exchanges a key for a session. It takes JSON from the dashboard, or a form without scripts.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tidegate_api::Identity;

use super::attempts::{Attempts, MAX_WRONG};
use super::guard::CSRF;
use super::origin::came_by_tls;
use super::session::set_cookie;
use super::{ANYBODY, Caller};
use crate::audit::AuditedCommand;
use crate::extract::{Json, media_type, whole_body};
use crate::problem::{
    ApiError, ApiResult, BAD_CSRF, BAD_REQUEST, INTERNAL, MEDIA_TYPE, TIMEOUT, TOO_MANY, UNAUTHORIZED,
};
use crate::state::App;

/// Limit: a key and a little around it.
const MAX_BYTES: u64 = 4 * 1024;
const FORM: &str = "application/x-www-form-urlencoded";

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/login", get(page).post(login))
        .route("/logout", post(logout))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Login {
    key: String,
}

async fn page() -> Response {
    form(StatusCode::OK, "")
}

async fn login(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let is_form = media_type(request.headers()).is_some_and(|media| media.eq_ignore_ascii_case(FORM));
    let (parts, body) = request.into_parts();
    let longest = Duration::from(app.config.server.request_timeout_ms);
    let pause = Duration::from(app.config.server.body_pause_ms);
    let read = tokio::time::timeout(longest, whole_body(body, MAX_BYTES, pause)).await;
    let begun = match read {
        Err(_) => {
            let ms = longest.as_millis();
            Err(ApiError::new(
                TIMEOUT,
                format!("the body did not arrive within {ms} ms"),
            ))
        }
        Ok(Err(refused)) => Err(refused),
        Ok(Ok(body)) => begin(&app, peer, &parts.headers, is_form, &body).await,
    };
    match begun {
        Ok((identity, cookie)) => {
            let mut response = if is_form {
                Redirect::to("/").into_response()
            } else {
                Json(identity).into_response()
            };
            response
                .headers_mut()
                .extend(cookie.map(|cookie| (header::SET_COOKIE, cookie)));
            uncached(response)
        }
        Err(refused) if is_form => form(refused.kind.0, &refused.detail),
        Err(refused) => refused.into_response(),
    }
}

async fn begin(
    app: &App,
    peer: SocketAddr,
    headers: &HeaderMap,
    is_form: bool,
    body: &[u8],
) -> ApiResult<(Identity, Option<HeaderValue>)> {
    let key = submitted_key(headers, is_form, body)?;
    if !app.keys.required() {
        return Ok((identity(app, Caller::anybody(), None), None));
    }
    let now = app.now();
    if !app.attempts.take(peer.ip(), now) {
        return Err(ApiError::new(
            TOO_MANY,
            format!("{MAX_WRONG} wrong keys from this address within a minute; try again in a minute"),
        )
        .after(Attempts::wait(now)));
    }
    let from = peer.ip().to_canonical().to_string();
    let Some(caller) = app.keys.caller(&key).cloned() else {
        let recorded = app
            .audit
            .record(now, ANYBODY, AuditedCommand::new("login.refused", from), None);
        if let Err(refused) = recorded.await {
            tracing::warn!(
                error = refused.detail,
                "failed to record a refused login in the audit log"
            );
        }
        return Err(ApiError::new(
            UNAUTHORIZED,
            "the key is not valid for this service",
        ));
    };
    app.attempts.give_back(peer.ip(), now);
    let server = &app.config.server;
    let begin = async {
        app.sessions.end(headers, server.tls.is_some());
        let begun = app.sessions.begin(caller.clone(), now, server.session_ms);
        begun.map_err(|error| {
            tracing::error!(%error, "the operating system provides no randomness");
            ApiError::new(INTERNAL, "cannot create a session; see the service's log")
        })
    };
    let begun = app
        .audited(&caller, AuditedCommand::new("login", from), begin)
        .await?;
    let cookie = set_cookie(
        Some(&begun.cookie),
        server.session_ms,
        came_by_tls(server, headers),
    );
    let cookie = HeaderValue::try_from(cookie).expect("base64 and plain words");
    Ok((identity(app, caller, Some(begun.csrf)), Some(cookie)))
}

fn submitted_key(headers: &HeaderMap, is_form: bool, body: &[u8]) -> ApiResult<String> {
    if is_form {
        let text = std::str::from_utf8(body).unwrap_or_default();
        let login = Uri::try_from(format!("/login?{text}")).ok();
        let login = login.and_then(|uri| Query::<Login>::try_from_uri(&uri).ok());
        let login =
            login.ok_or_else(|| ApiError::new(BAD_REQUEST, "the form must have exactly the field `key`"))?;
        return Ok(login.0.key.trim().to_owned());
    }
    let is_json = media_type(headers).is_some_and(|media| media.eq_ignore_ascii_case("application/json"));
    if !is_json {
        return Err(ApiError::new(
            MEDIA_TYPE,
            format!("the body must be application/json, like {{\"key\": \"tg_…\"}}, or {FORM}"),
        ));
    }
    // The parser's own error could repeat a part of the key.
    let login: Result<Login, _> = serde_json::from_slice(body);
    let login = login.map_err(|_| ApiError::new(BAD_REQUEST, "the body must be like {\"key\": \"tg_…\"}"))?;
    Ok(login.key.trim().to_owned())
}

fn identity(app: &App, caller: Caller, csrf: Option<String>) -> Identity {
    Identity {
        name: caller.name,
        roles: caller.roles,
        groups: caller.groups,
        csrf,
        keys_required: app.keys.required(),
    }
}

/// Ends the session. Succeeds without one, too.
async fn logout(State(app): State<App>, headers: HeaderMap) -> Response {
    let server = &app.config.server;
    let tls = server.tls.is_some();
    if let Some(session) = app.sessions.of(&headers, tls, app.now()) {
        let token = headers.get(CSRF).map(|token| token.as_bytes());
        if !session.allows(token) {
            let detail = format!("a logout needs the header {CSRF} with the `csrf` token from /v1/me");
            return ApiError::new(BAD_CSRF, detail).into_response();
        }
        app.sessions.end(&headers, tls);
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    let cookie = set_cookie(None, server.session_ms, came_by_tls(server, &headers));
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    uncached(response)
}

fn uncached(mut response: Response) -> Response {
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}

/// The login page, which needs no script. It repeats nothing of the request.
fn form(status: StatusCode, problem: &str) -> Response {
    let problem = if problem.is_empty() {
        String::new()
    } else {
        let text = problem.replace('&', "&amp;").replace('<', "&lt;");
        format!("<p role=\"alert\"><strong>{text}</strong></p>\n")
    };
    let page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Tidegate: log in</title>\n\
         <h1>Tidegate</h1>\n{problem}<form method=\"post\" action=\"/login\">\n\
         <p><label for=\"key\">API key</label></p>\n\
         <p><input id=\"key\" name=\"key\" type=\"password\" autocomplete=\"current-password\" required autofocus></p>\n\
         <p><button>Log in</button></p>\n</form>\n</html>\n"
    );
    crate::pages::guarded(uncached((status, Html(page)).into_response()))
}
