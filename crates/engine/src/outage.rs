//! What every service does while the store is unavailable (unreachable, slow or full): wait and retry. The log
//! reports an outage once when it begins and once when it ends, however many services wait.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::clock::Clock;
use tidegate_core::retry::pause;
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;
use tokio_util::sync::CancellationToken;

use crate::retry;

/// An outage of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unavailable {
    /// In the time of the engine's clock.
    pub since: Timestamp,
    /// The error of the first failed call.
    pub error: String,
}

/// Reports whether the store of a service is available: see [`BulkService::outage`](crate::bulk::BulkService::outage).
#[derive(Debug, Clone)]
pub struct Outage {
    clock: Arc<dyn Clock>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls in retry. The outage lasts until there are none, so that one lucky response in between neither ends it
    /// nor reports another.
    waiting: usize,
    unavailable: Option<Unavailable>,
}

/// A call in retry. Dropping this ends the retry, whether the call was answered, stopped or dropped.
struct Waiting<'a> {
    outage: &'a Outage,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.outage.state();
        state.waiting -= 1;
        if state.waiting > 0 {
            return;
        }
        let over = state.unavailable.take();
        drop(state);
        if let Some(over) = over
            && self.answered
        {
            let lasted = self.outage.clock.now().since(over.since);
            tracing::info!(%lasted, "the store is available again");
        }
    }
}

impl Outage {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    /// Since when and why the store has been unavailable; none while it answers. This is what the engine's services
    /// have observed: nobody probes a store that nobody calls.
    pub fn lasts(&self) -> Option<Unavailable> {
        self.state().unavailable.clone()
    }

    /// Calls until the store answers, or fails unrecoverably. None: `stop` fired first.
    pub(crate) async fn retry_until_available<T, Call, Answer>(
        &self,
        stop: &CancellationToken,
        call: Call,
    ) -> Result<Option<T>, StoreError>
    where
        Call: FnMut() -> Answer,
        Answer: Future<Output = Result<T, StoreError>>,
    {
        let mut failures = 0;
        let mut waiting: Option<Waiting<'_>> = None;
        let answer = retry::until_available(stop, call, |error: StoreError| {
            if !error.is_retryable() {
                return Err(error);
            }
            waiting.get_or_insert_with(|| self.wait(&error));
            failures += 1;
            Ok(pause(failures))
        });
        let answer = answer.await;
        if let Some(waiting) = &mut waiting {
            waiting.answered = matches!(answer, Some(Ok(_)));
        }
        answer.transpose()
    }

    fn wait(&self, error: &StoreError) -> Waiting<'_> {
        let mut state = self.state();
        state.waiting += 1;
        if state.unavailable.is_none() {
            state.unavailable = Some(Unavailable {
                since: self.clock.now(),
                error: error.to_string(),
            });
            drop(state);
            tracing::warn!(%error, "the store is unavailable; jobs wait");
        }
        Waiting {
            outage: self,
            answered: false,
        }
    }

    /// No code under this lock panics, so a poisoned lock is safe to use.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tidegate_core::clock::ManualClock;
    use tokio::time::Instant;

    use super::*;

    fn outage() -> Outage {
        Outage::new(Arc::new(ManualClock::at(Timestamp(1_000))))
    }

    fn store_error() -> StoreError {
        StoreError::Unavailable {
            server: "Redis at nowhere".into(),
            reason: "a test".into(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_up_to_a_limit() {
        let (outage, stop, mut left) = (outage(), CancellationToken::new(), 60);
        let begun = Instant::now();
        let answer = outage.retry_until_available(&stop, || {
            left -= 1;
            std::future::ready(if left > 0 { Err(store_error()) } else { Ok(7) })
        });
        assert_eq!(answer.await.unwrap(), Some(7));
        // 50 + 100 + … + 2,000 ms for 40 pauses, and 19 of 2,000 ms.
        assert_eq!(begun.elapsed().as_millis(), 50 * 40 * 41 / 2 + 19 * 2_000);
        assert_eq!(outage.lasts(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_stopped_waits_no_longer_but_tried_once() {
        let (outage, stop) = (outage(), CancellationToken::new());
        stop.cancel();
        let answer = outage.retry_until_available(&stop, || std::future::ready(Ok(7)));
        assert_eq!(answer.await.unwrap(), Some(7));
        let answer =
            outage.retry_until_available::<(), _, _>(&stop, || std::future::ready(Err(store_error())));
        assert_eq!(answer.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn other_errors_are_not_waited_out() {
        let (outage, stop) = (outage(), CancellationToken::new());
        let answer =
            outage.retry_until_available::<(), _, _>(&stop, || std::future::ready(Err(StoreError::Closed)));
        assert!(matches!(answer.await, Err(StoreError::Closed)));
        assert_eq!(outage.lasts(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_as_long_as_somebody_waits() {
        let (outage, stop) = (outage(), CancellationToken::new());
        let forever =
            || outage.retry_until_available::<(), _, _>(&stop, || std::future::ready(Err(store_error())));
        let (mut first, mut second) = (Box::pin(forever()), Box::pin(forever()));
        let begun = Some(Unavailable {
            since: Timestamp(1_000),
            error: store_error().to_string(),
        });
        assert!(first.as_mut().now_or_never().is_none());
        assert_eq!(outage.lasts(), begun);
        assert!(second.as_mut().now_or_never().is_none());
        let lucky = outage.retry_until_available(&stop, || std::future::ready(Ok(7)));
        assert_eq!(lucky.await.unwrap(), Some(7));
        drop(first);
        assert_eq!(outage.lasts(), begun, "the second still waits");
        drop(second);
        assert_eq!(outage.lasts(), None, "whoever waited is gone");
    }
}
