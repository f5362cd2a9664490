//! The streams of this process in one room: who they are, where they stand, and how they are reached.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::collections::HashMap;

use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{RoomView, TakenOver, TouchOutcome, TouchParams};
use tidegate_core::room::ticket::{Stream, Ticket, TicketState, Wave};
use tokio::sync::Notify;

/// What a stream is told to do.
const LOOK: u8 = 1;
const SUPERSEDED: u8 = 2;

/// The letter box of one stream.
#[derive(Debug, Default)]
pub(super) struct Notes {
    notes: AtomicU8,
    bell: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// Something happened to the ticket.
    Look,
    /// A newer stream of the same person is there.
    Superseded,
}

impl Notes {
    fn leave(&self, note: u8) {
        self.notes.fetch_or(note, Ordering::AcqRel);
        self.bell.notify_one();
    }

    /// The most important note; the others are done with it.
    pub(super) async fn next(&self) -> Note {
        loop {
            let notes = self.notes.swap(0, Ordering::AcqRel);
            if notes & SUPERSEDED != 0 {
                return Note::Superseded;
            }
            if notes & LOOK != 0 {
                return Note::Look;
            }
            self.bell.notified().await;
        }
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
    notes: Arc<Notes>,
}

impl Entry {
    fn compare(&self, view: &RoomView) {
        if self.since <= view.now && self.until.has_come(view) {
            self.notes.leave(LOOK);
        }
    }
}

/// One entry per person: a newer stream takes the place of an older one.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<HashMap<PersonId, Entry>>);

impl Registry {
    fn entries(&self) -> MutexGuard<'_, HashMap<PersonId, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.entries().len()
    }

    /// Adds a stream and tells an older one of the same person here.
    pub(super) fn add(&self, person: &PersonId, ticket: &Ticket) -> Arc<Notes> {
        let notes = Arc::<Notes>::default();
        let entry = Entry {
            stream: ticket.stream,
            until: Until::of(ticket),
            since: ticket.joined_at,
            notes: notes.clone(),
        };
        let mut entries = self.entries();
        match entries.get_mut(person) {
            // Two joins at once may be answered in any order.
            Some(newer) if newer.stream > ticket.stream => notes.leave(SUPERSEDED),
            Some(older) => std::mem::replace(older, entry).notes.leave(SUPERSEDED),
            None => drop(entries.insert(person.clone(), entry)),
        }
        notes
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
                entry.notes.leave(SUPERSEDED);
            }
        }
    }

    /// Signs of life of every stream.
    pub(super) fn touches(&self) -> Vec<TouchParams> {
        let entries = self.entries();
        let touch = |(person, entry): (&PersonId, &Entry)| TouchParams {
            person: person.clone(),
            stream: entry.stream,
            present: true,
        };
        entries.iter().map(touch).collect()
    }

    /// What the store said to a sign of life.
    pub(super) fn touched(&self, touch: &TouchParams, outcome: TouchOutcome) {
        let entries = self.entries();
        let entry = entries.get(&touch.person);
        let Some(entry) = entry.filter(|entry| entry.stream == touch.stream) else {
            return;
        };
        match outcome {
            TouchOutcome::Kept => {}
            TouchOutcome::Superseded => entry.notes.leave(SUPERSEDED),
            TouchOutcome::Gone => entry.notes.leave(LOOK),
        }
    }
}
