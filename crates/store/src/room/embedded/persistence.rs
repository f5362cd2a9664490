//! Writes the changes of rooms: a record per changed room, and one per ticket.

use tidegate_core::ids::RoomId;
use tidegate_durable::{Changes, Op, Persist, ReplyNeeds, SyncNeed, codec};

use super::super::{RoomChange, Rooms};
use super::recover::{CLOCK, Numbers};
use super::tables::{META, ROOMS, TICKETS};

pub(super) struct RoomPersistence {
    rooms: Rooms,
    numbers: Numbers,
}

impl RoomPersistence {
    pub(super) fn new(rooms: Rooms, numbers: Numbers) -> Self {
        Self { rooms, numbers }
    }

    fn write(&mut self, change: RoomChange, ops: &mut Vec<Op>) {
        let room: &RoomId = &change.room;
        if change.removed {
            let (number, tickets) = self.numbers.forget_room(room);
            ops.extend(number.map(|number| Op::Delete(ROOMS, number)));
            ops.extend(tickets.map(|ticket| Op::Delete(TICKETS, ticket)));
            return;
        }
        let number = self.numbers.of_room(room);
        if let Some(head) = &change.head {
            ops.push(Op::Put(ROOMS, number, codec::encode(&(room, head))));
        }
        for (person, ticket) in change.tickets {
            match ticket {
                Some(ticket) => {
                    let bytes = codec::encode(&(number, &person, &ticket));
                    ops.push(Op::Put(TICKETS, self.numbers.of_ticket(number, &person), bytes));
                }
                None => ops.extend(
                    self.numbers
                        .forget(number, &person)
                        .map(|ticket| Op::Delete(TICKETS, ticket)),
                ),
            }
        }
    }
}

impl Persist for RoomPersistence {
    type State = Rooms;

    fn state(&mut self) -> &mut Rooms {
        &mut self.rooms
    }

    fn changes(&self) -> u64 {
        self.rooms.changes()
    }

    fn take_changes(&mut self, needs: ReplyNeeds) -> Changes {
        let mut ops = Vec::new();
        for change in self.rooms.take_changed() {
            self.write(change, &mut ops);
        }
        if needs.sync {
            ops.push(Op::Put(META, CLOCK, codec::encode(&self.rooms.clock())));
        }
        Changes {
            ops,
            sync: match needs.sync {
                true => SyncNeed::AsConfigured,
                false => SyncNeed::None,
            },
            ..Changes::default()
        }
    }
}
