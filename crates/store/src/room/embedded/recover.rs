//! Start-up: reads back every room, and the number of each ticket on disk.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::Head;
use tidegate_core::room::ticket::Ticket;
use tidegate_core::time::{StoreClock, Timestamp};
use tidegate_durable::disk::scan_all;
use tidegate_durable::{Disk, DurableError, codec};

use super::super::Rooms;
use super::tables::{META, ROOMS, TICKETS};

/// Key of the clock in the meta table.
pub(super) const CLOCK: u64 = 0;

/// Table keys are numbers: maps each room and ticket to its number.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    rooms: HashMap<RoomId, u64>,
    /// By room number.
    tickets: HashMap<u64, HashMap<PersonId, u64>>,
    next: u64,
}

impl Numbers {
    fn used(&mut self, number: u64) {
        self.next = self.next.max(number + 1);
    }

    pub(super) fn of_room(&mut self, room: &RoomId) -> u64 {
        let next = &mut self.next;
        *self.rooms.entry_ref(room).or_insert_with(|| fresh(next))
    }

    pub(super) fn of_ticket(&mut self, room: u64, person: &PersonId) -> u64 {
        let next = &mut self.next;
        let tickets = self.tickets.entry(room).or_default();
        *tickets.entry_ref(person).or_insert_with(|| fresh(next))
    }

    /// None if it was never written.
    pub(super) fn forget(&mut self, room: u64, person: &PersonId) -> Option<u64> {
        self.tickets.get_mut(&room)?.remove(person)
    }

    /// The number of the room, unless it was never written, and of its tickets.
    pub(super) fn forget_room(&mut self, room: &RoomId) -> (Option<u64>, impl Iterator<Item = u64> + use<>) {
        let number = self.rooms.remove(room);
        let tickets = number.and_then(|number| self.tickets.remove(&number));
        (number, tickets.unwrap_or_default().into_values())
    }
}

fn fresh(next: &mut u64) -> u64 {
    *next += 1;
    *next - 1
}

/// Checks that a ticket holds every slot that a room counts: any other slot would never be freed.
fn counted(room: &RoomId, head: &Head, tickets: &[(PersonId, Ticket)]) -> Result<(), DurableError> {
    let slots = tickets.iter().filter(|(_, ticket)| ticket.holds_slot()).count() as u64;
    match slots == head.slots() {
        true => Ok(()),
        false => Err(DurableError::Corrupt(format!(
            "the room {room:?} counts {} people inside, and {slots} tickets are theirs",
            head.slots()
        ))),
    }
}

/// The restored rooms, with everybody who waited absent.
pub(super) fn recover(disk: &dyn Disk, wall: Timestamp) -> Result<(Rooms, Numbers), DurableError> {
    let mut numbers = Numbers::default();
    let clock = match disk.get(META, CLOCK)? {
        Some(bytes) => codec::decode::<StoreClock>("the clock", &bytes)?,
        None => StoreClock::default(),
    };
    let mut heads: BTreeMap<u64, (RoomId, Head)> = BTreeMap::new();
    scan_all(disk, ROOMS, |number, bytes| {
        let (room, head): (RoomId, Head) = codec::decode("a room", bytes)?;
        numbers.used(number);
        numbers.rooms.insert(room.clone(), number);
        heads.insert(number, (room, head));
        Ok(())
    })?;
    let mut tickets: HashMap<u64, Vec<(PersonId, Ticket)>> = HashMap::new();
    scan_all(disk, TICKETS, |number, bytes| {
        let (room, person, ticket): (u64, PersonId, Ticket) = codec::decode("a ticket", bytes)?;
        numbers.used(number);
        numbers
            .tickets
            .entry(room)
            .or_default()
            .insert(person.clone(), number);
        tickets.entry(room).or_default().push((person, ticket));
        Ok(())
    })?;
    let mut rooms = Rooms::resume(clock);
    for (number, (room, head)) in heads {
        let tickets = tickets.remove(&number).unwrap_or_default();
        counted(&room, &head, &tickets)?;
        rooms.restore(room, head, tickets, wall);
    }
    match tickets.is_empty() {
        true => Ok((rooms, numbers)),
        false => Err(DurableError::Corrupt(
            "a ticket names a room that is not there".to_owned(),
        )),
    }
}
