//! Tickets for visitors of a room that fails open.

use std::sync::atomic::Ordering;

use tidegate_api::{RoomStatus, Ticket, TicketState};
use tidegate_core::ids::PersonId;
use tidegate_core::time::Timestamp;

use super::module::{Rooms, ServedRoom};
use super::ticket::pass;
use crate::bulk::convert::time;
use crate::problem::{ApiError, UNAVAILABLE};
use crate::state::App;

/// Whether the room admits everybody now.
pub(crate) fn holds(served: &ServedRoom, now: Timestamp) -> bool {
    served
        .fail_open()
        .holds(served.room.seen().as_deref().map(|seen| &seen.view), now)
}

/// Issues a ticket with a pass to a visitor whom the unavailable store could not serve. Returns `None` if the problem is
/// another one, or if the room does not fail open.
pub(crate) fn ticket(
    app: &App,
    rooms: &Rooms,
    served: &ServedRoom,
    person: &PersonId,
    refused: &ApiError,
) -> Option<Ticket> {
    if refused.kind != UNAVAILABLE {
        return None;
    }
    let now = app.now();
    let seen = served.room.seen();
    let claims = served
        .fail_open()
        .admit(person, seen.as_deref().map(|seen| &seen.view), now)?;
    tracing::warn!(room = %served.room.name(), "the store is unavailable, and the room fails open: it admits everybody");
    served.failed_open.fetch_add(1, Ordering::Relaxed);
    let signed = rooms.signer.sign(served.room.name(), &claims);
    Some(Ticket {
        room: served.room.name().to_string(),
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
        pass: Some(pass(served, signed, claims.until)),
        end: None,
        at: time(now),
    })
}
