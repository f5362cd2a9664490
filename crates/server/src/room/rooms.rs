//! Rooms for operators: read, change the limits, pause, resume, close, revoke passes, delete.

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
use crate::room::visitors::no_randomness;
use crate::state::App;

/// Limit: the length of the name that makes a change idempotent.
const MAX_REQUEST_BYTES: usize = 200;

/// Lists every waiting room with its state.
#[utoipa::path(
    get, path = "/v1/rooms",
    operation_id = "listRooms", tag = "rooms", security(("apiKey" = ["READ"]), ()),
    responses((status = 200, description = "Every room.", body = RoomList))
)]
pub(crate) async fn list(State(app): State<App>, caller: Caller) -> ApiResult<Json<RoomList>> {
    caller.need_for_all(Role::Read)?;
    let Ok(rooms) = app.rooms() else {
        return Ok(Json(RoomList { rooms: Vec::new() }));
    };
    let mut list = Vec::new();
    for served in rooms.served_rooms() {
        match served.room.seen_or_read().await {
            Ok(seen) => list.push(ticket::room(&served, &seen)),
            // Another process has just removed the room.
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
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Read)?;
    let served = app.rooms()?.any_room(&name).await?;
    current(&served).await
}

/// Reads the current state of a room from the store.
async fn current(served: &ServedRoom) -> ApiResult<Json<Room>> {
    let seen = served.room.read_overview().await?;
    Ok(Json(ticket::room(served, &seen)))
}

/// Reads the last minutes of a room as this process saw them.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/history",
    operation_id = "getRoomHistory", tag = "rooms", security(("apiKey" = ["READ"]), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The samples, oldest first.", body = RoomHistory))
)]
pub(crate) async fn history(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
) -> ApiResult<Json<RoomHistory>> {
    caller.need_for_all(Role::Read)?;
    let served = app.rooms()?.any_room(&name).await?;
    let samples = served.room.history().iter().map(ticket::sample).collect();
    Ok(Json(RoomHistory { samples }))
}

/// Checks the change of one limit, which must not be negative.
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
            "{field}: {{\"reset\": false}} changes nothing; use true, \"set\" or \"add\""
        ))),
    }
}

/// The same for a limit that cannot be absent.
fn counted(field: &str, by: LimitBy) -> ApiResult<Change<u64>> {
    match change(field, by)? {
        Change::Set(Some(value)) => Ok(Change::Set(value)),
        Change::Set(None) => Err(ApiError::invalid(format!(
            "{field}: only seats can be null; give a number, or {{\"reset\": true}}"
        ))),
        Change::Add(by) => Ok(Change::Add(by)),
        Change::Reset => Ok(Change::Reset),
    }
}

/// The idempotency key of a change. It is random, unless the caller names the change: then the same change of the same caller
/// has the same key. A different change with the same name has another key, so that a reused name loses no change.
fn request(caller: &Caller, body: &PatchCapacity) -> ApiResult<u64> {
    let mut number = [0; 8];
    match body.request.as_deref() {
        None => getrandom::fill(&mut number).map_err(|_| no_randomness())?,
        Some(name) if (1..=MAX_REQUEST_BYTES).contains(&name.len()) => {
            let PatchCapacity {
                seats,
                inside,
                per_second,
                ..
            } = body;
            let change = serde_json::to_vec(&(&caller.name, name, seats, inside, per_second));
            let change = change.expect("strings and numbers serialize to JSON");
            number.copy_from_slice(&Sha256::digest(change)[..8]);
        }
        Some(name) => {
            let bytes = name.len();
            return Err(ApiError::invalid(format!(
                "request has {bytes} bytes: it must have 1 to {MAX_REQUEST_BYTES}, or be left out"
            )));
        }
    }
    // 52 bits, because Lua scripts of the store have no larger integers.
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
pub(crate) async fn resize(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<PatchCapacity>,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Admin)?;
    let served = app.rooms()?.any_room(&name).await?;
    let params = ResizeParams {
        request: request(&caller, &body)?,
        seats: body.seats.map(|by| change("seats", by)).transpose()?,
        inside: body.inside.map(|by| counted("inside", by)).transpose()?,
        per_second: body.per_second.map(|by| counted("perSecond", by)).transpose()?,
        by: caller.name.clone(),
        why: body.why.clone().unwrap_or_default(),
    };
    if params.seats.is_none() && params.inside.is_none() && params.per_second.is_none() {
        return Err(ApiError::invalid(
            "the body changes nothing; name seats, inside or perSecond, like {\"inside\": {\"set\": 100}}",
        ));
    }
    if params.why.len() > 500 {
        let bytes = params.why.len();
        return Err(ApiError::invalid(format!(
            "why has {bytes} bytes: it must have at most 500"
        )));
    }
    let command = AuditedCommand::new("room.resize", &name)
        .because(body.why.clone())
        .with_detail(&body);
    let resize = async {
        let store = served.room.store();
        match store.resize(served.room.name(), params).await? {
            ResizeOutcome::Resized(_) => Ok(()),
            ResizeOutcome::Invalid(reason) => Err(ApiError::invalid(reason)),
        }
    };
    app.audited(&caller, command, resize).await?;
    current(&served).await
}

async fn control(
    app: &App,
    caller: &Caller,
    name: &str,
    (what, control): (&'static str, Control),
    body: RoomCommand,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Admin)?;
    let served = app.rooms()?.any_room(name).await?;
    let run = async { Ok(served.room.store().control(served.room.name(), control).await?) };
    app.audited(caller, AuditedCommand::new(what, name).because(body.why), run)
        .await?;
    current(&served).await
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
pub(crate) async fn pause(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    control(&app, &caller, &name, ("room.pause", Control::Pause), body).await
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
pub(crate) async fn resume(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    control(&app, &caller, &name, ("room.resume", Control::Resume), body).await
}

/// Closes a room.
///
/// Nobody can join, and the service admits nobody. It ends the streams of visitors who wait. Visitors who are inside may
/// finish.
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
pub(crate) async fn close(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    control(&app, &caller, &name, ("room.close", Control::Close), body).await
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
pub(crate) async fn void(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RoomCommand>,
) -> ApiResult<Json<Room>> {
    caller.need_for_all(Role::Admin)?;
    let served = app.rooms()?.any_room(&name).await?;
    let command = AuditedCommand::new("room.void", &name)
        .because(body.why.clone())
        .with_detail(&body);
    let void = async {
        let through = body.through.map(Wave);
        served.room.store().void(served.room.name(), through).await?;
        Ok(())
    };
    app.audited(&caller, command, void).await?;
    current(&served).await
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
pub(crate) async fn remove(
    State(app): State<App>,
    caller: Caller,
    PathParams(name): PathParams<String>,
    Json(body): Json<RoomCommand>,
) -> ApiResult<StatusCode> {
    caller.need_for_all(Role::Admin)?;
    let rooms = app.rooms()?;
    let command = AuditedCommand::new("room.remove", &name).because(body.why);
    app.audited(&caller, command, rooms.remove(&name)).await?;
    Ok(StatusCode::NO_CONTENT)
}
