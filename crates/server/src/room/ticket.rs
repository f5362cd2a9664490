//! Converts tickets and rooms to the types of the API.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_api as api;
use tidegate_api::{EtaRange, RoomStatus, Ticket, TicketEnd, Time};
use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{RoomView, Status, TicketView};
use tidegate_core::room::config::Capacity;
use tidegate_core::room::eta::Eta;
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::Claims;
use tidegate_engine::room::{Sample, Seen};

use super::module::{Rooms, ServedRoom};
use crate::bulk::convert::time;

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

/// The status of a room at another time than that of its reading, if nobody has changed the room since.
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
    /// The ticket as its visitor sees it. `seen` is the last reading of the room.
    pub(crate) fn ticket(
        &self,
        served: &ServedRoom,
        person: &PersonId,
        stored: &TicketView,
        seen: &Seen,
    ) -> Ticket {
        let view = &seen.view;
        let mut ticket = Ticket {
            room: served.room.name().to_string(),
            person: person.to_string(),
            number: Some(stored.ticket.index.0),
            state: api::TicketState::Waiting,
            room_status: status(view),
            position: None,
            ahead: None,
            behind: None,
            waiting: stored.waiting,
            eta: None,
            opens_at: None,
            pass: None,
            end: None,
            at: time(view.now),
        };
        match stored.ticket.state {
            TicketState::Early { .. } => {
                ticket.state = api::TicketState::Early;
                ticket.number = None;
                ticket.waiting = view.early.max(1);
                ticket.opens_at = view.opens_at.map(time);
            }
            TicketState::Waiting { .. } => {
                // `ahead` includes early visitors who are still in the draw, so it may exceed `waiting`.
                ticket.waiting = stored.waiting.max(stored.ahead + 1);
                ticket.position = Some(stored.ahead + 1);
                ticket.ahead = Some(stored.ahead);
                ticket.behind = Some(stored.waiting.saturating_sub(stored.ahead + 1));
                let is_open = ticket.room_status == RoomStatus::Open;
                ticket.eta = seen.eta(stored.ahead).filter(|_| is_open).map(range);
            }
            TicketState::Granted { wave, at, until } => {
                ticket.state = api::TicketState::Granted;
                let token = self.signer.sign(
                    served.room.name(),
                    &Claims {
                        person: person.clone(),
                        incarnation: view.incarnation,
                        wave,
                        index: stored.ticket.index,
                        at,
                        until,
                    },
                );
                ticket.pass = Some(pass(served, token, until));
            }
            TicketState::Inside { .. } => ticket.state = api::TicketState::Inside,
            TicketState::Ended { end: how, .. } => {
                ticket.state = api::TicketState::Ended;
                ticket.end = Some(end(how));
            }
        }
        ticket
    }

    /// The ticket of a visitor whom the room admits without the store: nothing but a pass.
    pub(crate) fn failed_open(&self, served: &ServedRoom, claims: &Claims) -> Ticket {
        served.failed_open.fetch_add(1, Ordering::Relaxed);
        let signed = self.signer.sign(served.room.name(), claims);
        Ticket {
            room: served.room.name().to_string(),
            person: claims.person.to_string(),
            number: None,
            state: api::TicketState::Granted,
            room_status: RoomStatus::Open,
            position: None,
            ahead: None,
            behind: None,
            waiting: 0,
            eta: None,
            opens_at: None,
            pass: Some(pass(served, signed, claims.until)),
            end: None,
            at: time(claims.at),
        }
    }
}

fn pass(served: &ServedRoom, token: String, until: Timestamp) -> api::Pass {
    let go_to = served.settings.shop.as_ref().and_then(|shop| {
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
pub(crate) fn room(served: &ServedRoom, seen: &Arc<Seen>) -> api::Room {
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
        room: served.room.name().to_string(),
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
        streams: served.room.streams() as u64,
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
