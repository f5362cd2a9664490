//! Waiting rooms through a real port, over both stores.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod bad_input;
mod page;
mod people;
mod readiness;
mod stored;
mod times;
mod visits;
