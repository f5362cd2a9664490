//! Waiting rooms at work: streams of visitors, and the services that let people in.
//!
//! ```text
//!   visitor ── Visit ◄── mailbox ──┐            promoter: reap, promote ──► store ◄── other processes
//!                 ▲                │                                          │
//!                 └── Seen ── poller ◄── signal, or a slice is due ── survey ─┘
//!                                  │
//!                        heartbeat: heartbeats of every stream, in batches
//! ```
//!
//! | service, one per room | what it does | wakes on | at the latest after |
//! |---|---|---|---|
//! | `promoter` | ends expired tickets and slots, lets people in | a free slot, a newcomer, the rate | a second |
//! | `poller` | reads the room, finds who was let in, broadcasts positions | an admission, another change | a second |
//! | `heartbeat` | reports live and ended streams and takeovers | time, stream changes | a third of `presence_ms` |
//!
//! The process that promotes people does not notify them. Every process finds its own promoted visitors in the
//! positions that it reads anyway. So it does not matter who promotes, where a visitor is connected, or which
//! process died in between.

mod broadcast;
mod heartbeat;
mod poller;
mod promoter;
mod registry;
mod service;
mod settling;
mod state;
mod visit;

pub use service::{RoomOptions, RoomService, RoomsHandle};
pub use state::{RoomHandle, Sample, Seen, WorkView};
pub use visit::{Update, Visit};
