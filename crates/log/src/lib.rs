//! The log: refresh events and dead letters, as bytes in partitions.
//!
//! - [`Log`] and [`Consumer`]: append, consume in groups, commit low watermarks, inspect lag and records.
//! - [`embedded`]: durable in a folder, in this process.
//! - [`redis`]: Redis Streams on a server or Cluster, shared by several processes.
//! - `kafka` (feature): Apache Kafka.
//! - `conformance` (feature): the cases that every backend must pass.
//!
//! A partition has one owner at a time in each consumer group, and fencing keeps a former owner from moving its
//! committed offset. After an owner is gone, the log delivers the records from the committed offset on again: at
//! least once, and in order for each key. The log does not know what the bytes mean.

#[cfg(any(feature = "kafka", feature = "redis"))]
mod assignment;
mod capacity;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod embedded;
mod error;
#[cfg(feature = "kafka")]
pub mod kafka;
mod log;
mod partition;
#[cfg(feature = "redis")]
pub mod redis;
mod settings;
mod share;

pub use error::LogError;
pub use log::{
    Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Delivered, Lag, Log, PartitionLag,
    Position, Record,
};
pub use partition::partition_of;
pub use settings::{LogSettings, Topic, TopicSettings};
