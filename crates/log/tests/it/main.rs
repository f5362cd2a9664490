//! The log on every backend.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod conformance;
mod embedded;
#[cfg(feature = "kafka")]
mod kafka_failures;
mod mutants;
mod redis_failures;
