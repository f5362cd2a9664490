//! Metrics of single groups: their counters and their congestion.

pub(crate) mod congestion;
pub(crate) mod groups;
