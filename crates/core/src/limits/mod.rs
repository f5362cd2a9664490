//! Limits, whoever they are for: rates of any size, and what a downstream turns out to sustain.

pub mod downstream;
pub mod rate;
