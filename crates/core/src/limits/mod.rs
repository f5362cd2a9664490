//! Limits, whoever they are for: quotas, rates of any size, what was charged, the rate of starts that follows, and what a
//! downstream turns out to sustain.

pub mod downstream;
pub mod meter;
pub mod quota;
pub mod rate;
pub mod start_rate;
pub mod throughput;
