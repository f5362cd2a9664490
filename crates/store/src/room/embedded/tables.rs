//! The tables of the waiting rooms.

use tidegate_durable::Table;

/// The store's clock.
pub const META: Table = Table::new(0, "meta");
/// The state of a waiting room as a whole, with its name.
pub const ROOMS: Table = Table::new(1, "rooms");
/// A ticket, with its room and its person.
pub const TICKETS: Table = Table::new(2, "tickets").memtable_mib(8);
/// All of them.
pub const ALL: [Table; 3] = [META, ROOMS, TICKETS];
