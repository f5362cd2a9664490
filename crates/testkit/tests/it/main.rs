//! Simulation, differential tests, and the servers that tests start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bulk_differential;
mod bulk_simulation;
mod refresh_differential;
mod room_differential;
mod servers;
