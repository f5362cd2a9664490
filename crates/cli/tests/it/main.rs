//! The command as its users meet it: through its arguments, its port, and as several processes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bulk;
mod commands;
mod refresh;
mod room;
mod support;
mod tidy;
