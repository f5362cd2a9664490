//! Bulk jobs: submit, follow, work, operate.

mod batches;
mod congestion;
mod dead;
mod groups;
mod jobs;
mod leases;
mod limits;
pub(crate) mod submit_stream;
mod worker;

pub use dead::DeadFilter;
pub use jobs::{Destination, new_job};
pub use worker::{Outcome, Tally, Worker};
