//! The refresh service over the embedded log, SQLite and the model of the store, and against the pretend upstream.

mod budget;
mod failures;
mod faulty;
mod given_up;
mod outages;
mod reads;
mod sharing;
mod token_dispenser;
mod world;
