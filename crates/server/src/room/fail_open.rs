//! While the store is away nobody gets in, unless an operator has said so, for a limited time, and the room was open when
//! it was last seen: a sale that has not begun, or that is over, is none of the exception's.
//!
//! Passes of that time name no ticket: they can be checked offline, and are redeemed here without the store.

use std::sync::atomic::Ordering;

use tidegate_api::{RoomStatus, Ticket, TicketState};
use tidegate_core::ids::PersonId;
use tidegate_core::room::ticket::{Index, Wave};
use tidegate_core::time::Timestamp;

use super::module::{Rooms, ServedRoom};
use super::pass::{Claims, PassRefused};
use super::ticket::{pass, status_at};
use crate::convert::time;
use crate::problem::{ApiError, UNAVAILABLE};
use crate::state::App;

/// Rooms are never born with this number.
const NEVER: u64 = 0;

/// Whether everybody is let in now. A room that this process has never seen stays shut: nobody knows whether it was open.
pub(crate) fn holds(door: &ServedRoom, now: Timestamp) -> bool {
    let seen = door.room.seen().filter(|_| lasts(door, now));
    seen.is_some_and(|seen| status_at(&seen.view, now) == RoomStatus::Open)
}

/// Whether the time of the exception is not over.
fn lasts(door: &ServedRoom, now: Timestamp) -> bool {
    door.settings.fail_open_until.is_some_and(|until| now.0 < until.0)
}

/// A pass for somebody who could not be given a place because the store is away.
pub(crate) fn place(
    app: &App,
    rooms: &Rooms,
    door: &ServedRoom,
    person: &PersonId,
    refused: &ApiError,
) -> Option<Ticket> {
    let now = app.now();
    if refused.kind != UNAVAILABLE || !holds(door, now) {
        return None;
    }
    tracing::warn!(room = %door.room.name(), "the store is away, and the room is set to let everybody in");
    door.failed_open.fetch_add(1, Ordering::Relaxed);
    let until = now + door.settings.pass_ms;
    let claims = Claims {
        person: person.clone(),
        born: NEVER,
        wave: Wave(0),
        index: Index(0),
        at: now,
        until,
    };
    Some(Ticket {
        room: door.room.name().to_string(),
        person: person.to_string(),
        number: None,
        state: TicketState::Granted,
        room_status: RoomStatus::Open,
        position: None,
        ahead: None,
        behind: None,
        waiting: 0,
        eta: None,
        opens_at: None,
        pass: Some(pass(door, rooms.signer.sign(door.room.name(), &claims), until)),
        end: None,
        at: time(now),
    })
}

/// Whether a pass is one of such a time: no ticket stands behind it, and no slot.
pub(crate) fn gave(claims: &Claims) -> bool {
    claims.born == NEVER
}

/// How long the visitor of such a pass may stay; none for a pass with a ticket. Nobody keeps count of these passes, so
/// each can be shown more than once, but none after its time, or after that of the exception. As with any pass, a door that
/// was closed since does not take it back.
pub(crate) fn visit(
    door: &ServedRoom,
    claims: &Claims,
    now: Timestamp,
) -> Result<Option<Timestamp>, PassRefused> {
    match gave(claims) {
        false => Ok(None),
        true if lasts(door, now) && now < claims.until => Ok(Some(now + door.settings.inside_ms)),
        true => Err(PassRefused::Expired),
    }
}
