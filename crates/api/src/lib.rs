//! Requests and responses of Tidegate's HTTP API, shared by the server and the Rust client.
//!
//! The types are plain data with the names that users see. They decide nothing and do not know the state
//! machine: the server translates. Times are RFC 3339 in UTC, durations are milliseconds, names are text of 1
//! to 256 bytes, payloads and results are any JSON.
//!
//! The service answers every failed request with a [`Problem`]. Programs match its `code`, people read its
//! `detail`:
//!
//! ```
//! use tidegate_api::Problem;
//!
//! let body = r#"{
//!     "type": "urn:tidegate:problem:unknown_batch",
//!     "title": "Unknown batch",
//!     "status": 404,
//!     "code": "unknown_batch",
//!     "detail": "group \"acme\" has no batch \"newsletter-8\""
//! }"#;
//! let problem: Problem = serde_json::from_str(body)?;
//! assert_eq!(problem.code, "unknown_batch");
//! assert_eq!(problem.retry_after_sec, None);
//! # Ok::<(), serde_json::Error>(())
//! ```

#![warn(missing_docs)]

mod bulk;
mod dead;
mod nullable;
mod open;
mod page;
mod problem;
mod refresh;
mod room;
mod stats;
mod time;

pub use bulk::*;
pub use dead::{DeadOutcome, DeadSkipped};
pub use nullable::Nullable;
pub use open::{AuditEntry, Identity, Role};
pub use page::Page;
pub use problem::Problem;
pub use refresh::*;
pub use room::{
    CapacityChange, EtaRange, JoinRoom, LimitBy, Pass, PatchCapacity, RedeemPass, Room, RoomCapacity,
    RoomCommand, RoomCounts, RoomHistory, RoomSample, RoomStatus, Rooms, StreamClosed, StreamEnd, Ticket,
    TicketEnd, TicketState, Visit,
};
pub use serde_json::value::RawValue;
pub use stats::{OldestWait, Queue, Sample, Samples, Stats, StoreBackend, StoreState, Workers};
pub use time::{Time, TimeError};
