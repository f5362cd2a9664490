//! The routes of shops: redeem and check passes; extend, complete and release visits; the public keys of passes.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tidegate_api::{RedeemPass, Role, TicketState, Visit};
use tidegate_core::ids::SessionId;
use tidegate_core::time::Millis;
use tidegate_engine::room::{Claims, PassRefused, ShopError, Visited};

use crate::auth::Caller;
use crate::bulk::convert::time;
use crate::extract::{Json, PathParams};
use crate::problem::{
    ApiError, ApiResult, BAD_PASS, CONFLICT, PASS_EXPIRED, PASS_USED, PASS_VOID, VISIT_ENDED,
};
use crate::room::module::ServedRoom;
use crate::room::ticket::end;
use crate::state::App;

impl From<ShopError> for ApiError {
    fn from(error: ShopError) -> Self {
        let kind = match error {
            ShopError::Pass(PassRefused::Expired) | ShopError::TooLate => PASS_EXPIRED,
            ShopError::Pass(_) | ShopError::Gone => BAD_PASS,
            ShopError::Used => PASS_USED,
            ShopError::Void => PASS_VOID,
            ShopError::NotInside => CONFLICT,
            ShopError::Ended(_) => VISIT_ENDED,
            ShopError::Store(error) => return error.into(),
        };
        Self::new(kind, error.to_string())
    }
}

fn rendered(claims: &Claims, visited: Visited) -> Json<Visit> {
    let (state, until, how) = match visited {
        Visited::Granted { until } => (TicketState::Granted, Some(until), None),
        Visited::Inside { until } => (TicketState::Inside, Some(until), None),
        Visited::Ended(how) => (TicketState::Ended, None, Some(how)),
    };
    Json(Visit {
        state,
        person: claims.person.to_string(),
        until: until.map(time),
        end: how.map(end),
    })
}

/// Verifies the pass that a shop presents. It may have expired, because the ticket decides what happens to the visitor.
async fn presented(
    app: &App,
    caller: &Caller,
    name: &str,
    body: &RedeemPass,
) -> ApiResult<(Arc<ServedRoom>, Claims)> {
    caller.need(Role::Shop)?;
    let rooms = app.rooms()?;
    let served = rooms.room(name, None).await?;
    let claims = rooms.signer.identify(&body.pass, served.room.name());
    Ok((served, claims.map_err(ShopError::from)?))
}

/// Redeems a pass.
///
/// A pass can be redeemed once; its visitor is inside from then on. The same `session` may repeat the call.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/redeem",
    operation_id = "redeemPass", tag = "shops", security(("apiKey" = ["SHOP"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RedeemPass, description = "The pass that the visitor brought.",
        example = json!({"pass": "eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl", "session": "basket-42"})
    ),
    responses((status = 200, description = "The visitor is inside.", body = Visit))
)]
pub(crate) async fn redeem(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RedeemPass>,
) -> ApiResult<Json<Visit>> {
    let (served, claims) = presented(&app, &caller, &name, &body).await?;
    let session = body.session.as_deref().map(SessionId::new).transpose()?;
    let visited = served.presented(&claims, &app).redeem(session).await?;
    Ok(rendered(&claims, visited))
}

/// Checks a pass without redeeming it.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/check",
    operation_id = "checkPass", tag = "shops", security(("apiKey" = ["SHOP"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RedeemPass, description = "The pass that the visitor brought.",
        example = json!({"pass": "eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl", "session": "basket-42"})
    ),
    responses((status = 200, description = "Where the visitor of the pass is.", body = Visit))
)]
pub(crate) async fn check(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RedeemPass>,
) -> ApiResult<Json<Visit>> {
    let (served, claims) = presented(&app, &caller, &name, &body).await?;
    let visited = served.presented(&claims, &app).check().await?;
    Ok(rendered(&claims, visited))
}

/// Extends a visit.
///
/// The visitor may stay for `durationMs` milliseconds from now, never shorter than before. A visit that has ended does not
/// continue.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/extend",
    operation_id = "extendVisit", tag = "shops", security(("apiKey" = ["SHOP"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RedeemPass, description = "The pass, and how long its visitor may stay.",
        example = json!({"pass": "eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl", "durationMs": 300000})
    ),
    responses((status = 200, description = "The visit with its new end.", body = Visit))
)]
pub(crate) async fn extend(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RedeemPass>,
) -> ApiResult<Json<Visit>> {
    let (served, claims) = presented(&app, &caller, &name, &body).await?;
    // By default as long as the first visit.
    let by = body.duration_ms.map_or(served.settings.inside_ms, Millis);
    let visited = served.presented(&claims, &app).extend(by).await?;
    Ok(rendered(&claims, visited))
}

/// Completes a visit.
///
/// The visitor has bought: the slot is free again, the seat stays taken. Repeating the call is safe. If the answer is
/// 409 `visit_ended`, the visit had ended otherwise; slot and seat are free again, and the shop must not sell.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/complete",
    operation_id = "completeVisit", tag = "shops", security(("apiKey" = ["SHOP"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RedeemPass, description = "The pass that the visitor brought.",
        example = json!({"pass": "eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl", "session": "basket-42"})
    ),
    responses((status = 200, description = "The completed visit.", body = Visit))
)]
pub(crate) async fn complete(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RedeemPass>,
) -> ApiResult<Json<Visit>> {
    let (served, claims) = presented(&app, &caller, &name, &body).await?;
    let visited = served.presented(&claims, &app).complete().await?;
    Ok(rendered(&claims, visited))
}

/// Ends a visit without a purchase.
///
/// Slot and seat are free again. If the visit had ended before, the answer says how.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/release",
    operation_id = "releaseVisit", tag = "shops", security(("apiKey" = ["SHOP"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RedeemPass, description = "The pass that the visitor brought.",
        example = json!({"pass": "eyJhbGciOiJFZERTQSJ9.e30.c2lnbmF0dXJl", "session": "basket-42"})
    ),
    responses((status = 200, description = "The ended visit.", body = Visit))
)]
pub(crate) async fn release(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RedeemPass>,
) -> ApiResult<Json<Visit>> {
    let (served, claims) = presented(&app, &caller, &name, &body).await?;
    let visited = served.presented(&claims, &app).release().await?;
    Ok(rendered(&claims, visited))
}

/// Reads the public keys of passes.
///
/// The answer is a JWK Set. With it a shop verifies passes by itself.
#[utoipa::path(
    get, path = "/.well-known/jwks.json",
    operation_id = "getPassKeys", tag = "shops", security(()),
    responses(
        (status = 200, description = "A JWK Set.", content_type = "application/json", body = serde_json::Value)
    )
)]
pub(crate) async fn keys(State(app): State<App>) -> ApiResult<Response> {
    let mut response = axum::Json(app.rooms()?.signer.jwks()).into_response();
    let cached = HeaderValue::from_static("public, max-age=300");
    response.headers_mut().insert(header::CACHE_CONTROL, cached);
    Ok(response)
}
