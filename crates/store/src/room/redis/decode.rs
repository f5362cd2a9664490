//! Decodes the replies of the room scripts.

use tidegate_core::room::command::{
    Counts, Granted, InsideOutcome, JoinOutcome, PromoteOutcome, ReapOutcome, RedeemOutcome, Refused,
    RemoveOutcome, Resized, RoomView, Status, Stop, TicketView, TouchOutcome,
};
use tidegate_core::room::config::Capacity;
use tidegate_core::room::positions::{PositionsView, Undrawn};
use tidegate_core::room::ticket::{End, Index, Stream, Ticket, TicketState, Wave};
use tidegate_redis::Items;

use crate::StoreError;

fn odd(what: &str, found: impl std::fmt::Debug) -> StoreError {
    StoreError::Corrupt(format!("a script answered {found:?} where {what} was expected"))
}

fn end(items: &mut Items) -> Result<End, StoreError> {
    Ok(match items.int()? {
        1 => End::Completed,
        2 => End::Left,
        3 => End::Lost,
        4 => End::NoShow,
        5 => End::Expired,
        other => return Err(odd("how a ticket ended", other)),
    })
}

fn wave(items: &mut Items) -> Result<Wave, StoreError> {
    Ok(Wave(items.unsigned()?))
}

fn state(number: i64, items: &mut Items) -> Result<TicketState, StoreError> {
    Ok(match number {
        1 => TicketState::Early {
            draw: items.unsigned()?,
            present_until: items.time()?,
        },
        2 => TicketState::Waiting {
            present_until: items.time()?,
        },
        3 => TicketState::Granted {
            wave: wave(items)?,
            at: items.time()?,
            until: items.time()?,
        },
        4 => TicketState::Inside {
            wave: wave(items)?,
            until: items.time()?,
            session: match items.maybe_text()? {
                None => None,
                Some(text) => Some(text.try_into().map_err(|error| odd("a session", error))?),
            },
        },
        5 => TicketState::Ended {
            end: end(items)?,
            at: items.time()?,
        },
        other => return Err(odd("the state of a ticket", other)),
    })
}

fn view(items: &mut Items) -> Result<TicketView, StoreError> {
    let number = items.int()?;
    let (index, joined_at) = (Index(items.unsigned()?), items.time()?);
    let stream = Stream(items.unsigned()?);
    let (ahead, waiting) = (items.unsigned()?, items.unsigned()?);
    Ok(TicketView {
        ticket: Ticket {
            index,
            joined_at,
            stream,
            state: state(number, items)?,
        },
        ahead,
        waiting,
    })
}

pub(super) fn joined(items: &mut Items) -> Result<JoinOutcome, StoreError> {
    Ok(match items.int()? {
        found @ (1 | 2) => JoinOutcome::Placed {
            ticket: view(&mut items.items()?)?,
            new: found == 1,
        },
        3 => JoinOutcome::Ended(view(&mut items.items()?)?),
        4 => JoinOutcome::Refused(Refused::Closed),
        5 => JoinOutcome::Refused(Refused::SoldOut),
        6 => JoinOutcome::Refused(Refused::Full),
        other => return Err(odd("the outcome of a join", other)),
    })
}

pub(super) fn touched(items: &mut Items) -> Result<TouchOutcome, StoreError> {
    Ok(match items.int()? {
        1 => TouchOutcome::Kept,
        2 => TouchOutcome::Superseded,
        3 => TouchOutcome::Gone,
        other => return Err(odd("the outcome of a heartbeat", other)),
    })
}

pub(super) fn promoted(items: &mut Items) -> Result<PromoteOutcome, StoreError> {
    let (why, at) = (items.int()?, items.time()?);
    let stop = match why {
        1 => Stop::More,
        2 => Stop::Nobody,
        3 => Stop::Inside,
        4 => Stop::Seats,
        5 => Stop::SoldOut,
        6 => Stop::Rate { until: at },
        7 => Stop::NotOpen { at },
        8 => Stop::Paused,
        9 => Stop::Closed,
        other => return Err(odd("why nobody more was let in", other)),
    };
    let mut pairs = items.items()?;
    let mut granted = Vec::with_capacity(pairs.len() / 2);
    while !pairs.is_empty() {
        granted.push(Granted {
            person: pairs.name()?,
            index: Index(pairs.unsigned()?),
        });
    }
    Ok(PromoteOutcome { granted, stop })
}

pub(super) fn redeemed(items: &mut Items) -> Result<RedeemOutcome, StoreError> {
    Ok(match items.int()? {
        1 => RedeemOutcome::Inside { until: items.time()? },
        2 => RedeemOutcome::AlreadyRedeemed,
        3 => RedeemOutcome::Voided,
        4 => RedeemOutcome::TooLate,
        5 => RedeemOutcome::Unknown,
        other => return Err(odd("the outcome of a pass", other)),
    })
}

pub(super) fn inside(items: &mut Items) -> Result<InsideOutcome, StoreError> {
    Ok(match items.int()? {
        1 => InsideOutcome::Inside { until: items.time()? },
        2 => InsideOutcome::Ended(end(items)?),
        3 => InsideOutcome::NotInside,
        4 => InsideOutcome::Unknown,
        other => return Err(odd("what became of a visit", other)),
    })
}

pub(super) fn removed(items: &mut Items) -> Result<RemoveOutcome, StoreError> {
    Ok(match items.int()? {
        1 => RemoveOutcome::Removed,
        2 => RemoveOutcome::Open,
        3 => RemoveOutcome::Used {
            waiting: items.unsigned()?,
            inside: items.unsigned()?,
        },
        other => return Err(odd("whether a room is gone", other)),
    })
}

pub(super) fn reaped(items: &mut Items) -> Result<ReapOutcome, StoreError> {
    Ok(ReapOutcome {
        now: items.time()?,
        lost: items.unsigned()?,
        no_shows: items.unsigned()?,
        expired: items.unsigned()?,
        forgotten: items.unsigned()?,
        more: items.flag()?,
    })
}

pub(super) fn capacity(items: &mut Items) -> Result<Capacity, StoreError> {
    Ok(Capacity {
        seats: items.maybe()?,
        inside: items.unsigned()?,
        per_second: items.unsigned()?,
    })
}

/// None if there is no ticket.
pub(super) fn looked(items: &mut Items) -> Result<Option<TicketView>, StoreError> {
    match items.len() {
        0 => Ok(None),
        _ => view(items).map(Some),
    }
}

fn resized(items: &mut Items) -> Result<Resized, StoreError> {
    let request = items.text()?;
    Ok(Resized {
        request: request
            .parse()
            .map_err(|_| odd("the number of a request", &request))?,
        at: items.time()?,
        by: items.text()?,
        why: items.text()?,
        capacity: capacity(items)?,
    })
}

fn status(items: &mut Items) -> Result<Status, StoreError> {
    Ok(match items.int()? {
        1 => Status::Open,
        2 => Status::Paused,
        3 => Status::Closed,
        other => return Err(odd("whether a room is open", other)),
    })
}

fn counts(items: &mut Items) -> Result<Counts, StoreError> {
    Ok(Counts {
        joined: items.unsigned()?,
        admitted: items.unsigned()?,
        redeemed: items.unsigned()?,
        completed: items.unsigned()?,
        left: items.unsigned()?,
        left_inside: items.unsigned()?,
        lost: items.unsigned()?,
        no_shows: items.unsigned()?,
        expired: items.unsigned()?,
    })
}

pub(super) fn overview(items: &mut Items) -> Result<RoomView, StoreError> {
    Ok(RoomView {
        now: items.time()?,
        incarnation: items.unsigned()?,
        status: status(items)?,
        opens_at: items.maybe()?.map(tidegate_redis::time),
        capacity: capacity(items)?,
        configured: capacity(items)?,
        early: items.unsigned()?,
        granted: items.unsigned()?,
        inside: items.unsigned()?,
        wave: wave(items)?,
        voided: wave(items)?,
        counts: counts(items)?,
        changes: items.items()?.each(resized)?,
        positions: {
            let first = items.unsigned()?;
            let placed = PositionsView::from_bytes(first, &items.bytes()?);
            let (before, people) = (items.unsigned()?, items.unsigned()?);
            placed.with_undrawn(match people {
                0 => Undrawn::default(),
                _ => Undrawn { before, people },
            })
        },
    })
}
