//! What shops ask with a pass in hand: redeem it, let its visitor stay, say that it is done, or give the slot back.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tidegate_api::{PlaceState, RedeemPass, Role, Visit};
use tidegate_core::ids::SessionId;
use tidegate_core::room::command::{ExtendParams, InsideOutcome, RedeemOutcome, RedeemParams};
use tidegate_core::room::ticket::TicketState;
use tidegate_core::time::{Millis, Timestamp};

use crate::auth::Caller;
use crate::convert::time;
use crate::extract::{Json, Names};
use crate::problem::{Answer, BAD_PASS, CONFLICT, PASS_EXPIRED, PASS_USED, PASS_VOID, Refused};
use crate::room::fail_open;
use crate::room::part::Door;
use crate::room::pass::{Claims, PassRefused};
use crate::room::place::end;
use crate::state::App;

/// How long `extend` lets a visitor stay if it does not say: as long as at first.
fn extension(asked: &RedeemPass, door: &Door) -> Millis {
    asked.for_ms.map_or(door.settings.inside_ms, Millis)
}

fn refused(refused: PassRefused) -> Refused {
    let kind = match refused {
        PassRefused::Expired => PASS_EXPIRED,
        _ => BAD_PASS,
    };
    Refused::new(kind, refused.to_string())
}

fn inside(claims: &Claims, until: Timestamp) -> Visit {
    Visit {
        state: PlaceState::Inside,
        person: claims.person.to_string(),
        until: Some(time(until)),
        end: None,
    }
}

fn foreign() -> Refused {
    let detail = "the pass is of a ticket that there is not any more; the visitor has to queue again";
    Refused::new(BAD_PASS, detail)
}

/// The pass of a room that is still the same.
async fn known(door: &Door, claims: &Claims) -> Answer<()> {
    let seen = door.room.seen_or_look().await?;
    match seen.view.born == claims.born {
        true => Ok(()),
        false => Err(foreign()),
    }
}

/// Redeems a pass, once: its visitor is inside from now on. The same session may ask again.
#[utoipa::path(post, path = "/v1/rooms/{room}/redeem", tag = "shops", params(("room" = String, Path)),
    request_body = RedeemPass, responses((status = 200, body = Visit)))]
pub(super) async fn redeem(
    State(app): State<App>,
    caller: Caller,
    Names(name): Names<String>,
    Json(asked): Json<RedeemPass>,
) -> Answer<Json<Visit>> {
    caller.need(Role::Shop)?;
    let rooms = app.rooms()?.clone();
    let door = rooms.door(&name).await?;
    let session = asked.session.as_deref().map(SessionId::new).transpose()?;
    let claims = rooms
        .signer
        .identify(&asked.pass, door.room.name())
        .map_err(refused)?;
    if let Some(until) = fail_open::visit(&door, &claims, app.now()) {
        return Ok(Json(inside(&claims, until)));
    }
    known(&door, &claims).await?;
    let params = RedeemParams {
        person: claims.person.clone(),
        index: claims.index,
        wave: claims.wave,
        session,
    };
    match door.room.store().redeem(door.room.name(), params).await? {
        RedeemOutcome::Inside { until } => Ok(Json(inside(&claims, until))),
        RedeemOutcome::AlreadyRedeemed => Err(Refused::new(
            PASS_USED,
            "the pass was redeemed before, by another session or by none",
        )),
        RedeemOutcome::Voided => Err(taken_back()),
        RedeemOutcome::TooLate => Err(Refused::new(
            PASS_EXPIRED,
            "the pass was not redeemed in time; the visitor has to queue again",
        )),
        RedeemOutcome::Unknown => Err(foreign()),
    }
}

/// What a pass is worth now, without redeeming it: whether it is good, and where its visitor is.
#[utoipa::path(post, path = "/v1/rooms/{room}/check", tag = "shops", params(("room" = String, Path)),
    request_body = RedeemPass, responses((status = 200, body = Visit)))]
pub(super) async fn check(
    State(app): State<App>,
    caller: Caller,
    Names(name): Names<String>,
    Json(asked): Json<RedeemPass>,
) -> Answer<Json<Visit>> {
    caller.need(Role::Shop)?;
    let rooms = app.rooms()?.clone();
    let door = rooms.door(&name).await?;
    let claims = rooms
        .signer
        .verify(&asked.pass, door.room.name(), app.now())
        .map_err(refused)?;
    known(&door, &claims).await?;
    let ticket = door.room.look(&claims.person).await?;
    let state = ticket.filter(|ticket| ticket.ticket.index == claims.index);
    match state.map(|state| state.ticket.state) {
        Some(TicketState::Granted { wave, until, .. }) if wave == claims.wave => {
            let seen = door.room.look_at_it().await?;
            match seen.view.voided >= wave {
                true => Err(taken_back()),
                false => Ok(Json(Visit {
                    state: PlaceState::Granted,
                    ..inside(&claims, until)
                })),
            }
        }
        Some(TicketState::Granted { .. }) => Err(taken_back()),
        Some(TicketState::Inside { until, .. }) => Ok(Json(inside(&claims, until))),
        Some(TicketState::Ended { end: how, .. }) => told(&claims, InsideOutcome::Ended(how)),
        _ => Err(foreign()),
    }
}

fn taken_back() -> Refused {
    Refused::new(
        PASS_VOID,
        "an operator took the pass back; the visitor finds another on the waiting page",
    )
}

/// The visit that a shop speaks of, also after the pass's time: what becomes of it is up to the ticket.
async fn visited(app: &App, caller: &Caller, name: &str, asked: &RedeemPass) -> Answer<(Arc<Door>, Claims)> {
    caller.need(Role::Shop)?;
    let rooms = app.rooms()?;
    let door = rooms.door(name).await?;
    let claims = rooms
        .signer
        .identify(&asked.pass, door.room.name())
        .map_err(refused)?;
    known(&door, &claims).await?;
    // A pass of an earlier ticket says nothing about the next one.
    let ticket = door.room.look(&claims.person).await?;
    match ticket.is_some_and(|ticket| ticket.ticket.index == claims.index) {
        true => Ok((door, claims)),
        false => Err(foreign()),
    }
}

fn told(claims: &Claims, outcome: InsideOutcome) -> Answer<Json<Visit>> {
    match outcome {
        InsideOutcome::Inside { until } => Ok(Json(inside(claims, until))),
        InsideOutcome::Ended(how) => Ok(Json(Visit {
            state: PlaceState::Ended,
            person: claims.person.to_string(),
            until: None,
            end: Some(end(how)),
        })),
        InsideOutcome::NotInside => Err(Refused::new(
            CONFLICT,
            "the pass has not been redeemed, so its visitor is not inside; redeem it first",
        )),
        InsideOutcome::Unknown => Err(foreign()),
    }
}

/// Lets a visitor stay inside for longer, from now on; never shorter.
#[utoipa::path(post, path = "/v1/rooms/{room}/extend", tag = "shops", params(("room" = String, Path)),
    request_body = RedeemPass, responses((status = 200, body = Visit)))]
pub(super) async fn extend(
    State(app): State<App>,
    caller: Caller,
    Names(name): Names<String>,
    Json(asked): Json<RedeemPass>,
) -> Answer<Json<Visit>> {
    let (door, claims) = visited(&app, &caller, &name, &asked).await?;
    let params = ExtendParams {
        person: claims.person.clone(),
        by: extension(&asked, &door),
    };
    told(&claims, door.room.store().extend(door.room.name(), params).await?)
}

/// The visitor has what it came for: the slot is free, the seat stays taken. Said twice, it counts once.
#[utoipa::path(post, path = "/v1/rooms/{room}/complete", tag = "shops", params(("room" = String, Path)),
    request_body = RedeemPass, responses((status = 200, body = Visit)))]
pub(super) async fn complete(
    State(app): State<App>,
    caller: Caller,
    Names(name): Names<String>,
    Json(asked): Json<RedeemPass>,
) -> Answer<Json<Visit>> {
    let (door, claims) = visited(&app, &caller, &name, &asked).await?;
    told(
        &claims,
        door.room
            .store()
            .complete(door.room.name(), &claims.person)
            .await?,
    )
}

/// The visitor goes without having bought: slot and seat come back, once.
#[utoipa::path(post, path = "/v1/rooms/{room}/release", tag = "shops", params(("room" = String, Path)),
    request_body = RedeemPass, responses((status = 200, body = Visit)))]
pub(super) async fn release(
    State(app): State<App>,
    caller: Caller,
    Names(name): Names<String>,
    Json(asked): Json<RedeemPass>,
) -> Answer<Json<Visit>> {
    let (door, claims) = visited(&app, &caller, &name, &asked).await?;
    told(
        &claims,
        door.room.store().leave(door.room.name(), &claims.person).await?,
    )
}

/// The public keys of passes, as a JWK Set: with these a shop checks passes by itself.
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "shops",
    responses((status = 200, description = "A JWK Set", content_type = "application/json", body = serde_json::Value),
        (status = 404, description = "`no_rooms`: there are no rooms here")))]
pub(super) async fn keys(State(app): State<App>) -> Answer<Response> {
    let mut response = axum::Json(app.rooms()?.signer.jwks()).into_response();
    let kept = HeaderValue::from_static("public, max-age=300");
    response.headers_mut().insert(header::CACHE_CONTROL, kept);
    Ok(response)
}
