//! The refresh part as processes on real servers, in front of an upstream that counts every call: never over a limit,
//! nothing lost, and reads that wait for nothing.
//!
//! Figures are printed with `--nocapture`. The tests measure, so they take turns.

#![allow(clippy::unwrap_used, reason = "the helpers of tests fail like the tests")]

mod asking;
mod backends;
mod by_hand;
mod clock;
mod days;
mod fleet;
mod lag;
mod late;
mod limits;
mod losses;
mod reads;
#[path = "../served/mod.rs"]
#[allow(dead_code, reason = "only some of it is needed here")]
mod served;
mod slow_database;
mod sqlite;
