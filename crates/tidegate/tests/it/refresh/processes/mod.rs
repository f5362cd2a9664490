//! The refresh part as processes on real servers, in front of an upstream that counts every call: never over a limit,
//! nothing lost, and reads that wait for nothing.
//!
//! Figures are printed with `--nocapture`. The tests measure, so they take turns.

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
mod slow_database;
mod sqlite;
