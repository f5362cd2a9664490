//! Rooms for operators: look, change the limits, open and close the door, take passes back.

use axum::extract::State;
use axum::http::StatusCode;
use sha2::{Digest, Sha256};
use tidegate_api::{LimitBy, PatchCapacity, Role, Room, RoomCommand, RoomHistory, Rooms as RoomList};
use tidegate_core::room::command::{Change, Control, ResizeOutcome, ResizeParams};
use tidegate_core::room::ticket::Wave;
use tidegate_store::StoreError;

use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::extract::{Json, PathParams};
use crate::problem::{ApiError, ApiResult};
use crate::room::module::ServedRoom;
use crate::room::ticket;
use crate::state::App;

/// Limit: what a caller knows a change by.
const MAX_REQUEST_BYTES: usize = 200;

/// Every room, with what happens in it.
#[utoipa::path(get, path = "/v1/rooms", tag = "rooms", responses((status = 200, body = RoomList)))]
pub(super) async fn list(State(app): State<App>, caller: Caller) -> ApiResult<Json<RoomList>> {
    caller.need_for_all(Role::Read)?;
    let Ok(rooms) = app.rooms() else {
        return Ok(Json(RoomList { rooms: Vec::new() }));
    };
    let mut list = Vec::new();
    for door in rooms.doors() {
        match door.room.seen_or_look().await {
            Ok(seen) => list.push(ticket::room(&door, &seen)),
            // Removed by another process just now.
            Err(StoreError::UnknownRoom(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Json(RoomList { rooms: list }))
}

/// One room.
#[utoipa::path(get, path = "/v1/rooms/{room}", tag = "rooms", params(("room" = String, Path)),
    responses((status = 200, body = Room)))]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Read)?;
    let door = app.rooms()?.any_door(&name).await?;
    now(&door).await
}

async fn now(door: &ServedRoom) -> ApiResult<Json<Room>> {
    let seen = door.room.look_at_it().await?;
    Ok(Json(ticket::room(door, &seen)))
}

/// The last minutes of a room, as this process saw them.
#[utoipa::path(get, path = "/v1/rooms/{room}/history", tag = "rooms", params(("room" = String, Path)),
    responses((status = 200, body = RoomHistory)))]
pub(super) async fn history(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> ApiResult<Json<RoomHistory>> {
    caller.need_for_all(Role::Read)?;
    let door = app.rooms()?.any_door(&name).await?;
    let samples = door.room.history().iter().map(ticket::sample).collect();
    Ok(Json(RoomHistory { samples }))
}

/// One limit, as it is to change. Below zero is nobody's wish.
fn change(field: &str, by: LimitBy) -> ApiResult<Change<Option<u64>>> {
    match by {
        LimitBy::Set(None) => Ok(Change::Set(None)),
        LimitBy::Set(Some(value)) => match u64::try_from(value) {
            Ok(value) => Ok(Change::Set(Some(value))),
            Err(_) => Err(ApiError::invalid(format!(
                "{field} = {value}: it must be 0 or more"
            ))),
        },
        LimitBy::Add(by) => Ok(Change::Add(by)),
        LimitBy::Reset(true) => Ok(Change::Reset),
        LimitBy::Reset(false) => Err(ApiError::invalid(format!(
            "{field}: {{\"reset\": false}} says nothing; use true, \"set\" or \"add\""
        ))),
    }
}

/// The same for a limit that there always is.
fn counted(field: &str, by: LimitBy) -> ApiResult<Change<u64>> {
    match change(field, by)? {
        Change::Set(Some(value)) => Ok(Change::Set(value)),
        Change::Set(None) => Err(ApiError::invalid(format!(
            "{field}: null is for seats only; give a number, or {{\"reset\": true}}"
        ))),
        Change::Add(by) => Ok(Change::Add(by)),
        Change::Reset => Ok(Change::Reset),
    }
}

/// What the store knows a change by: a number of its own, or, if the caller names it, one that the same change of the same
/// caller has again. Another change by the same name is another one: it must not be lost because a name was used twice.
fn request(caller: &Caller, asked: &PatchCapacity) -> ApiResult<u64> {
    let mut number = [0; 8];
    match asked.request.as_deref() {
        None => getrandom::fill(&mut number)
            .map_err(|_| ApiError::new(crate::problem::INTERNAL, "there is no randomness"))?,
        Some(name) if (1..=MAX_REQUEST_BYTES).contains(&name.len()) => {
            let PatchCapacity {
                seats,
                inside,
                per_second,
                ..
            } = asked;
            let told = serde_json::to_vec(&(&caller.name, name, seats, inside, per_second));
            let told = told.expect("texts and numbers have a form in JSON");
            number.copy_from_slice(&Sha256::digest(told)[..8]);
        }
        Some(name) => {
            let bytes = name.len();
            return Err(ApiError::invalid(format!(
                "request has {bytes} bytes: it must have from 1 to {MAX_REQUEST_BYTES}; leave it out to name nothing"
            )));
        }
    }
    // 52 bits: some stores have no larger whole numbers.
    Ok(u64::from_be_bytes(number) >> 12)
}

/// Changes the limits of a room. Nobody who is inside has to go. With a `request` the same call may be made again.
#[utoipa::path(patch, path = "/v1/rooms/{room}/capacity", tag = "rooms", params(("room" = String, Path)),
    request_body = PatchCapacity, responses((status = 200, body = Room)))]
pub(super) async fn resize(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<PatchCapacity>,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Admin)?;
    let door = app.rooms()?.any_door(&name).await?;
    let params = ResizeParams {
        request: request(&caller, &asked)?,
        seats: asked.seats.map(|by| change("seats", by)).transpose()?,
        inside: asked.inside.map(|by| counted("inside", by)).transpose()?,
        per_second: asked.per_second.map(|by| counted("per_second", by)).transpose()?,
        by: caller.name.clone(),
        why: asked.why.clone().unwrap_or_default(),
    };
    if params.seats.is_none() && params.inside.is_none() && params.per_second.is_none() {
        return Err(ApiError::invalid(
            "nothing is to change; name seats, inside or per_second, like {\"inside\": {\"set\": 100}}",
        ));
    }
    if params.why.len() > 500 {
        return Err(ApiError::invalid("why is longer than 500 bytes"));
    }
    let command = AuditedCommand::new("room.resize", &name)
        .because(asked.why.clone())
        .asked(&asked);
    let doing = async {
        let store = door.room.store();
        match store.resize(door.room.name(), params).await? {
            ResizeOutcome::Resized(_) => Ok(()),
            ResizeOutcome::Invalid(reason) => Err(ApiError::invalid(reason)),
        }
    };
    app.audited(&caller, command, doing).await?;
    now(&door).await
}

async fn turn(
    app: &App,
    caller: &Caller,
    name: &str,
    command: (&'static str, Control),
    asked: RoomCommand,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Admin)?;
    let door = app.rooms()?.any_door(name).await?;
    let (what, control) = command;
    let doing = async { Ok(door.room.store().control(door.room.name(), control).await?) };
    app.audited(caller, AuditedCommand::new(what, name).because(asked.why), doing)
        .await?;
    now(&door).await
}

/// Lets nobody in until it is resumed. Everybody keeps the place.
#[utoipa::path(post, path = "/v1/rooms/{room}/pause", tag = "rooms", params(("room" = String, Path)),
    request_body = RoomCommand, responses((status = 200, body = Room)))]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    turn(&app, &caller, &name, ("room.pause", Control::Pause), asked).await
}

/// Goes on after a pause, or opens a closed room again.
#[utoipa::path(post, path = "/v1/rooms/{room}/resume", tag = "rooms", params(("room" = String, Path)),
    request_body = RoomCommand, responses((status = 200, body = Room)))]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    turn(&app, &caller, &name, ("room.resume", Control::Resume), asked).await
}

/// Closes the room: nobody comes, nobody is let in, and those who wait are told. Who is inside may finish.
#[utoipa::path(post, path = "/v1/rooms/{room}/close", tag = "rooms", params(("room" = String, Path)),
    request_body = RoomCommand, responses((status = 200, body = Room)))]
pub(super) async fn close(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    turn(&app, &caller, &name, ("room.close", Control::Close), asked).await
}

/// Takes back passes that were not redeemed: of a promotion and all before, or of all so far. Visitors who wait with one
/// get another.
#[utoipa::path(post, path = "/v1/rooms/{room}/void", tag = "rooms", params(("room" = String, Path)),
    request_body = RoomCommand, responses((status = 200, body = Room)))]
pub(super) async fn void(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Admin)?;
    let door = app.rooms()?.any_door(&name).await?;
    let command = AuditedCommand::new("room.void", &name)
        .because(asked.why.clone())
        .asked(&asked);
    let doing = async {
        let through = asked.through.map(Wave);
        door.room.store().void(door.room.name(), through).await?;
        Ok(())
    };
    app.audited(&caller, command, doing).await?;
    now(&door).await
}

/// Removes a room that is over: closed or sold out, with nobody waiting, let in or inside, and not in the configuration.
/// What is remembered of it goes with it. A room that the event service still knows is made again when somebody comes.
#[utoipa::path(delete, path = "/v1/rooms/{room}", tag = "rooms", params(("room" = String, Path)),
    request_body = RoomCommand, responses((status = 204)))]
pub(super) async fn remove(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<StatusCode> {
    caller.need_for_all(Role::Admin)?;
    let rooms = app.rooms()?;
    let command = AuditedCommand::new("room.remove", &name).because(asked.why);
    app.audited(&caller, command, rooms.remove(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
