//! Measures the lag of the log. Readers get their estimate from it, and LOW pauses in favour of HIGH.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::priority::Priority;
use tidegate_core::refresh::eta::Eta;
use tidegate_core::refresh::pressure::Pressure;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_log::{Lag, LogError, Topic};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::refresh::dead_letters::READERS;
use crate::refresh::shared::Shared;

/// Failed measurements in a row after which the last one no longer counts.
const MISSED_MEASUREMENTS: u64 = 3;

/// The lag of the consumers of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LagView {
    /// Events that wait.
    pub records: u64,
    /// Age of the oldest of them.
    pub oldest: Option<Millis>,
    /// Throughput: events settled per second, in thousandths, over the last minute.
    pub milli_rate: u64,
}

/// The lag at the last measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lags {
    pub high: LagView,
    pub low: LagView,
    /// Dead letters that the log retains.
    pub dead: u64,
    /// LOW is paused.
    pub low_paused: bool,
    /// When all topics were measured; none before the first success.
    pub measured_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct State {
    high: Eta,
    low: Eta,
    pressure: Pressure,
    lags: Lags,
}

/// Measures the lag. Readers get the last result without waiting.
#[derive(Debug)]
pub(crate) struct LagWatcher {
    shared: Arc<Shared>,
    /// Monotonic time for throughput and pauses: no clock adjustment moves it.
    begun: Instant,
    state: Mutex<State>,
    low_paused: watch::Sender<bool>,
}

impl LagWatcher {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            begun: Instant::now(),
            state: Mutex::default(),
            low_paused: watch::Sender::new(false),
        }
    }

    /// How long an event queued at this moment will wait; none if nothing waits or the lag is unknown.
    pub(crate) fn estimate(&self) -> Option<Millis> {
        self.state()
            .high
            .estimate(&self.shared.options.config.eta, self.elapsed())
    }

    pub(crate) fn lags(&self) -> Lags {
        self.state().lags
    }

    /// The lag of LOW events; none without a recent measurement.
    pub(crate) fn low_known(&self) -> Option<LagView> {
        let options = &self.shared.options;
        let missed = Millis(options.watch.lag_every_ms.0.saturating_mul(MISSED_MEASUREMENTS));
        let state = self.state();
        let known = (state.low).lag(options.config.eta.fresh_ms.max(missed), self.elapsed());
        known.map(|_| state.lags.low)
    }

    /// Whether LOW is paused.
    pub(crate) fn low_paused(&self) -> watch::Receiver<bool> {
        self.low_paused.subscribe()
    }

    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let every = Duration::from(self.shared.options.watch.lag_every_ms);
        while !stop.is_cancelled() {
            let looked = Instant::now();
            tokio::select! {
                () = self.look() => {}
                () = stop.cancelled() => {}
            }
            tokio::select! {
                () = tokio::time::sleep_until(looked + every) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Measures each topic on its own, so that an error on one does not hide the others.
    async fn look(&self) {
        let work = &self.shared.options.work;
        let log = &self.shared.options.log;
        let seen = |topic: Topic, looked: Result<Lag, LogError>| {
            // The last result expires on its own.
            let blind =
                |error: &LogError| tracing::warn!(%topic, %error, "failed to measure the lag of the log");
            looked.inspect_err(blind).ok()
        };
        let (high, low, dead) = tokio::join!(
            log.lag(Topic::High, &work.high_group),
            log.lag(Topic::Low, &work.low_group),
            log.lag(Topic::Dead, READERS),
        );
        self.saw(
            seen(Topic::High, high),
            seen(Topic::Low, low),
            seen(Topic::Dead, dead),
        );
    }

    fn saw(&self, high: Option<Lag>, low: Option<Lag>, dead: Option<Lag>) {
        let config = &self.shared.options.config;
        let (elapsed, now) = (self.elapsed(), self.shared.now());
        let view = |lag: &Lag, eta: &mut Eta| {
            eta.observe(&config.eta, lag.records(), settled(lag), elapsed);
            LagView {
                records: lag.records(),
                oldest: lag.oldest().map(|oldest| now.since(oldest)),
                milli_rate: eta.milli_rate(&config.eta),
            }
        };
        let (paused, waiting) = {
            let state = &mut *self.state();
            let lags = &mut state.lags;
            if high.is_some() && low.is_some() && dead.is_some() {
                lags.measured_at = Some(now);
            }
            if let Some(high) = &high {
                lags.high = view(high, &mut state.high);
            }
            if let Some(low) = &low {
                lags.low = view(low, &mut state.low);
            }
            if let Some(dead) = &dead {
                lags.dead = dead.records();
            }
            // Decide on the last known lag, however old: a pause must end even while measurements fail.
            state.pressure = state.pressure.after(&config.pressure, lags.high.records, elapsed);
            lags.low_paused = !state.pressure.low_may_run();
            (lags.low_paused, lags.high.records)
        };
        let changed = self
            .low_paused
            .send_if_modified(|before| std::mem::replace(before, paused) != paused);
        if changed {
            self.shared.counters.low_pauses.add(u64::from(paused));
            let priority = Priority::Low;
            tracing::info!(%priority, paused, waiting, "LOW pauses or resumes by the waiting HIGH events");
        }
    }

    fn elapsed(&self) -> Timestamp {
        Timestamp(self.begun.elapsed().as_millis() as u64)
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Grows by one with every settled event, in whichever process.
fn settled(lag: &Lag) -> u64 {
    lag.partitions.iter().map(|partition| partition.next()).sum()
}
