//! Every ticket of every room is behind [`RoomStore`].
//!
//! - [`RoomStore`]: one method per transition.
//! - [`ModelRoomStore`]: the pure state machine behind the trait, the reference for every backend.
//! - [`EmbeddedRoomStore`]: durable in the data folder, in this process.
//! - [`RedisRoomStore`]: on a Redis server or Cluster, shared by several processes.

#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;
mod machine;
mod model;
mod notifier;
#[cfg(feature = "redis")]
mod redis;
mod run;
mod store;

#[doc(hidden)]
pub use embedded::tables;
pub use embedded::{EmbeddedRoomOptions, EmbeddedRoomStore};
pub use model::ModelRoomStore;
pub use notifier::{RoomNotifier, RoomSignal};
#[cfg(feature = "redis")]
pub use redis::{RedisRoomOptions, RedisRoomStore};
pub use store::RoomStore;

use machine::{RoomChange, Rooms};
use run::HasNotifier;
