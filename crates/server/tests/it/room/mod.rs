//! Waiting rooms through a real port, over both stores.

mod bad_input;
mod page;
mod people;
mod readiness;
mod stored;
mod times;
mod visits;
