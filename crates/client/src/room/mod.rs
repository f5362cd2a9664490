//! Waiting rooms, for visitors, shops and operators.

mod rooms;
mod visit;

pub use visit::{RoomEvent, TicketCookie, Waiting};
