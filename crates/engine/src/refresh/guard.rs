//! A circuit breaker around calls that may fail or be slow, with a histogram of their durations.

use std::fmt;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::refresh::breaker::{Breaker, BreakerState};
use tidegate_core::refresh::config::BreakerConfig;
use tidegate_core::retry::pause;
use tidegate_core::time::{Millis, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::histogram::{Histogram, HistogramView};
use crate::retry;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Guarded<E> {
    /// The breaker is open and made no call.
    Open {
        wait: Duration,
    },
    Failed(E),
}

impl<E: fmt::Display> fmt::Display for Guarded<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Guarded::Open { wait } => {
                write!(
                    f,
                    "it failed too often; the next try is in {} ms",
                    wait.as_millis()
                )
            }
            Guarded::Failed(error) => error.fmt(f),
        }
    }
}

/// Whether an error blames the called service, or only this call.
pub(crate) trait Fault: fmt::Display {
    fn is_outage(&self) -> bool;
}

impl Fault for tidegate_store::StoreError {
    fn is_outage(&self) -> bool {
        self.is_retryable()
    }
}

impl Fault for tidegate_snapshots::SnapshotsError {
    /// A missing or mismatched schema counts as an outage: an operator repairs it, and work continues from there.
    fn is_outage(&self) -> bool {
        !matches!(
            self,
            tidegate_snapshots::SnapshotsError::Rejected { .. }
                | tidegate_snapshots::SnapshotsError::Invalid(_)
        )
    }
}

#[derive(Debug)]
pub(crate) struct Guard {
    name: &'static str,
    breaker: Mutex<Breaker>,
    /// The breaker's own monotonic time: no clock adjustment moves it.
    begun: Instant,
    durations: Histogram,
}

impl Guard {
    pub(crate) fn new(name: &'static str, config: BreakerConfig) -> Self {
        Self {
            name,
            breaker: Mutex::new(Breaker::new(config)),
            begun: Instant::now(),
            durations: Histogram::default(),
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        self.breaker().state(self.now())
    }

    pub(crate) fn durations(&self) -> HistogramView {
        self.durations.view()
    }

    /// Makes one call, if the breaker permits it.
    pub(crate) async fn call<T, E: Fault>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Guarded<E>> {
        let now = self.now();
        let asked = self.breaker().ask(now);
        let permit = asked.map_err(|refused| Guarded::Open {
            wait: refused.until.since(now).into(),
        })?;
        let called = Instant::now();
        let answer = call.await;
        let took = called.elapsed();
        self.durations.observe(took);
        let worked = !answer.as_ref().is_err_and(Fault::is_outage);
        let (took, now) = (Millis(took.as_millis() as u64), self.now());
        self.breaker().report(permit, worked, took, now);
        answer.map_err(Guarded::Failed)
    }

    /// Calls until a response arrives, or an error that waiting cannot cure. None: `stop` fired first.
    pub(crate) async fn retry_until_available<T, E, Call, Answer>(
        &self,
        stop: &CancellationToken,
        mut call: Call,
    ) -> Option<Result<T, E>>
    where
        E: Fault,
        Call: FnMut() -> Answer,
        Answer: Future<Output = Result<T, E>>,
    {
        let mut failures = 0;
        let call = || self.call(call());
        let answer = retry::until_available(stop, call, |error| match error {
            Guarded::Open { wait } => Ok(wait.max(Duration::from_millis(1))),
            Guarded::Failed(error) if !error.is_outage() => Err(error),
            Guarded::Failed(error) => {
                if failures == 0 {
                    tracing::warn!(%error, "{} is unavailable; work waits", self.name);
                }
                failures += 1;
                Ok(pause(failures))
            }
        });
        let answer = answer.await;
        if failures > 0 && matches!(answer, Some(Ok(_))) {
            tracing::info!("{} is available again", self.name);
        }
        answer
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.begun.elapsed().as_millis() as u64)
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_store::StoreError;

    use super::*;

    fn store_error() -> StoreError {
        StoreError::Unavailable {
            server: "a server".into(),
            reason: "a test".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_open_it_and_work_goes_on_when_it_works_again() {
        let guard = Guard::new("the store", BreakerConfig::default());
        for _ in 0..10 {
            let answer = guard.call(std::future::ready(Err::<(), _>(store_error()))).await;
            assert!(matches!(answer, Err(Guarded::Failed(_))));
        }
        assert_eq!(guard.state(), BreakerState::Open);
        let begun = Instant::now();
        let stop = CancellationToken::new();
        let answer = guard
            .retry_until_available(&stop, || std::future::ready(Ok::<_, StoreError>(7)))
            .await;
        assert_eq!(answer.unwrap().unwrap(), 7);
        assert_eq!(begun.elapsed(), Duration::from_secs(30));
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_all_probes_out_does_not_wait_as_if_it_had_opened_again() {
        let guard = Guard::new("the store", BreakerConfig::default());
        for _ in 0..10 {
            let _ = guard.call(std::future::ready(Err::<(), _>(store_error()))).await;
        }
        let (begun, stop) = (Instant::now(), CancellationToken::new());
        let quick = || async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Ok::<_, StoreError>(())
        };
        // Far more callers than probes, all of them waiting when the breaker becomes half-open.
        let calls = (0..50).map(|_| guard.retry_until_available(&stop, quick));
        futures_util::future::join_all(calls).await;
        assert_eq!(guard.state(), BreakerState::Closed);
        assert!(begun.elapsed() < Duration::from_secs(32), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_open_it() {
        let guard = Guard::new("the database", BreakerConfig::default());
        for _ in 0..10 {
            let slow = async {
                tokio::time::sleep(Duration::from_millis(1_001)).await;
                Ok::<_, StoreError>(())
            };
            guard.call(slow).await.unwrap();
        }
        assert_eq!(guard.state(), BreakerState::Open);
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_of_the_call_is_returned_at_once() {
        let guard = Guard::new("the store", BreakerConfig::default());
        let stop = CancellationToken::new();
        let answer = guard
            .retry_until_available(&stop, || std::future::ready(Err::<(), _>(StoreError::Closed)))
            .await;
        assert!(matches!(answer, Some(Err(StoreError::Closed))));
        assert_eq!(guard.state(), BreakerState::Closed);
    }
}
