//! Tickets and rooms as the API tells them.

use std::sync::Arc;

use tidegate_api as api;
use tidegate_api::{EtaRange, RoomStatus, Ticket, TicketEnd, Time};
use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{RoomView, Status, TicketView};
use tidegate_core::room::config::Capacity;
use tidegate_core::room::eta::Eta;
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::{Sample, Seen};

use super::module::{Rooms, ServedRoom};
use super::pass::Claims;
use crate::convert::time;

pub(crate) fn end(end: End) -> TicketEnd {
    match end {
        End::Completed => TicketEnd::Completed,
        End::Left => TicketEnd::Left,
        End::Lost => TicketEnd::Lost,
        End::NoShow => TicketEnd::NoShow,
        End::Expired => TicketEnd::Expired,
    }
}

pub(crate) fn status(view: &RoomView) -> RoomStatus {
    status_at(view, view.now)
}

/// What the door is like at another time than the room was read, if nobody has touched it since.
pub(crate) fn status_at(view: &RoomView, now: Timestamp) -> RoomStatus {
    match view.status {
        Status::Closed => RoomStatus::Closed,
        _ if view.sold_out() => RoomStatus::SoldOut,
        Status::Paused => RoomStatus::Paused,
        Status::Open if view.opens_at.is_some_and(|at| at > now) => RoomStatus::NotOpen,
        Status::Open => RoomStatus::Open,
    }
}

fn range(eta: Eta) -> EtaRange {
    EtaRange {
        low_ms: eta.low.0,
        likely_ms: eta.likely.0,
        high_ms: eta.high.0,
    }
}

impl Rooms {
    /// What a visitor is told. `seen` is the room at its last look.
    pub(crate) fn place(
        &self,
        door: &ServedRoom,
        person: &PersonId,
        told: &TicketView,
        seen: &Seen,
    ) -> Ticket {
        let (ticket, view) = (&told.ticket, &seen.view);
        let mut place = Ticket {
            room: door.room.name().to_string(),
            person: person.to_string(),
            number: Some(ticket.index.0),
            state: api::TicketState::Waiting,
            room_status: status(view),
            position: None,
            ahead: None,
            behind: None,
            waiting: told.waiting,
            eta: None,
            opens_at: None,
            pass: None,
            end: None,
            at: time(view.now),
        };
        match ticket.state {
            TicketState::Early { .. } => {
                place.state = api::TicketState::Early;
                place.number = None;
                place.waiting = view.early.max(1);
                place.opens_at = view.opens_at.map(time);
            }
            TicketState::Waiting { .. } => {
                // Those whose draw is not over stand ahead, too.
                place.waiting = told.waiting.max(told.ahead + 1);
                place.position = Some(told.ahead + 1);
                place.ahead = Some(told.ahead);
                place.behind = Some(told.waiting.saturating_sub(told.ahead + 1));
                let goes_on = place.room_status == RoomStatus::Open;
                place.eta = seen.eta(told.ahead).filter(|_| goes_on).map(range);
            }
            TicketState::Granted { wave, at, until } => {
                place.state = api::TicketState::Granted;
                let token = self.signer.sign(
                    door.room.name(),
                    &Claims {
                        person: person.clone(),
                        born: view.born,
                        wave,
                        index: ticket.index,
                        at,
                        until,
                    },
                );
                place.pass = Some(pass(door, token, until));
            }
            TicketState::Inside { .. } => place.state = api::TicketState::Inside,
            TicketState::Ended { end: how, .. } => {
                place.state = api::TicketState::Ended;
                place.end = Some(end(how));
            }
        }
        place
    }
}

pub(crate) fn pass(door: &ServedRoom, token: String, until: Timestamp) -> api::Pass {
    let go_to = door.settings.shop.as_ref().and_then(|shop| {
        let mut url = reqwest::Url::parse(shop).ok()?;
        url.query_pairs_mut().append_pair("pass", &token);
        Some(url.to_string())
    });
    api::Pass {
        token,
        expires_at: time(until),
        go_to,
    }
}

fn capacity(capacity: Capacity) -> api::RoomCapacity {
    api::RoomCapacity {
        seats: capacity.seats,
        inside: capacity.inside,
        per_second: capacity.per_second,
    }
}

/// A room as operators see it.
pub(crate) fn room(door: &ServedRoom, seen: &Arc<Seen>) -> api::Room {
    let view = &seen.view;
    let counts = view.counts;
    let changes = view.changes.iter().map(|change| api::CapacityChange {
        at: time(change.at),
        by: change.by.clone(),
        why: change.why.clone(),
        capacity: capacity(change.capacity),
    });
    let status = status(view);
    api::Room {
        room: door.room.name().to_string(),
        status,
        opens_at: view.opens_at.map(time),
        capacity: capacity(view.capacity),
        configured: capacity(view.configured),
        early: view.early,
        waiting: view.waiting(),
        granted: view.granted,
        inside: view.inside,
        admitted_per_second: seen.lately.map(|per_ms| per_ms * 1_000.0),
        eta: seen
            .eta(view.waiting())
            .filter(|_| status == RoomStatus::Open)
            .map(range),
        streams: door.room.streams() as u64,
        wave: view.wave.0,
        voided: view.voided.0,
        counts: api::RoomCounts {
            joined: counts.joined,
            admitted: counts.admitted,
            redeemed: counts.redeemed,
            completed: counts.completed,
            left: counts.left,
            left_inside: counts.left_inside,
            lost: counts.lost,
            no_shows: counts.no_shows,
            expired: counts.expired,
        },
        changes: changes.collect(),
        at: time(view.now),
    }
}

pub(crate) fn sample(sample: &Sample) -> api::RoomSample {
    api::RoomSample {
        at: Time(sample.at.0),
        waiting: sample.waiting,
        granted: sample.granted,
        inside: sample.inside,
        admitted: sample.admitted,
        completed: sample.completed,
        left: sample.left,
    }
}
