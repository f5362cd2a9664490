//! The simulated provider.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod upstream;
