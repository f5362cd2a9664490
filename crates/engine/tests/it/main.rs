//! The engine's services, mostly in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bulk;
mod refresh;
mod room;
