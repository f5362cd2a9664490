//! Waiting rooms at work: streams of visitors, and the services that let people in.
//!
//! ```text
//!   visitor ── Visit ◄── mailbox ──┐            promoter: reap, promote ──► store ◄── other processes
//!                 ▲              │                                          │
//!                 └── Seen ── watcher ◄── signal, or a turn's time ── survey ─┘
//!                                │
//!                          presence: heartbeats of every stream, in batches
//! ```
//!
//! | service, one per room | what it does | wakes on | at the latest after |
//! |---|---|---|---|
//! | `promoter` | ends what time has ended, lets in the next ones | a free slot, a newcomer, the rate | a second |
//! | `watcher` | reads the room as a whole, finds who was let in, and has everybody count the position in schedule | somebody was let in, the room changed | a second |
//! | `presence` | tells the store which streams are alive, and which have ended; tells streams that another took over | time, ends, a newer stream | a third of `presence_ms` |
//!
//! Nobody is told of a promotion by the process that made it: every process finds its own visitors that no longer wait
//! in the positions it reads anyway. So it does not matter who promotes, where a visitor is connected by now, or who has
//! died in between.

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
