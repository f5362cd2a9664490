//! Records of a rate-limited API, and the state of the refresh module.

mod records;
mod status;

pub use status::DeadLetterFilter;
