//! Commands about waiting rooms.

mod capacity;
pub(crate) mod rooms;
