//! Limits, whoever they are for: rates of any size, the rate of starts that follows, and what a downstream turns out to
//! sustain.

pub mod downstream;
pub mod rate;
pub mod start_rate;
pub mod throughput;
