//! Jobs through the port: the API, workers that pull, targets that are called.

mod api;
mod metrics;
mod outage;
mod pull;
mod push;
