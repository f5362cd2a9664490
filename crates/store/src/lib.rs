//! The storage traits. All state of the bulk part is behind [`Store`], coalescer and budgets of the refresh
//! part behind [`refresh::RefreshStore`], waiting rooms behind [`room::RoomStore`].
//!
//! - [`Store`]: one method per kind of access; transitions are commands of the core and take batches.
//! - [`refresh`]: the refresh part's trait and its model.
//! - [`room`]: the rooms' trait and its model.
//! - [`model`]: the pure state machine behind the trait, the reference for every backend.
//! - [`embedded`]: durable in a data folder, in this process.
//! - [`redis`]: on a Redis server or Cluster, shared by several processes.
//! - [`transfer`]: a whole store as a stream, for backup and for moving between backends.
//! - `conformance`, `conformance_refresh`, `conformance_room` (feature): the cases that every backend must
//!   pass.
//!
//! Needs nothing of an async runtime but its channels; no HTTP, no handlers, no timers.

pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "conformance")]
pub mod conformance_refresh;
#[cfg(feature = "conformance")]
pub mod conformance_room;
pub mod embedded;
mod error;
mod machine;
pub mod model;
pub mod redis;
pub mod refresh;
pub mod room;
mod seam;
pub mod transfer;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::StoreError;
pub use seam::{DeadJob, JobDetails, LeasedJob, Notifier, Store, StoreExt};
