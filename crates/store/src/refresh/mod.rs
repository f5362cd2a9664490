//! The coalescer of every record and the budget of every target are behind [`RefreshStore`].
//!
//! - [`RefreshStore`]: one method per transition; batches in, outcomes in their order.
//! - [`ModelRefreshStore`]: the pure state machine behind the trait, the reference for every backend.
//! - [`EmbeddedRefreshStore`]: durable in the data folder, in this process.
//! - [`RedisRefreshStore`]: on a Redis server or Cluster, shared by several processes.
//!
//! Every backend forgets an idle record at the moment the core names: no outcome depends on when memory is
//! swept or a key expires.

#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;
mod machine;
mod model;
#[cfg(feature = "redis")]
mod redis;
mod store;

pub use embedded::{EmbeddedRefreshOptions, EmbeddedRefreshStore};
pub use model::ModelRefreshStore;
#[cfg(feature = "redis")]
pub use redis::{RedisRefreshOptions, RedisRefreshStore};
pub use store::{RefreshSettings, RefreshStore, TakeOutcome};

use machine::Machine;
use store::counted_all;
