//! Values that are there at a scrape, in the form that the encoder takes.

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tidegate_engine::{BOUNDS_MS, HistogramView};

/// PathParams and values of one series' labels.
pub(super) type Labels = Vec<(&'static str, String)>;

/// One metric with all its series.
#[derive(Debug)]
struct Series {
    kind: MetricType,
    values: Vec<(Labels, f64)>,
}

impl Series {
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
                // As a family it would be written with `{}`.
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

/// A histogram with all its series: sum, and how many are in each bucket.
#[derive(Debug)]
pub(super) struct Buckets {
    /// Upper ends of all buckets but the last, which has none.
    pub(super) edges: Vec<f64>,
    pub(super) values: Vec<(Labels, f64, Vec<u64>)>,
}

impl Buckets {
    /// Of durations that the engine counted, in seconds.
    pub(super) fn durations<'a>(values: impl IntoIterator<Item = (Labels, &'a HistogramView)>) -> Self {
        let one =
            |(labels, view): (Labels, &HistogramView)| (labels, view.sum.as_secs_f64(), view.buckets.clone());
        Self {
            edges: BOUNDS_MS.map(|bound| bound as f64 / 1_000.0).into(),
            values: values.into_iter().map(one).collect(),
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

/// What one scrape tells. The encoder adds the full stop to a help, and `_total` to the name of a counter.
#[derive(Debug, Default)]
pub(super) struct Exposition(pub(super) Registry);

impl Exposition {
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl Into<Option<f64>>) {
        let values = value.into().map(|value| (Labels::new(), value));
        self.gauges(name, help, values);
    }

    pub(super) fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        self.series(MetricType::Gauge, name, help, values);
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl Into<Option<f64>>) {
        let values = value.into().map(|value| (Labels::new(), value));
        self.counters(name, help, values);
    }

    pub(super) fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        self.series(MetricType::Counter, name, help, values);
    }

    fn series(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) {
        let values = values.into_iter().collect();
        self.0.register(name, help, Series { kind, values });
    }
}
