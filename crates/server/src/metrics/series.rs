//! The values of one scrape, in the form that the encoder needs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Metric, Registry};
use tidegate_engine::{BOUNDS_MS, HistogramView};

use super::original_names::{self, OriginalName};

/// Names and values of one series' labels.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// One counter or gauge with all its series.
#[derive(Debug, Clone)]
struct Series {
    kind: MetricType,
    values: Vec<(Labels, f64)>,
}

impl Series {
    /// The same series under a name of the table.
    fn renamed(&self, name: &OriginalName) -> Self {
        let values = self
            .values
            .iter()
            .filter_map(|(labels, value)| Some((name.labels_of(labels)?, name.value_of(*value))));
        Self {
            kind: self.kind,
            values: values.collect(),
        }
    }

    fn one(&self, encoder: &mut MetricEncoder<'_>, value: f64) -> Result<(), std::fmt::Error> {
        match self.kind {
            MetricType::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
            _ => encoder.encode_gauge(&value),
        }
    }
}

impl EncodeMetric for Series {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (labels, value) in &self.values {
            if labels.is_empty() {
                // The encoder would write a family without labels with `{}`.
                self.one(&mut encoder, *value)?;
            } else {
                self.one(&mut encoder.encode_family(labels)?, *value)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        self.kind
    }
}

/// Upper bounds of the buckets of a [`Timer`], in seconds. One more bucket counts everything above. They reach from calls of a
/// store in memory to calls of an unavailable store.
const TIMER_BOUNDS: [f64; 13] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0,
];

/// Counts durations where they happen.
#[derive(Debug, Default)]
pub(crate) struct Timer {
    buckets: [AtomicU64; TIMER_BOUNDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Timer {
    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = TIMER_BOUNDS.iter().position(|bound| seconds <= *bound);
        self.buckets[bucket.unwrap_or(TIMER_BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    fn read(&self) -> (f64, Vec<u64>) {
        let sum = Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed));
        let buckets = self.buckets.iter().map(|count| count.load(Ordering::Relaxed));
        (sum.as_secs_f64(), buckets.collect())
    }
}

/// A histogram with all its series: the sum, and the count of each bucket.
#[derive(Debug, Clone)]
pub(crate) struct Buckets {
    /// Upper bounds of all buckets except the last, which has none.
    pub(crate) edges: Vec<f64>,
    pub(crate) values: Vec<(Labels, f64, Vec<u64>)>,
}

impl Buckets {
    /// Converts durations that the engine counted to seconds.
    pub(crate) fn durations<'a>(values: impl IntoIterator<Item = (Labels, &'a HistogramView)>) -> Self {
        let one =
            |(labels, view): (Labels, &HistogramView)| (labels, view.sum.as_secs_f64(), view.buckets.clone());
        Self {
            edges: BOUNDS_MS.map(|bound| bound as f64 / 1_000.0).into(),
            values: values.into_iter().map(one).collect(),
        }
    }

    /// Converts durations that this crate counted in timers to seconds.
    pub(crate) fn timers<'a>(values: impl IntoIterator<Item = (Labels, &'a Timer)>) -> Self {
        let one = |(labels, timer): (Labels, &Timer)| {
            let (sum, buckets) = timer.read();
            (labels, sum, buckets)
        };
        Self {
            edges: TIMER_BOUNDS.into(),
            values: values.into_iter().map(one).collect(),
        }
    }

    /// The same histogram under a name of the table.
    fn renamed(&self, name: &OriginalName) -> Self {
        let values = self.values.iter().filter_map(|(labels, sum, buckets)| {
            Some((name.labels_of(labels)?, name.value_of(*sum), buckets.clone()))
        });
        Self {
            edges: self.edges.iter().map(|edge| name.value_of(*edge)).collect(),
            values: values.collect(),
        }
    }
}

impl EncodeMetric for Buckets {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let edges = self.edges.iter().copied().chain([f64::INFINITY]);
        for (labels, sum, counts) in &self.values {
            let buckets: Vec<(f64, u64)> = edges.clone().zip(counts.iter().copied()).collect();
            let count = counts.iter().sum();
            if labels.is_empty() {
                encoder.encode_histogram::<NoLabelSet>(*sum, count, &buckets, None)?;
            } else {
                let mut family = encoder.encode_family(labels)?;
                family.encode_histogram::<NoLabelSet>(*sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Everything that one scrape exposes. The encoder adds the full stop to a help text, and `_total` to the name of a
/// counter: names are given without it.
#[derive(Debug, Default)]
pub(crate) struct Exposition {
    registry: Registry,
    original_names: bool,
}

impl Exposition {
    pub(crate) fn new(original_names: bool) -> Self {
        Self {
            registry: Registry::default(),
            original_names,
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        text::encode(&mut text, &self.registry).expect("writing to a string never fails");
        text
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str, value: impl Into<Option<f64>>) {
        let values = value.into().map(|value| (Labels::new(), value));
        self.gauges(name, help, values);
    }

    pub(crate) fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        self.series(MetricType::Gauge, name, help, values);
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str, value: impl Into<Option<f64>>) {
        let values = value.into().map(|value| (Labels::new(), value));
        self.counters(name, help, values);
    }

    pub(crate) fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.series(MetricType::Counter, name, help, values);
    }

    pub(crate) fn histogram(&mut self, name: &str, help: &str, values: Buckets) {
        for original in self.originals(name) {
            self.registry
                .register(original.original, help, values.renamed(original));
        }
        self.registry.register(name, help, values);
    }

    /// Adds a metric that the metrics library counts itself. It has no original name.
    pub(crate) fn counted(&mut self, name: &str, help: &str, metric: impl Metric) {
        self.registry.register(name, help, metric);
    }

    fn series(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let values = values.into_iter().collect();
        let series = Series { kind, values };
        for original in self.originals(name) {
            let name = original
                .original
                .strip_suffix("_total")
                .unwrap_or(original.original);
            self.registry.register(name, help, series.renamed(original));
        }
        self.registry.register(name, help, series);
    }

    /// The original names of a metric, if the settings enable them.
    fn originals(&self, name: &str) -> impl Iterator<Item = &'static OriginalName> + use<> {
        let wanted = self.original_names.then(|| original_names::of(name));
        wanted.into_iter().flatten()
    }
}
