//! The bulk engine in virtual time.

mod callbacks;
mod engine;
mod gates;
mod outage;
mod world;
