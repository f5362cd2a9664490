//! The storage traits, and their backends.
//!
//! | part | trait | model | embedded | Redis |
//! |---|---|---|---|---|
//! | [`bulk`] | [`bulk::BulkStore`] | [`bulk::ModelBulkStore`] | [`bulk::EmbeddedBulkStore`] | [`bulk::RedisBulkStore`] |
//! | [`refresh`] | [`refresh::RefreshStore`] | [`refresh::ModelRefreshStore`] | [`refresh::EmbeddedRefreshStore`] | [`refresh::RedisRefreshStore`] |
//! | [`room`] | [`room::RoomStore`] | [`room::ModelRoomStore`] | [`room::EmbeddedRoomStore`] | [`room::RedisRoomStore`] |
//!
//! A method is a transition of the core: batches in, outcomes in their order. The model is the pure state machine, the
//! reference for every backend. The embedded store is durable in a data folder of this process. Redis, on one server or a
//! Cluster, is shared by several processes. Each part has a conformance suite (feature `conformance`) that every backend
//! passes.
//!
//! Invariant: no HTTP and no handlers. Decisions take the time as a parameter.

pub mod bulk;
mod error;
pub mod refresh;
pub mod room;

pub use error::StoreError;
