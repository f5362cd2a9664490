//! Pure decisions of Tidegate.
//!
//! Every decision is a function of its arguments: no I/O, no randomness, and time is passed in. So a simulation can replay
//! any history, and tests hold every backend equal to this code. Only [`clock`] reads a clock, for the crates above.
//!
//! - [`bulk`]: jobs of many groups in fair order, under one rate, through leases to aggregated results.
//! - [`refresh`]: cached records in front of a limited API: versions, coalescing, budgets, freshness.
//! - [`room`]: people who wait, in order, for a slot inside; slots are leases with deadlines.
//! - [`budget`]: how many calls a target accepts, per second and per day, and which priority goes first.
//! - [`clock`]: the one place that reads the wall clock. Nothing else here uses it.
//! - [`ids`], [`priority`], [`time`]: the types shared by all crates.
//! - [`retry`]: pauses between attempts at something unavailable.
//! - [`secret`]: texts that are never shown.
//! - [`rng`]: random numbers by seed, for simulations; no decision uses it.

pub mod budget;
pub mod bulk;
pub mod clock;
pub mod config;
pub mod hash;
pub mod ids;
pub mod limits;
pub mod priority;
pub mod refresh;
pub mod retry;
pub mod rng;
pub mod room;
pub mod secret;
pub mod time;
