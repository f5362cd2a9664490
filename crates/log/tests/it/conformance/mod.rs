//! The conformance suite, once per backend.

mod embedded;
#[cfg(feature = "kafka")]
mod kafka;
mod redis;
mod redis_cluster;
