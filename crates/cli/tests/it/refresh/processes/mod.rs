//! The refresh module as processes on real servers, in front of a provider that counts every call: never over a limit,
//! nothing lost, and reads that wait for nothing.
//!
//! The tests print figures with `--nocapture`. They measure, so they take turns.

mod backends;
mod clock;
mod day_quota;
mod documented_commands;
mod fleet;
mod lag;
mod late_calls;
mod limits;
mod losses;
mod reads;
mod refresh_requests;
mod slow_database;
mod sqlite;
