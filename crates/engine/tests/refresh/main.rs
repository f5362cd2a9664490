//! The refresh service over the embedded log, SQLite and the model of the store, and against the pretend upstream.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod allowances;
mod budget;
mod failures;
mod faulty;
mod given_up;
mod outages;
mod reads;
mod sharing;
mod world;
