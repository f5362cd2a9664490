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

/// Lists every waiting room with its state.
#[utoipa::path(
    get, path = "/v1/rooms",
    operation_id = "listRooms", tag = "rooms", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "Every room.", body = RoomList))
)]
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

/// Reads one waiting room.
#[utoipa::path(
    get, path = "/v1/rooms/{room}",
    operation_id = "getRoom", tag = "rooms", security(("apiKey" = ["READ"]), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The room.", body = Room))
)]
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

/// Reads the last minutes of a room as this process saw them.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/history",
    operation_id = "getRoomHistory", tag = "rooms", security(("apiKey" = ["READ"]), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The samples, oldest first.", body = RoomHistory))
)]
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

/// Changes the limits of a room.
///
/// Visitors who are inside stay. With a `request` name, repeating the same call changes nothing.
#[utoipa::path(
    patch, path = "/v1/rooms/{room}/capacity",
    operation_id = "updateRoomCapacity", tag = "rooms", security(("apiKey" = ["ADMIN"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = PatchCapacity, description = "The limits to change.",
        example = json!({"inside": {"set": 100}, "perSecond": {"add": -5}, "why": "The shop is slow"})
    ),
    responses((status = 200, description = "The room after the change.", body = Room))
)]
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
        per_second: asked.per_second.map(|by| counted("perSecond", by)).transpose()?,
        by: caller.name.clone(),
        why: asked.why.clone().unwrap_or_default(),
    };
    if params.seats.is_none() && params.inside.is_none() && params.per_second.is_none() {
        return Err(ApiError::invalid(
            "nothing is to change; name seats, inside or perSecond, like {\"inside\": {\"set\": 100}}",
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

/// Pauses admission to a room.
///
/// The service lets nobody in until an operator resumes the room. Visitors keep their tickets.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/pause",
    operation_id = "pauseRoom", tag = "rooms", security(("apiKey" = ["ADMIN"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RoomCommand, description = "The reason, for the audit log.",
        example = json!({"why": "The payment provider is down"})
    ),
    responses((status = 200, description = "The paused room.", body = Room))
)]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    turn(&app, &caller, &name, ("room.pause", Control::Pause), asked).await
}

/// Resumes a paused room, or opens a closed one again.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/resume",
    operation_id = "resumeRoom", tag = "rooms", security(("apiKey" = ["ADMIN"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RoomCommand, description = "The reason, for the audit log.",
        example = json!({"why": "The payment provider is down"})
    ),
    responses((status = 200, description = "The resumed room.", body = Room))
)]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    turn(&app, &caller, &name, ("room.resume", Control::Resume), asked).await
}

/// Closes a room.
///
/// Nobody can join, and the service lets nobody in. It tells visitors who wait that the room is closed. Visitors who
/// are inside may finish.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/close",
    operation_id = "closeRoom", tag = "rooms", security(("apiKey" = ["ADMIN"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RoomCommand, description = "The reason, for the audit log.",
        example = json!({"why": "The payment provider is down"})
    ),
    responses((status = 200, description = "The closed room.", body = Room))
)]
pub(super) async fn close(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(asked): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    turn(&app, &caller, &name, ("room.close", Control::Close), asked).await
}

/// Revokes passes that nobody has redeemed.
///
/// `through` names the last admission wave whose passes are revoked; without it the service revokes all passes so far.
/// Visitors who hold a revoked pass get a new one.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/void",
    operation_id = "voidPasses", tag = "rooms", security(("apiKey" = ["ADMIN"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RoomCommand, description = "Which passes, and the reason for the audit log.",
        example = json!({"why": "A key leaked", "through": 12})
    ),
    responses((status = 200, description = "The room after the change.", body = Room))
)]
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

/// Deletes a room that is over.
///
/// The room must be closed or sold out, nobody may wait or be inside, and the configuration must not name it. The
/// service forgets everything about it. If the event service still knows the room, the next visitor creates it again.
#[utoipa::path(
    delete, path = "/v1/rooms/{room}",
    operation_id = "deleteRoom", tag = "rooms", security(("apiKey" = ["ADMIN"]), ()),
    params(("room" = String, Path)),
    request_body(
        content = RoomCommand, description = "The reason, for the audit log.",
        example = json!({"why": "The payment provider is down"})
    ),
    responses((status = 204, description = "The service deleted the room."))
)]
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
