//! Latencies of calls, and their percentiles.

use std::time::Duration;

/// Latencies of one kind of call.
#[derive(Debug, Default)]
pub(super) struct Times(pub(super) Vec<Duration>);

impl Times {
    /// The percentile in milliseconds: this share of the calls were faster.
    pub(super) fn at(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let index = (sorted.len().saturating_sub(1) as f64 * share) as usize;
        sorted.get(index).map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
    }
}
