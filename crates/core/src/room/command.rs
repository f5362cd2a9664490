//! What goes into every transition of a room, and what comes out.

use serde::{Deserialize, Serialize};

use super::config::Capacity;
use super::places::PlacesView;
use super::ticket::{End, Index, Stream, Ticket, Wave};
use crate::ids::{PersonId, SessionId};
use crate::time::{Millis, Timestamp};

/// Somebody comes, or comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinParams {
    pub person: PersonId,
    /// Opens a stream, which supersedes an older one. Otherwise the ticket is only looked at and kept alive.
    pub stream: bool,
    /// Takes a new place at the end if the last ticket has ended. Otherwise it is told how that ended.
    pub again: bool,
    /// Decides the place of those who come before the room opens: smaller goes first. Below 2^52.
    pub draw: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JoinOutcome {
    /// Has a ticket: a new one, or the one it had.
    Placed {
        ticket: TicketView,
        new: bool,
    },
    /// The last ticket has ended, and another one was not asked for.
    Ended(TicketView),
    Refused(Refused),
}

/// Why nobody new comes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Closed,
    SoldOut,
    /// The waiting room is full.
    Full,
}

/// A ticket with its position as of now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketView {
    pub ticket: Ticket,
    /// How many wait before it; 0 if it does not wait.
    pub ahead: u64,
    /// How many wait in all.
    pub waiting: u64,
}

/// A heartbeat, or that there is none any more.
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
    /// Another stream of the same person is newer: this one says nothing about the ticket.
    Superseded,
    /// There is no ticket, or it has ended.
    Gone,
}

/// Somebody who was let in.
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

/// Why no more were let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// As many as asked for, or as one call looks at: there may be more to do at once.
    More,
    /// Nobody waits who is there.
    Nobody,
    /// As many are inside as may be.
    Inside,
    /// Every seat that is left is in the hands of somebody inside.
    Seats,
    SoldOut,
    /// As many were let in within a second as may be.
    Rate {
        until: Timestamp,
    },
    NotOpen {
        at: Timestamp,
    },
    Paused,
    Closed,
}

/// A pass is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedeemParams {
    pub person: PersonId,
    pub index: Index,
    pub wave: Wave,
    pub session: Option<SessionId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedeemOutcome {
    /// Inside until then. The same session is told the same again.
    Inside {
        until: Timestamp,
    },
    AlreadyRedeemed,
    /// An operator took back the passes of its wave.
    Voided,
    /// Its time is over.
    TooLate,
    /// It is not the pass of a ticket that was let in.
    Unknown,
}

/// What an operation of the shop, or a visitor who leaves, comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InsideOutcome {
    /// Inside until then.
    Inside {
        until: Timestamp,
    },
    /// Has ended, by this call or before.
    Ended(End),
    /// Has not been let in, or its pass has not been redeemed.
    NotInside,
    Unknown,
}

/// What time may end by one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReapParams {
    /// Tickets at most.
    pub max: u64,
    /// Those who were absent for too long lose their places if the store does this by then, in its own time. A call that
    /// lay on its way while nothing moved comes too late: heartbeats lie behind it. None: nobody does, because nobody
    /// can know who is there; after an outage, streams give a heartbeat first. Slots come back and ended tickets are
    /// forgotten all the same.
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

    /// Whether the places of absent people are among what is due.
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

/// How one limit is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change<T> {
    Set(T),
    /// By so many more or fewer; refused below zero and above the limit.
    Add(i64),
    /// Back to what is configured.
    Reset,
}

/// Who changes the limits, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResizeParams {
    /// The same for every try of one call: a change by so many is made once.
    pub request: u64,
    /// `Set(None)`: seats are not counted.
    pub seats: Option<Change<Option<u64>>>,
    pub inside: Option<Change<u64>>,
    pub per_second: Option<Change<u64>>,
    pub by: String,
    pub why: String,
}

/// A change of the limits that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    pub request: u64,
    pub at: Timestamp,
    pub by: String,
    pub why: String,
    /// What holds since.
    pub capacity: Capacity,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResizeOutcome {
    Resized(Capacity),
    /// What is wrong with it; nothing changed.
    Invalid(String),
}

/// What an operator does to the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    Pause,
    /// Also opens a closed room again.
    Resume,
    Close,
}

/// Whether people are let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Status {
    #[default]
    Open,
    Paused,
    Closed,
}

/// What becomes of a room that is to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveOutcome {
    /// It is gone with everything that was remembered in it.
    Removed,
    /// It is neither closed nor sold out.
    Open,
    /// Somebody waits, was let in or is inside.
    Used { waiting: u64, inside: u64 },
}

/// What happened since the room was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    pub joined: u64,
    /// Times that somebody was let in.
    pub admitted: u64,
    pub redeemed: u64,
    pub completed: u64,
    /// Left while waiting.
    pub left: u64,
    /// Left after being let in.
    pub left_inside: u64,
    pub lost: u64,
    pub no_shows: u64,
    pub expired: u64,
}

/// A room at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoomView {
    pub now: Timestamp,
    /// Told apart from a room of the same name that was lost: part of every pass.
    pub born: u64,
    pub status: Status,
    pub opens_at: Option<Timestamp>,
    /// What holds.
    pub capacity: Capacity,
    /// What is configured.
    pub configured: Capacity,
    /// Before the draw.
    pub early: u64,
    /// Let in, not yet redeemed.
    pub granted: u64,
    pub inside: u64,
    pub wave: Wave,
    /// Passes of this wave and all before are void.
    pub voided: Wave,
    pub counts: Counts,
    pub changes: Vec<Resized>,
    pub places: PlacesView,
}

impl RoomView {
    pub fn waiting(&self) -> u64 {
        self.places.total()
    }

    pub fn sold_out(&self) -> bool {
        self.capacity
            .seats
            .is_some_and(|seats| self.counts.completed >= seats)
    }

    /// Whether it can be removed: nobody comes any more, and nobody is there.
    pub fn is_over(&self) -> bool {
        let people = self.early + self.waiting() + self.granted + self.inside;
        people == 0 && (self.status == Status::Closed || self.sold_out())
    }

    /// How many could be let in now if the rate allows it: slots that nobody keeps and that have a seat. None while the
    /// door is not open.
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

/// Who should look: set by a transition, read by the backend that signals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Signals {
    /// Somebody may be let in now.
    pub promote: bool,
    /// Somebody was let in, or the room changed: those who wait are told.
    pub tell: bool,
    /// People who opened a stream while another one of theirs may be open.
    pub taken_over: Vec<TakenOver>,
}

impl Signals {
    pub fn any(&self) -> bool {
        self.promote || self.tell || !self.taken_over.is_empty()
    }
}

/// Streams of this person that are older than this one are over, wherever they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    pub person: PersonId,
    pub by: Stream,
}

/// The shop lets somebody stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtendParams {
    pub person: PersonId,
    /// From now on. Never shortens.
    pub by: Millis,
}
