//! Waiting rooms, for visitors, shops and operators.

mod challenge;
mod draw;
mod rooms;
mod visit;

pub use challenge::Challenge;
pub use draw::Draw;
pub use visit::{Joined, RoomEvent, TicketCookie, Waiting};
