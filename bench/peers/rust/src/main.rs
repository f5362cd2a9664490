//! `peers PEER MODE PORT KEY=VALUE…` runs one measurement of one queue and prints one JSON object.
//!
//! Modes: `enqueue`, `process`, `latency`, `fairness`. The runner beside this crate starts a fresh Redis for
//! each, reads its memory between `enqueue` and `process`, and makes the table.

mod apalis_peer;
mod bullmq_peer;
mod floor;

use std::collections::HashMap;
use std::time::{Duration, Instant};

pub type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Length of the payload as it is stored, in bytes.
pub const PAYLOAD: usize = 200;

#[derive(Debug)]
pub struct Args {
    pub url: String,
    values: HashMap<String, usize>,
}

impl Args {
    pub fn get(&self, key: &str, default: usize) -> usize {
        self.values.get(key).copied().unwrap_or(default)
    }

    pub fn jobs(&self) -> usize {
        self.get("jobs", 20_000)
    }

    /// How many jobs customer A and then customer B enqueue.
    pub fn customers(&self) -> (usize, usize) {
        (self.get("a", 20_000), self.get("b", 100))
    }
}

/// A text of `len` bytes that begins with the customer and a number.
pub fn text(customer: char, number: usize, len: usize) -> String {
    let mut text = format!("{customer}{number:09}");
    while text.len() < len {
        text.push('x');
    }
    text
}

/// The number in a text made by [`text`].
pub fn number(text: &str) -> usize {
    text.get(1..10).and_then(|n| n.parse().ok()).unwrap_or(0)
}

pub fn ranges(jobs: usize, chunk: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..jobs)
        .step_by(chunk)
        .map(move |from| from..(from + chunk).min(jobs))
}

/// When the `i`-th single add of the latency measurement is due.
pub fn due(start: Instant, i: usize, per_sec: usize) -> Instant {
    start + Duration::from_nanos(1_000_000_000 / per_sec as u64 * i as u64)
}

/// Sleeps until a moment.
pub fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

pub fn percentiles(mut millis: Vec<f64>) -> serde_json::Value {
    millis.sort_by(f64::total_cmp);
    let at = |p: f64| millis[((millis.len() - 1) as f64 * p).round() as usize];
    serde_json::json!({ "startP50Ms": at(0.5), "startP99Ms": at(0.99), "samples": millis.len() })
}

fn main() -> Fallible<()> {
    let mut words = std::env::args().skip(1);
    let (Some(peer), Some(mode), Some(port)) = (words.next(), words.next(), words.next()) else {
        return Err("usage: peers PEER MODE PORT KEY=VALUE…".into());
    };
    let mut values = HashMap::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or("expected KEY=VALUE")?;
        values.insert(key.to_owned(), value.parse()?);
    }
    let args = Args {
        url: format!("redis://127.0.0.1:{port}/"),
        values,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.get("threads", 2))
        .enable_all()
        .build()?;
    let result = match peer.as_str() {
        "bullmq-rust" => runtime.block_on(bullmq_peer::run(&mode, &args))?,
        "apalis" => runtime.block_on(apalis_peer::run(&mode, &args))?,
        "floor" => floor::run(&mode, &args)?,
        other => return Err(format!("no peer {other}").into()),
    };
    println!("{result}");
    Ok(())
}
