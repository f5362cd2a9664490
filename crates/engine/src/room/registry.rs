//! The streams of this process in one room: who they are, where they stand, and how they are reached.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{RoomView, TakenOver, TouchOutcome, TouchParams};
use tidegate_core::room::ticket::{Stream, Ticket, TicketState, Wave};

use super::broadcast::{PARTS, Slices};

/// What a stream is told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// It is this stream's turn to count its position, and to see what time has brought.
    Beat = 1,
    /// Something happened to the ticket.
    Look = 2,
    /// The room is gone, and the ticket with it.
    Gone = 4,
    /// A newer stream of the same person is there.
    Superseded = 8,
}

/// The letter box of one stream: all that it ever waits for. With tens of thousands of streams in a process, timers and
/// lists of waiters of their own would cost more than what they are told.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    mailbox: AtomicU8,
    reader: AtomicWaker,
}

impl Mailbox {
    fn leave(&self, note: Note) {
        self.mailbox.fetch_or(note as u8, Ordering::AcqRel);
        self.reader.wake();
    }

    /// The most important note; the others are done with it: whoever looks at the ticket finds its position, too.
    pub(super) async fn next(&self) -> Note {
        poll_fn(|context| {
            // Listen first, then look.
            self.reader.register(context.waker());
            let mailbox = self.mailbox.swap(0, Ordering::AcqRel);
            let by_weight = [Note::Superseded, Note::Gone, Note::Look, Note::Beat];
            let found = by_weight.into_iter().find(|note| mailbox & *note as u8 != 0);
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// What has to happen for a stream to look at its ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The place is empty.
    Place(u64),
    /// The draw has begun.
    Draw,
    /// Passes of the wave are void.
    Void(Wave),
    /// Nothing that a room as a whole tells.
    Time,
}

impl Until {
    fn of(ticket: &Ticket) -> Self {
        match ticket.state {
            TicketState::Waiting { .. } => Self::Place(ticket.index.0),
            TicketState::Early { .. } => Self::Draw,
            TicketState::Granted { wave, .. } => Self::Void(wave),
            TicketState::Inside { .. } | TicketState::Ended { .. } => Self::Time,
        }
    }

    fn has_come(self, view: &RoomView) -> bool {
        match self {
            Self::Place(index) => !view.places.has(index),
            Self::Draw => view.opens_at.is_none_or(|at| at <= view.now),
            Self::Void(wave) => view.voided >= wave,
            Self::Time => false,
        }
    }
}

#[derive(Debug)]
struct Entry {
    stream: Stream,
    until: Until,
    /// A view from before this tells nothing about the ticket.
    since: tidegate_core::time::Timestamp,
    /// In which part of a second it has its turn.
    part: u8,
    mailbox: Arc<Mailbox>,
}

impl Entry {
    fn compare(&self, view: &RoomView) {
        if self.since <= view.now && self.until.has_come(view) {
            self.mailbox.leave(Note::Look);
        }
    }
}

/// One entry per person: a newer stream takes the place of an older one.
#[derive(Debug, Default)]
pub(super) struct Registry {
    entries: Mutex<HashMap<PersonId, Entry>>,
    next_part: AtomicU8,
}

impl Registry {
    fn entries(&self) -> MutexGuard<'_, HashMap<PersonId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    /// Adds a stream and tells an older one of the same person here.
    pub(super) fn add(&self, person: &PersonId, ticket: &Ticket) -> Arc<Mailbox> {
        let mailbox = Arc::<Mailbox>::default();
        let entry = Entry {
            stream: ticket.stream,
            until: Until::of(ticket),
            since: ticket.joined_at,
            // Wraps at a multiple of the slices.
            part: self.next_part.fetch_add(1, Ordering::Relaxed) % PARTS,
            mailbox: mailbox.clone(),
        };
        let mut entries = self.entries();
        match entries.get_mut(person) {
            // Two joins at once may be answered in any order.
            Some(newer) if newer.stream > ticket.stream => mailbox.leave(Note::Superseded),
            Some(older) => std::mem::replace(older, entry).mailbox.leave(Note::Superseded),
            None => drop(entries.insert(person.clone(), entry)),
        }
        mailbox
    }

    /// The ticket as it was found.
    pub(super) fn found(&self, person: &PersonId, ticket: &Ticket) {
        if let Some(entry) = self.entries().get_mut(person)
            && entry.stream == ticket.stream
        {
            entry.until = Until::of(ticket);
        }
    }

    pub(super) fn remove(&self, person: &PersonId, stream: Stream) {
        let mut entries = self.entries();
        if entries.get(person).is_some_and(|entry| entry.stream == stream) {
            entries.remove(person);
        }
    }

    /// Tells those for whom something has happened, by a look at the room.
    pub(super) fn compare(&self, view: &RoomView) {
        self.entries().values().for_each(|entry| entry.compare(view));
    }

    /// The same for one person.
    pub(super) fn compare_one(&self, person: &PersonId, view: &RoomView) {
        if let Some(entry) = self.entries().get(person) {
            entry.compare(view);
        }
    }

    /// Tells the streams that are here and older than those that took over.
    pub(super) fn taken_over(&self, notices: &[TakenOver]) {
        let entries = self.entries();
        for TakenOver { person, by } in notices {
            if let Some(entry) = entries.get(person)
                && entry.stream < *by
            {
                entry.mailbox.leave(Note::Superseded);
            }
        }
    }

    /// Tells those whose turn it is.
    pub(super) fn beat(&self, turn: Slices) {
        if !turn.any() {
            return;
        }
        for entry in self.entries().values().filter(|entry| turn.has(entry.part)) {
            entry.mailbox.leave(Note::Beat);
        }
    }

    /// Tells everybody that the room is gone.
    pub(super) fn gone(&self) {
        self.entries()
            .values()
            .for_each(|entry| entry.mailbox.leave(Note::Gone));
    }

    /// Everybody, in the order of their places; those who have none come last.
    pub(super) fn in_line(&self) -> Vec<PersonId> {
        let entries = self.entries();
        let mut people: Vec<(u64, &PersonId)> = entries
            .iter()
            .map(|(person, entry)| match entry.until {
                Until::Place(index) => (index, person),
                Until::Draw | Until::Void(_) | Until::Time => (u64::MAX, person),
            })
            .collect();
        people.sort_unstable();
        people.into_iter().map(|(_, person)| person.clone()).collect()
    }

    /// Heartbeats of those of them who are still there.
    pub(super) fn touches(&self, people: &[PersonId]) -> Vec<TouchParams> {
        let entries = self.entries();
        let touch = |person: &PersonId| {
            Some(TouchParams {
                person: person.clone(),
                stream: entries.get(person)?.stream,
                present: true,
            })
        };
        people.iter().filter_map(touch).collect()
    }

    /// What the store said to a heartbeat.
    pub(super) fn touched(&self, touch: &TouchParams, outcome: TouchOutcome) {
        let entries = self.entries();
        let entry = entries.get(&touch.person);
        let Some(entry) = entry.filter(|entry| entry.stream == touch.stream) else {
            return;
        };
        match outcome {
            TouchOutcome::Kept => {}
            TouchOutcome::Superseded => entry.mailbox.leave(Note::Superseded),
            TouchOutcome::Gone => entry.mailbox.leave(Note::Look),
        }
    }
}
