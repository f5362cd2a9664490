//! The refresh part of the storage traits: the coalescer of every record and the budget of every target are
//! behind [`RefreshStore`].
//!
//! - [`RefreshStore`]: one method per transition; batches in, outcomes in their order.
//! - [`ModelRefreshStore`]: the pure state machine behind the trait, the reference for every backend.
//! - [`EmbeddedRefreshStore`]: durable in the data folder, in this process.
//! - [`RedisRefreshStore`]: on a Redis server or Cluster, shared by several processes.
//!
//! Every backend forgets an idle record at the moment the core names: no outcome depends on when memory is
//! swept or a key expires.

mod machine;
mod model;
mod seam;

pub(crate) use machine::Machine;
pub use model::ModelRefreshStore;
pub(crate) use seam::counted_all;
pub use seam::{RefreshSettings, RefreshStore, TakeOutcome};

pub use crate::embedded::refresh::{EmbeddedRefreshOptions, EmbeddedRefreshStore};
pub use crate::redis::refresh::{RedisRefreshOptions, RedisRefreshStore};
