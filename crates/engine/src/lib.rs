//! The running parts: services that wake on events and drive a store.
//!
//! - [`bulk`]: leases jobs, runs handlers, aggregates batches.
//! - [`refresh`]: keeps cached records in front of a rate-limited API fresh.
//! - [`room`]: lets people into waiting rooms, in order; passes, draws, proofs and what a shop may do with a pass.
//!
//! Each part has options, a service and a handle. Nothing here speaks HTTP or names a particular store.

#![cfg_attr(
    not(all(feature = "bulk", feature = "refresh", feature = "room")),
    allow(dead_code, reason = "one part alone does not use all that the parts share")
)]

mod alarm;
mod batcher;
#[cfg(feature = "bulk")]
pub mod bulk;
mod histogram;
mod outage;
#[cfg(any(feature = "bulk", feature = "refresh"))]
mod owner;
#[cfg(feature = "refresh")]
pub mod refresh;
mod retry;
#[cfg(feature = "room")]
pub mod room;
#[cfg(any(feature = "bulk", feature = "refresh"))]
mod tasks;

pub use histogram::{BOUNDS_MS, HistogramView};
pub use outage::{Outage, Unavailable};
