//! The refresh service over the embedded log, SQLite and the model of the store, and against the simulated upstream.

mod budget;
mod dead_letters;
mod failures;
mod faulty;
mod outages;
mod reads;
mod sharing;
mod token_dispenser;
mod world;
