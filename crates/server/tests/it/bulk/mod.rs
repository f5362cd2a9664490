//! Jobs through the port: the API, pull workers, push targets.

mod api;
mod metrics;
mod outage;
mod pull;
mod push;
