//! The store seam: everything of the bulk part that keeps state sits behind [`Store`], coalescer and budgets of the
//! refresh part behind [`refresh::RefreshStore`], waiting rooms behind [`room::RoomStore`].
//!
//! - [`Store`]: one method per kind of access; transitions go in as commands of the core and take batches.
//! - [`refresh`]: the refresh part's seam and its model.
//! - [`room`]: the rooms' seam and its model.
//! - [`model`]: the pure state machine behind the seam, the yardstick for every backend.
//! - [`embedded`]: durable in a data folder, in this process.
//! - [`redis`]: on a Redis server or Cluster, shared by several processes.
//! - [`transfer`]: a whole store as a stream, for backup and for moving between backends.
//! - `conformance`, `conformance_refresh`, `conformance_room` (feature): the cases that every backend must pass.
//!
//! No async runtime is needed here beyond its channels; no HTTP, no handlers, no timers.

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
