//! The typed client against the real service and against a scripted one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod failures;
mod rooms;
mod scripted;
mod service;
