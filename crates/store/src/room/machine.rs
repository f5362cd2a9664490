//! All rooms in one process: the core's rooms in a map. The model and the embedded store run this.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{RemoveOutcome, Signals, Status};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::room::ticket::Ticket;
use tidegate_core::room::{Head, Room};
use tidegate_core::time::{StoreClock, Timestamp};

use crate::StoreError;

/// What has to be written of one room.
#[derive(Debug)]
pub(super) struct RoomChange {
    pub(super) room: RoomId,
    /// Everything written for it before is deleted.
    pub(super) removed: bool,
    pub(super) head: Option<Head>,
    /// None: forgotten. One person may occur more than once.
    pub(super) tickets: Vec<(PersonId, Option<Ticket>)>,
}

#[derive(Debug, Default)]
pub(super) struct Rooms {
    clock: StoreClock,
    rooms: BTreeMap<RoomId, Room>,
    /// Grows with every call that changed something.
    changes: u64,
    changed: BTreeSet<RoomId>,
    removed: BTreeSet<RoomId>,
}

impl Rooms {
    pub(super) fn resume(clock: StoreClock) -> Self {
        Self {
            clock,
            ..Self::default()
        }
    }

    /// A room of an earlier run.
    pub(super) fn restore(
        &mut self,
        room: RoomId,
        head: Head,
        tickets: Vec<(PersonId, Ticket)>,
        wall: Timestamp,
    ) {
        let now = self.clock.observe(wall);
        self.rooms.insert(room, Room::restored(head, tickets, now));
    }

    pub(super) fn clock(&self) -> StoreClock {
        self.clock
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn names(&self) -> Vec<RoomId> {
        self.rooms.keys().cloned().collect()
    }

    /// Everything that changed since the last call.
    pub(super) fn take_changed(&mut self) -> Vec<RoomChange> {
        let names = std::mem::take(&mut self.changed);
        // First: a room of the same name may have been created since.
        let removed = std::mem::take(&mut self.removed).into_iter();
        let mut changes: Vec<RoomChange> = removed
            .map(|room| RoomChange {
                room,
                removed: true,
                head: None,
                tickets: Vec::new(),
            })
            .collect();
        for name in names {
            let Some(room) = self.rooms.get_mut(&name) else {
                continue;
            };
            let changed = room.take_changed();
            changes.push(RoomChange {
                removed: false,
                head: changed.head.then(|| room.head().clone()),
                tickets: changed
                    .tickets
                    .into_iter()
                    .map(|person| {
                        let ticket = room.ticket(&person).cloned();
                        (person, ticket)
                    })
                    .collect(),
                room: name,
            });
        }
        changes
    }

    pub(super) fn open(
        &mut self,
        name: &RoomId,
        incarnation: u64,
        config: RoomConfig,
        wall: Timestamp,
    ) -> Signals {
        self.clock.observe(wall);
        let room = self.rooms.entry(name.clone());
        let room = room.or_insert_with(|| Room::new(incarnation, config.clone()));
        room.configure(&config);
        self.finish(name)
    }

    /// Returns false if it exists; it stays as it is.
    pub(super) fn create(
        &mut self,
        name: &RoomId,
        incarnation: u64,
        config: RoomConfig,
        status: Status,
        wall: Timestamp,
    ) -> bool {
        self.clock.observe(wall);
        if self.rooms.contains_key(name) {
            return false;
        }
        self.rooms
            .insert(name.clone(), Room::with_status(incarnation, config, status));
        self.finish(name);
        true
    }

    pub(super) fn remove(&mut self, name: &RoomId, wall: Timestamp) -> Result<RemoveOutcome, StoreError> {
        self.clock.observe(wall);
        let Some(room) = self.rooms.get(name) else {
            return Err(StoreError::UnknownRoom(name.to_string()));
        };
        let outcome = room.removal();
        if outcome == RemoveOutcome::Removed {
            self.rooms.remove(name);
            self.changes += 1;
            self.removed.insert(name.clone());
        }
        Ok(outcome)
    }

    /// Runs a transition on an existing room, and returns whom to notify.
    pub(super) fn on<T>(
        &mut self,
        name: &RoomId,
        wall: Timestamp,
        step: impl FnOnce(&mut Room, Timestamp) -> T,
    ) -> Result<(T, Signals), StoreError> {
        let now = self.clock.observe(wall);
        let Some(room) = self.rooms.get_mut(name) else {
            return Err(StoreError::UnknownRoom(name.to_string()));
        };
        let outcome = step(room, now);
        Ok((outcome, self.finish(name)))
    }

    fn finish(&mut self, name: &RoomId) -> Signals {
        let Some(room) = self.rooms.get_mut(name) else {
            return Signals::default();
        };
        if room.has_changed() {
            self.changes += 1;
            self.changed.insert(name.clone());
        }
        room.take_signals()
    }
}
