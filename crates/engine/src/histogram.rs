//! Counts durations in fixed buckets, for an exporter to read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in milliseconds; one more bucket holds everything above. They include the
/// thresholds of the alerts (50 ms, 1 s, 3 s): between two bounds a quantile is a guess.
pub const BOUNDS_MS: [u64; 16] = [
    1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 30_000, 60_000,
];

#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_MS.len() + 1],
    sum_micros: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramView {
    /// The count in each bucket of [`BOUNDS_MS`], not cumulative; the last one is above all bounds.
    pub buckets: Vec<u64>,
    pub sum: Duration,
}

impl HistogramView {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Histogram {
    pub(crate) fn observe(&self, took: Duration) {
        let bucket = BOUNDS_MS
            .iter()
            .position(|bound| took <= Duration::from_millis(*bound))
            .unwrap_or(BOUNDS_MS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_micros
            .fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }

    pub(crate) fn view(&self) -> HistogramView {
        HistogramView {
            buckets: self
                .buckets
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect(),
            sum: Duration::from_micros(self.sum_micros.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_their_bucket() {
        let histogram = Histogram::default();
        for micros in [1_000, 1_001, 60_000_000, 60_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let view = histogram.view();
        assert_eq!(view.buckets[..2], [1, 1]);
        assert_eq!(view.buckets[BOUNDS_MS.len() - 1..], [1, 1]);
        assert_eq!(view.count(), 4);
    }
}
