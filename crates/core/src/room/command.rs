//! The parameters and the outcome of every transition of a room.

use serde::{Deserialize, Serialize};

use super::config::Capacity;
use super::positions::PositionsView;
use super::ticket::{End, Index, Stream, Ticket, Wave};
use crate::ids::{PersonId, SessionId};
use crate::time::{Millis, Timestamp};

/// A person joins, or returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinParams {
    pub person: PersonId,
    /// Opens a stream, which supersedes an older one. Otherwise the call only reads the ticket and keeps it
    /// alive.
    pub stream: bool,
    /// Takes a new place at the end if the last ticket has ended. Otherwise the outcome says how it ended.
    pub again: bool,
    /// Decides the place of those who join before the room opens: smaller goes first. Below 2^52.
    pub draw: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinOutcome {
    /// The person has a ticket: a new one, or the existing one.
    Placed {
        ticket: TicketView,
        new: bool,
    },
    /// The last ticket has ended, and the caller did not request another.
    Ended(TicketView),
    Refused(Refused),
}

/// Why the room accepts nobody new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Closed,
    SoldOut,
    /// The waiting room is full.
    Full,
}

/// A ticket with its current position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketView {
    pub ticket: Ticket,
    /// How many wait ahead of it; 0 if it does not wait.
    pub ahead: u64,
    /// How many wait in all.
    pub waiting: u64,
}

/// A heartbeat, or the end of heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TouchParams {
    pub person: PersonId,
    pub stream: Stream,
    /// False: the connection is gone.
    pub present: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TouchOutcome {
    Kept,
    /// The person has a newer stream: this one no longer affects the ticket.
    Superseded,
    /// There is no ticket, or it has ended.
    Gone,
}

/// A person who was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    pub person: PersonId,
    pub index: Index,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromoteOutcome {
    /// In their order.
    pub granted: Vec<Granted>,
    pub stop: Stop,
}

/// Why the promotion admitted no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It reached the requested number, or its inspection limit: there may be more to do at once.
    More,
    /// Nobody present is waiting.
    Nobody,
    /// The limit of people inside is reached.
    Inside,
    /// People inside hold every seat that is left.
    Seats,
    SoldOut,
    /// The limit of admissions per second is reached.
    Rate {
        until: Timestamp,
    },
    NotOpen {
        at: Timestamp,
    },
    Paused,
    Closed,
}

/// A visitor presents a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedeemParams {
    pub person: PersonId,
    pub index: Index,
    pub wave: Wave,
    pub session: Option<SessionId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedeemOutcome {
    /// Inside until then. The same session gets the same outcome again.
    Inside {
        until: Timestamp,
    },
    AlreadyRedeemed,
    /// An operator voided the passes of its wave.
    Voided,
    /// It has expired.
    TooLate,
    /// It is not the pass of an admitted ticket.
    Unknown,
}

/// The outcome of an operation of the shop, or of a visitor who leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsideOutcome {
    /// Inside until then.
    Inside {
        until: Timestamp,
    },
    /// Has ended, by this call or before.
    Ended(End),
    /// Was not admitted, or its pass was not redeemed.
    NotInside,
    Unknown,
}

/// What one call may reap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReapParams {
    /// Maximum tickets.
    pub max: u64,
    /// The store drops the tickets of people absent for too long only if it executes the call by this time, in
    /// store time. A call that was delayed in transit comes too late: heartbeats are queued behind it. None
    /// drops no absent ticket, because nobody can know who is present; after an outage, streams send a
    /// heartbeat first. Slots are freed and ended tickets forgotten in any case.
    pub absent_by: Option<Timestamp>,
}

impl ReapParams {
    /// Everything that is due, however late the call is.
    pub const fn all(max: u64) -> Self {
        Self {
            max,
            absent_by: Some(Timestamp(u64::MAX)),
        }
    }

    /// Whether the tickets of absent people may be dropped.
    pub fn counts_absent(self, now: Timestamp) -> bool {
        self.absent_by.is_some_and(|by| now <= by)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReapOutcome {
    /// The store's time.
    pub now: Timestamp,
    pub lost: u64,
    pub no_shows: u64,
    pub expired: u64,
    pub forgotten: u64,
    /// There was more to do than one call does.
    pub more: bool,
}

/// A change of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change<T> {
    Set(T),
    /// Adds this many; rejected below zero and above the maximum.
    Add(i64),
    /// Back to the configured value.
    Reset,
}

/// A change of the limits, by whom, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeParams {
    /// The same for every attempt of one call, so that a relative change is applied once.
    pub request: u64,
    /// `Set(None)`: seats are not counted.
    pub seats: Option<Change<Option<u64>>>,
    pub inside: Option<Change<u64>>,
    pub per_second: Option<Change<u64>>,
    pub by: String,
    pub why: String,
}

/// An applied change of the limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    pub request: u64,
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// The limits in effect since.
    pub capacity: Capacity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeOutcome {
    Resized(Capacity),
    /// What is invalid; nothing changed.
    Invalid(String),
}

/// What an operator does to a room's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Pause,
    /// Also reopens a closed room.
    Resume,
    Close,
}

/// Whether the room admits people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Status {
    #[default]
    Open,
    Paused,
    Closed,
}

/// The outcome of removing a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// It is gone with everything it remembered.
    Removed,
    /// It is neither closed nor sold out.
    Open,
    /// Somebody waits, was admitted or is inside.
    Used { waiting: u64, inside: u64 },
}

/// Event counts since the room was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub joined: u64,
    /// Admissions.
    pub admitted: u64,
    pub redeemed: u64,
    pub completed: u64,
    /// Left while waiting.
    pub left: u64,
    /// Left after admission.
    pub left_inside: u64,
    pub lost: u64,
    pub no_shows: u64,
    pub expired: u64,
}

/// A room at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomView {
    pub now: Timestamp,
    /// The incarnation: distinguishes it from a lost room of the same name; part of every pass.
    pub incarnation: u64,
    pub status: Status,
    pub opens_at: Option<Timestamp>,
    /// The limits in effect.
    pub capacity: Capacity,
    /// The configured limits.
    pub configured: Capacity,
    /// Before the draw.
    pub early: u64,
    /// Admitted, not yet redeemed.
    pub granted: u64,
    pub inside: u64,
    pub wave: Wave,
    /// Passes of this wave and all earlier ones are void.
    pub voided: Wave,
    pub counts: Counts,
    pub changes: Vec<Resized>,
    pub positions: PositionsView,
}

impl RoomView {
    pub fn waiting(&self) -> u64 {
        self.positions.total()
    }

    pub fn sold_out(&self) -> bool {
        self.capacity
            .seats
            .is_some_and(|seats| self.counts.completed >= seats)
    }

    /// Whether it can be removed: nobody can join any more, and nobody is there.
    pub fn is_over(&self) -> bool {
        let people = self.early + self.waiting() + self.granted + self.inside;
        people == 0 && (self.status == Status::Closed || self.sold_out())
    }

    /// How many could be admitted now if the rate allows it: free slots that have a seat. Zero unless the room
    /// is open.
    pub fn free(&self) -> u64 {
        let opened = self.opens_at.is_none_or(|at| at <= self.now);
        if self.status != Status::Open || !opened {
            return 0;
        }
        let Capacity { inside, seats, .. } = self.capacity;
        let seats = seats.map_or(u64::MAX, |seats| seats.saturating_sub(self.counts.completed));
        inside.min(seats).saturating_sub(self.granted + self.inside)
    }
}

/// Whom to notify: set by a transition, read by the backend that signals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signals {
    /// Somebody may be admitted now.
    pub promote: bool,
    /// Somebody was admitted, or the room changed: streams send an update.
    pub update: bool,
    /// People who opened a stream while they may have another one open.
    pub taken_over: Vec<TakenOver>,
}

impl Signals {
    pub fn any(&self) -> bool {
        self.promote || self.update || !self.taken_over.is_empty()
    }
}

/// Older streams of this person are superseded, in every process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    pub person: PersonId,
    pub by: Stream,
}

/// The shop extends a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendParams {
    pub person: PersonId,
    /// Counted from now. Never shortens.
    pub by: Millis,
}
