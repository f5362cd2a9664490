//! Bulk jobs: submit, follow, work, operate.

mod batches;
mod change_jobs;
mod congestion;
mod dead;
mod groups;
mod jobs;
mod leases;
mod limits;
pub(crate) mod submit_stream;
mod worker;

pub use change_jobs::JobCommand;
pub use dead::DeadFilter;
pub use jobs::{Destination, new_job};
pub use worker::{Outcome, Tally, Worker};
