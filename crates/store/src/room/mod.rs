//! The rooms' part of the storage traits: every ticket of every room is behind [`RoomStore`].
//!
//! - [`RoomStore`]: one method per transition.
//! - [`ModelRoomStore`]: the pure state machine behind the trait, the reference for every backend.
//! - [`EmbeddedRoomStore`]: durable in the data folder, in this process.
//! - [`RedisRoomStore`]: on a Redis server or Cluster, shared by several processes.

mod machine;
mod model;
mod run;
mod seam;
mod signals;

pub(crate) use machine::{RoomChange, Rooms};
pub use model::ModelRoomStore;
pub(crate) use run::{HasNotifier, born, validated};
pub use seam::RoomStore;
pub use signals::{RoomNotifier, RoomSignal};

pub use crate::embedded::room::{EmbeddedRoomOptions, EmbeddedRoomStore};
pub use crate::redis::room::{RedisRoomOptions, RedisRoomStore};
