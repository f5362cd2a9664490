//! The servers that tests start.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod servers;
