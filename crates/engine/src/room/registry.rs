//! The streams of this process in one room: whose they are, their positions, and how to reach them.

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

/// What a stream has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// This stream's slice is due: compute the position, and check what has expired.
    Beat = 1,
    /// Something happened to the ticket: read it.
    Look = 2,
    /// The room is gone, and the ticket with it.
    Gone = 4,
    /// A newer stream of the same person exists.
    Superseded = 8,
}

/// The mailbox of one stream: all that it ever waits for. With tens of thousands of streams in a process, separate
/// timers and waiter lists would cost more than the messages themselves.
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

    /// Returns the most important note and clears the others: reading the ticket also yields its position.
    pub(super) async fn next(&self) -> Note {
        poll_fn(|context| {
            // Register first, then check: no note gets lost.
            self.reader.register(context.waker());
            let mailbox = self.mailbox.swap(0, Ordering::AcqRel);
            let by_weight = [Note::Superseded, Note::Gone, Note::Look, Note::Beat];
            let found = by_weight.into_iter().find(|note| mailbox & *note as u8 != 0);
            found.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

/// What must happen before a stream reads its ticket again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    /// The ticket no longer waits.
    Place(u64),
    /// The draw has begun.
    Draw,
    /// The passes of the wave are void.
    Void(Wave),
    /// Nothing that an overview of the room shows.
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
            Self::Place(index) => !view.positions.has(index),
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
    /// A view from before this says nothing about the ticket.
    since: tidegate_core::time::Timestamp,
    /// The slice of a second in which its position is due.
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

/// One entry per person: a newer stream replaces an older one.
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

    /// Adds a stream, and notifies an older one of the same person in this process.
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
            // Two concurrent joins may return in any order.
            Some(newer) if newer.stream > ticket.stream => mailbox.leave(Note::Superseded),
            Some(older) => std::mem::replace(older, entry).mailbox.leave(Note::Superseded),
            None => drop(entries.insert(person.clone(), entry)),
        }
        mailbox
    }

    /// Updates the entry with the ticket that the store returned.
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

    /// Notifies the streams whose condition this view of the room fulfils.
    pub(super) fn compare(&self, view: &RoomView) {
        self.entries().values().for_each(|entry| entry.compare(view));
    }

    /// The same for one person.
    pub(super) fn compare_one(&self, person: &PersonId, view: &RoomView) {
        if let Some(entry) = self.entries().get(person) {
            entry.compare(view);
        }
    }

    /// Notifies the streams in this process that are older than the ones that superseded them.
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

    /// Notifies the streams whose slice is due.
    pub(super) fn beat(&self, turn: Slices) {
        if !turn.any() {
            return;
        }
        for entry in self.entries().values().filter(|entry| turn.has(entry.part)) {
            entry.mailbox.leave(Note::Beat);
        }
    }

    /// Notifies everybody that the room is gone.
    pub(super) fn gone(&self) {
        self.entries()
            .values()
            .for_each(|entry| entry.mailbox.leave(Note::Gone));
    }

    /// Everybody in the order of the queue; people who do not wait come last.
    pub(super) fn in_queue_order(&self) -> Vec<PersonId> {
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

    /// Heartbeats for those who are still present.
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

    /// Handles the store's reply to a heartbeat.
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
