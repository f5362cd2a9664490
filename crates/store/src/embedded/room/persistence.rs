//! Writes the changes of rooms: a record per changed room, and one per ticket.

use tidegate_core::ids::RoomId;

use super::super::codec;
use super::super::disk::{Op, Table};
use super::super::runner::{Ops, Persistence};
use super::recover::{CLOCK, Numbers};
use crate::room::{RoomChange, Rooms};

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
            ops.extend(number.map(|number| Op::Delete(Table::Rooms, number)));
            ops.extend(tickets.map(|ticket| Op::Delete(Table::Tickets, ticket)));
            return;
        }
        let number = self.numbers.of_room(room);
        if let Some(head) = &change.head {
            ops.push(Op::Put(Table::Rooms, number, codec::encode(&(room, head))));
        }
        for (person, ticket) in change.tickets {
            match ticket {
                Some(ticket) => {
                    let bytes = codec::encode(&(number, &person, &ticket));
                    ops.push(Op::Put(
                        Table::Tickets,
                        self.numbers.of_ticket(number, &person),
                        bytes,
                    ));
                }
                None => ops.extend(
                    self.numbers
                        .forget(number, &person)
                        .map(|ticket| Op::Delete(Table::Tickets, ticket)),
                ),
            }
        }
    }
}

impl Persistence for RoomPersistence {
    type Machine = Rooms;

    fn machine(&mut self) -> &mut Rooms {
        &mut self.rooms
    }

    fn changes(&self) -> usize {
        self.rooms.changes()
    }

    fn take_ops(&mut self, must_sync: bool) -> Ops {
        let mut ops = Vec::new();
        for change in self.rooms.take_changed() {
            self.write(change, &mut ops);
        }
        if must_sync {
            ops.push(Op::Put(Table::Meta, CLOCK, codec::encode(&self.rooms.clock())));
        }
        Ops { ops, at_once: false }
    }
}
