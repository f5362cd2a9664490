//! Waiting rooms at work: streams of visitors, and the services that admit people.
//!
//! ```text
//!   visitor ── Visit ◄── mailbox ──┐            promoter: reap, promote ──► store ◄── other processes
//!                 ▲                │                                          │
//!                 └── Seen ── poller ◄── signal, or a slice is due ── overview ─┘
//!                                  │
//!                        heartbeat: heartbeats of every stream, in batches
//! ```
//!
//! | service, one per room | what it does | wakes on | at the latest after |
//! |---|---|---|---|
//! | `promoter` | ends expired tickets and slots, admits people | a free slot, a newcomer, the rate | a second |
//! | `poller` | reads the room, finds who was admitted, broadcasts positions | an admission, another change | a second |
//! | `heartbeat` | reports live and ended streams and takeovers | time, stream changes | a third of `presence_ms` |
//!
//! Beside the services: which room a name means (`directory`, `event_service`), who a visitor is (`identity`), who may take
//! a ticket (`entry`, `joins`, `proof`, `draw`), tickets without a stream (`ticket`), the signed pass (`pass`), what a shop
//! may do with it (`shop`), and passes without the store (`fail_open`).
//!
//! The process that promotes people does not notify them. Every process finds its own promoted visitors in the
//! positions that it reads anyway. So it does not matter who promotes, where a visitor is connected, or which
//! process died in between.

mod address;
mod broadcast;
mod directory;
mod draw;
mod entry;
mod event_service;
mod fail_open;
mod heartbeat;
pub mod identity;
mod joins;
mod jwt;
mod pass;
mod poller;
mod promoter;
mod proof;
mod registry;
mod service;
mod settling;
mod shop;
mod state;
mod ticket;
mod visit;

pub use address::AddressBlock;
pub use directory::{FindRoomError, RoomDirectory};
pub use draw::{DrawSecret, commitment, draw};
pub use entry::{Applicant, Begun, Entered, Entry, EntryRefused, JoinOptions};
pub use event_service::{Event, EventFailure, EventLookups, EventService};
pub use fail_open::FailOpen;
pub use joins::{JoinLimitsConfig, Joins, TooMany};
pub use pass::{Claims, PassKeysConfig, PassRefused, Signer};
pub use proof::{ProofConfig, ProofRefused, Proofs};
pub use service::{RoomOptions, RoomService, RoomsHandle};
pub use shop::{PresentedPass, ShopError, Visited};
pub use state::{RoomHandle, Sample, Seen, WorkView};
pub use ticket::SeenTicket;
pub use visit::{Update, Visit};

#[cfg(test)]
mod visitor_tests;
