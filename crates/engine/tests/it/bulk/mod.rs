//! The bulk engine in virtual time.

mod callbacks;
mod engine;
mod expired_leases;
mod gates;
mod outage;
mod world;
