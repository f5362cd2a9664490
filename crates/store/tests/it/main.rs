//! The stores of the three parts on every backend.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bulk;
mod refresh;
mod room;
