//! Watches how far the log is behind: what readers are told to expect, and when LOW stands back for HIGH.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::priority::Priority;
use tidegate_core::refresh::eta::Eta;
use tidegate_core::refresh::pressure::Pressure;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_log::{Lag, Topic};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::dead_letters::READERS;
use super::shared::Shared;

/// How far the consumers of one topic are behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LagView {
    /// Events that wait.
    pub records: u64,
    /// Age of the oldest of them.
    pub oldest: Option<Millis>,
    /// Events per second that are settled, in thousandths, as measured over the last minute.
    pub milli_rate: u64,
}

/// The lag as it was when it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lags {
    pub high: LagView,
    pub low: LagView,
    /// Dead letters that are kept.
    pub dead: u64,
    /// LOW stands back.
    pub low_paused: bool,
    /// When it was looked at; none before the first look that worked.
    pub looked_at: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct State {
    high: Eta,
    low: Eta,
    pressure: Pressure,
    lags: Lags,
}

/// Looks at the lag; whoever reads gets what was seen last, without waiting.
#[derive(Debug)]
pub(crate) struct LagWatcher {
    shared: Arc<Shared>,
    /// Throughput and pauses are measured in time that nobody steps.
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

    /// How long an event that is queued now waits; none if nothing waits, or it is not known.
    pub(crate) fn estimate(&self) -> Option<Millis> {
        self.state()
            .high
            .estimate(&self.shared.options.config.eta, self.elapsed())
    }

    pub(crate) fn lags(&self) -> Lags {
        self.state().lags
    }

    /// Whether LOW stands back.
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

    async fn look(&self) {
        let work = &self.shared.options.work;
        let log = &self.shared.options.log;
        let looks = async {
            let high = log.lag(Topic::High, &work.high_group).await?;
            let low = log.lag(Topic::Low, &work.low_group).await?;
            let dead = log.lag(Topic::Dead, READERS).await?;
            Ok::<_, tidegate_log::LogError>((high, low, dead))
        };
        match looks.await {
            Ok((high, low, dead)) => self.saw(&high, &low, &dead),
            // What was seen last grows old by itself.
            Err(error) => tracing::warn!(%error, "the lag of the log could not be looked at"),
        }
    }

    fn saw(&self, high: &Lag, low: &Lag, dead: &Lag) {
        let config = &self.shared.options.config;
        let (elapsed, now) = (self.elapsed(), self.shared.now());
        let paused = {
            let state = &mut *self.state();
            state
                .high
                .observe(&config.eta, high.records(), settled(high), elapsed);
            state
                .low
                .observe(&config.eta, low.records(), settled(low), elapsed);
            state.pressure = state.pressure.after(&config.pressure, high.records(), elapsed);
            let view = |lag: &Lag, eta: &Eta| LagView {
                records: lag.records(),
                oldest: lag.oldest().map(|oldest| now.since(oldest)),
                milli_rate: eta.milli_rate(&config.eta),
            };
            let paused = !state.pressure.low_may_run();
            state.lags = Lags {
                high: view(high, &state.high),
                low: view(low, &state.low),
                dead: dead.records(),
                low_paused: paused,
                looked_at: Some(now),
            };
            paused
        };
        let changed = self
            .low_paused
            .send_if_modified(|before| std::mem::replace(before, paused) != paused);
        if changed {
            self.shared.counters.low_pauses.add(u64::from(paused));
            let priority = Priority::Low;
            tracing::info!(%priority, paused, waiting = high.records(), "events that wait before it decide");
        }
    }

    fn elapsed(&self) -> Timestamp {
        Timestamp(self.begun.elapsed().as_millis() as u64)
    }

    /// Nothing that panics is done under this lock.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Grows by one with every event that is done, whoever did it.
fn settled(lag: &Lag) -> u64 {
    lag.partitions.iter().map(|partition| partition.next()).sum()
}
