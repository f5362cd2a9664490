//! The library and the command as users meet them: processes, kills, real servers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bulk;
mod cli;
mod refresh;
mod room;
mod support;
mod tidy;
