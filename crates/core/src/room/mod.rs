//! A waiting room: admits people strictly in order, never more than the three limits allow. Each has a ticket
//! whose slot is a lease with a deadline. No I/O, no clock, no randomness.
//!
//! ```text
//!           join              promote               redeem              complete
//!   ─────────────► WAITING ───────────► GRANTED ───────────► INSIDE ───────────► COMPLETED
//!      │              ▲ │                  │ │                 │ │
//!      │ (not open)   │ │ leave: LEFT      │ │ leave: LEFT     │ │ leave: LEFT
//!      ▼   the draw   │ │ absent for the   │ │ not redeemed    │ │ too long inside:
//!    EARLY ───────────┘ ▼ grace: LOST      ▼ ▼ in time: NO_SHOW▼ ▼ EXPIRED
//! ```
//!
//! In other systems' terms, *in entry* is WAITING, and *in progress* is GRANTED and INSIDE; LOST, NO_SHOW and
//! EXPIRED are three ways to expire.
//!
//! - [`config`]: settings and limits. [`ticket`]: states and deadlines. [`command`]: parameters and outcomes.
//! - [`positions`]: who is ahead of whom. `queue`: join, leave and promote. `slots`: passes, visits and expiry.
//!   `admin`: what operators do. [`pace`], [`eta`]: how fast people are admitted, and how long a wait is.
//!
//! Invariant: a ticket that holds a slot is GRANTED or INSIDE, and has a deadline. Only leaving that state
//! frees the slot, so the slot is freed exactly once, whoever dies.
//! Invariant: seats taken = completed + granted + inside.
//! Invariant: nobody with a larger index is admitted before a person who is present. An absent person is
//! skipped, keeps the index, and goes first on return.

mod admin;
mod check;
pub mod command;
pub mod config;
pub mod eta;
pub mod pace;
pub mod positions;
mod queue;
mod slots;
pub mod ticket;

#[cfg(test)]
mod eta_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use self::command::{Counts, Resized, RoomView, Signals, Status, TicketView};
use self::config::{Capacity, RoomConfig};
use self::positions::{Positions, Undrawn};
use self::ticket::{Index, Ticket, TicketState, Wave};
use crate::ids::PersonId;
use crate::time::Timestamp;

/// Limit: early tickets that one promotion draws.
pub const DRAW_STEP: u64 = 500;
/// Limit: absent people that one promotion inspects beyond those it admits.
pub const INSPECTIONS: u64 = 500;
/// Limit: changes of the limits kept in the history.
pub const CHANGES: usize = 20;

/// Whether something overrides the configured number of seats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SeatsOverride {
    #[default]
    Configured,
    /// This number; none for as many as come.
    To(Option<u64>),
}

/// Limits that override the configured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Overrides {
    pub seats: SeatsOverride,
    pub inside: Option<u64>,
    pub per_second: Option<u64>,
}

/// The state of the room as a whole, persisted as one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// The incarnation: drawn when the room was created.
    pub incarnation: u64,
    pub config: RoomConfig,
    pub overrides: Overrides,
    pub status: Status,
    /// The index of the next ticket.
    pub next_index: u64,
    /// Indices reserved for early tickets and not yet assigned.
    pub draw_next: u64,
    pub draw_end: u64,
    pub wave: Wave,
    pub voided: Wave,
    pub granted: u64,
    pub inside: u64,
    pub counts: Counts,
    /// The admissions of the last second: time and count.
    pub recent: Vec<(Timestamp, u64)>,
    pub changes: Vec<Resized>,
}

impl Head {
    pub fn new(incarnation: u64, config: RoomConfig) -> Self {
        Self {
            incarnation,
            config,
            overrides: Overrides::default(),
            status: Status::Open,
            next_index: 0,
            draw_next: 0,
            draw_end: 0,
            wave: Wave(0),
            voided: Wave(0),
            granted: 0,
            inside: 0,
            counts: Counts::default(),
            recent: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// The limits in effect.
    pub fn capacity(&self) -> Capacity {
        let configured = self.config.capacity;
        Capacity {
            seats: match self.overrides.seats {
                SeatsOverride::Configured => configured.seats,
                SeatsOverride::To(seats) => seats,
            },
            inside: self.overrides.inside.unwrap_or(configured.inside),
            per_second: self.overrides.per_second.unwrap_or(configured.per_second),
        }
    }

    /// Tickets that hold a slot.
    pub fn slots(&self) -> u64 {
        self.granted + self.inside
    }

    fn is_early(&self, now: Timestamp) -> bool {
        self.config.opens_at.is_some_and(|at| at > now)
    }

    fn sold_out(&self) -> bool {
        self.capacity()
            .seats
            .is_some_and(|seats| self.counts.completed >= seats)
    }
}

#[derive(Debug, Clone)]
pub struct Room {
    head: Head,
    tickets: HashMap<PersonId, Ticket>,
    /// Waiting people who were present at the last inspection.
    queue: BTreeMap<Index, PersonId>,
    /// People who joined before the room opened, in the order of the draw.
    early: BTreeSet<(u64, PersonId)>,
    positions: Positions,
    /// When time changes a ticket; one entry each.
    due: Due,
    changed: Changed,
    signals: Signals,
}

/// Deadlines in order. Those of waiting people are separate: a reap skips them while nobody can know who is
/// present.
#[derive(Debug, Clone, Default)]
struct Due {
    absences: BTreeSet<(Timestamp, PersonId)>,
    others: BTreeSet<(Timestamp, PersonId)>,
}

impl Due {
    fn of(&mut self, ticket: &Ticket) -> &mut BTreeSet<(Timestamp, PersonId)> {
        match ticket.state {
            TicketState::Early { .. } | TicketState::Waiting { .. } => &mut self.absences,
            TicketState::Granted { .. } | TicketState::Inside { .. } | TicketState::Ended { .. } => {
                &mut self.others
            }
        }
    }

    fn first(&self, absent: bool) -> Option<&(Timestamp, PersonId)> {
        let absences = self.absences.first().filter(|_| absent);
        absences.into_iter().chain(self.others.first()).min()
    }
}

/// What has to be written since the last call that took it.
#[derive(Debug, Clone, Default)]
pub struct Changed {
    pub head: bool,
    /// Tickets that changed or were forgotten; one may occur more than once.
    pub tickets: Vec<PersonId>,
}

impl Room {
    pub fn new(incarnation: u64, config: RoomConfig) -> Self {
        Self::with_status(incarnation, config, Status::Open)
    }

    /// A room that has this status from the beginning.
    pub fn with_status(incarnation: u64, config: RoomConfig, status: Status) -> Self {
        Self {
            head: Head {
                status,
                ..Head::new(incarnation, config)
            },
            tickets: HashMap::new(),
            queue: BTreeMap::new(),
            early: BTreeSet::new(),
            positions: Positions::default(),
            due: Due::default(),
            changed: Changed {
                head: true,
                tickets: Vec::new(),
            },
            signals: Signals::default(),
        }
    }

    /// A room of an earlier run. Its connections died with that run, so everybody who waits is absent from now
    /// on.
    pub fn restored(head: Head, tickets: Vec<(PersonId, Ticket)>, now: Timestamp) -> Self {
        let mut room = Self::new(head.incarnation, head.config.clone());
        for (person, mut ticket) in tickets {
            if let TicketState::Early { present_until, .. } | TicketState::Waiting { present_until } =
                &mut ticket.state
            {
                *present_until = now;
            }
            room.replace(&person, Some(ticket), now);
        }
        room.head = head;
        room.changed = Changed::default();
        room
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    pub fn ticket(&self, person: &PersonId) -> Option<&Ticket> {
        self.tickets.get(person)
    }

    /// Whether there is something to write.
    pub fn has_changed(&self) -> bool {
        self.changed.head || !self.changed.tickets.is_empty()
    }

    pub fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    pub fn take_signals(&mut self) -> Signals {
        std::mem::take(&mut self.signals)
    }

    /// When time next changes something.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first(true).map(|(at, _)| *at)
    }

    /// Moves a ticket to its new state, or forgets it, in every index.
    fn replace(&mut self, person: &PersonId, ticket: Option<Ticket>, now: Timestamp) {
        let before = match &ticket {
            Some(ticket) => self.tickets.insert(person.clone(), ticket.clone()),
            None => self.tickets.remove(person),
        };
        if let Some(before) = &before {
            let due_at = before.due_at(&self.head.config);
            self.due.of(before).remove(&(due_at, person.clone()));
            match before.state {
                TicketState::Early { draw, .. } => drop(self.early.remove(&(draw, person.clone()))),
                TicketState::Waiting { .. } => {
                    self.queue.remove(&before.index);
                    if !matches!(
                        ticket,
                        Some(Ticket {
                            state: TicketState::Waiting { .. },
                            ..
                        })
                    ) {
                        self.positions.remove(before.index.0);
                    }
                }
                TicketState::Granted { .. } => self.head.granted -= 1,
                TicketState::Inside { .. } => self.head.inside -= 1,
                TicketState::Ended { .. } => {}
            }
        }
        let Some(ticket) = ticket else {
            self.changed.tickets.push(person.clone());
            return;
        };
        let due_at = ticket.due_at(&self.head.config);
        self.due.of(&ticket).insert((due_at, person.clone()));
        match ticket.state {
            TicketState::Early { draw, .. } => drop(self.early.insert((draw, person.clone()))),
            TicketState::Waiting { present_until } => {
                self.positions.add(ticket.index.0);
                if present_until > now {
                    self.queue.insert(ticket.index, person.clone());
                }
            }
            TicketState::Granted { .. } => self.head.granted += 1,
            TicketState::Inside { .. } => self.head.inside += 1,
            TicketState::Ended { .. } => {}
        }
        if before.is_none_or(|before| !only_presence(&before, &ticket)) {
            self.changed.tickets.push(person.clone());
            self.changed.head = true;
        }
    }

    /// Early tickets whose draw is in progress, or waits until the room is open.
    fn undrawn(&self) -> Undrawn {
        // If the opening was moved after the indices were reserved, people who joined early since then have none
        // of them.
        let reserved = self.head.draw_end - self.head.draw_next;
        match reserved.min(self.early.len() as u64) {
            0 => Undrawn::default(),
            people => Undrawn {
                before: self.head.draw_end,
                people,
            },
        }
    }

    fn view_of(&self, ticket: &Ticket) -> TicketView {
        let (waits, index) = (
            matches!(ticket.state, TicketState::Waiting { .. }),
            ticket.index.0,
        );
        TicketView {
            ticket: ticket.clone(),
            ahead: match waits {
                true => self.positions.ahead(index) + self.undrawn().ahead(index),
                false => 0,
            },
            waiting: self.positions.total(),
        }
    }

    /// Tickets with their positions.
    pub fn look(&self, people: &[PersonId]) -> Vec<Option<TicketView>> {
        let view = |person| self.tickets.get(person).map(|ticket| self.view_of(ticket));
        people.iter().map(view).collect()
    }

    /// The room with everybody's position.
    pub fn overview(&self, now: Timestamp) -> RoomView {
        let head = &self.head;
        RoomView {
            now,
            incarnation: head.incarnation,
            status: head.status,
            opens_at: head.config.opens_at,
            capacity: head.capacity(),
            configured: head.config.capacity,
            early: self.early.len() as u64,
            granted: head.granted,
            inside: head.inside,
            wave: head.wave,
            voided: head.voided,
            counts: head.counts,
            changes: head.changes.clone(),
            positions: self.positions.view().with_undrawn(self.undrawn()),
        }
    }

    /// Whether somebody could be admitted if the rate allows it.
    fn has_room(&self) -> bool {
        let (head, capacity) = (&self.head, self.head.capacity());
        head.status == Status::Open
            && head.slots() < capacity.inside
            && capacity
                .seats
                .is_none_or(|seats| head.counts.completed + head.slots() < seats)
    }
}

/// Heartbeats are not written: after a restart everybody counts as absent anyway.
fn only_presence(before: &Ticket, after: &Ticket) -> bool {
    let waits = |ticket: &Ticket| match ticket.state {
        TicketState::Waiting { .. } => Some(None),
        TicketState::Early { draw, .. } => Some(Some(draw)),
        _ => None,
    };
    waits(before).is_some() && waits(before) == waits(after) && before.index == after.index
}
