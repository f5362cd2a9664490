//! The library as its users meet it: processes, kills, full disks, real servers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod bulk;
mod refresh;
mod rooms;
