//! Jobs through the port: the API, pull workers, push targets.

mod api;
mod change_jobs;
mod metrics;
mod outage;
mod pull;
mod push;
