//! Pure decisions of Tidegate.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no randomness. The caller passes the time,
//! so that a simulation can replay any history and tests can hold every backend equal to this code.
//!
//! - [`bulk`]: jobs of many groups in fair order, under one rate, through leases to aggregated results.
//! - [`refresh`]: cached records in front of a limited API: versions, coalescing, budgets, freshness.
//! - [`room`]: people who wait, in order, for a slot inside; slots are leases with deadlines.
//! - [`budget`]: how many calls a target accepts, per second and per day, and which priority goes first.
//! - [`config`]: every setting with its unit, default and the relations that must hold.
//! - [`ids`], [`priority`], [`time`]: the types shared by all crates.

pub mod budget;
pub mod bulk;
pub mod config;
pub mod ids;
pub mod priority;
pub mod refresh;
pub mod room;
pub mod time;
