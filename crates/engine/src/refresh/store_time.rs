//! The store's time from memory: reading it never waits.
//!
//! All processes compare the same times with each other: when a record was checked, when a reader read, when a
//! retry is due. Their own clocks may differ by any amount. So each process polls the store's time at intervals,
//! and a monotonic clock continues from the last response. Until the first response, the machine's clock serves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::clock::Clock;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::refresh::RefreshStore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Clocks of one machine drift by far less than a millisecond in this time.
const EVERY: Duration = Duration::from_secs(2);
/// A response that took longer is too imprecise.
const LONGEST: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    anchor: Mutex<Option<(Timestamp, Instant)>>,
}

impl StoreTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            anchor: Mutex::new(None),
        }
    }

    /// Never ahead of the store: a read must not appear later than it was.
    pub(crate) fn now(&self) -> Timestamp {
        let anchor = *self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        match anchor {
            Some((at, seen)) => at + Millis(seen.elapsed().as_millis() as u64),
            None => self.clock.now(),
        }
    }

    /// Asks the store once.
    pub(crate) async fn look(&self, store: &dyn RefreshStore) {
        if let Ok(Ok(at)) = tokio::time::timeout(LONGEST, store.now()).await {
            // The store took this time at some moment before this one.
            let anchor = Some((at, Instant::now()));
            *self.anchor.lock().unwrap_or_else(PoisonError::into_inner) = anchor;
        }
    }

    pub(crate) async fn follow(self: Arc<Self>, store: Arc<dyn RefreshStore>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(EVERY) => self.look(&*store).await,
                () = stop.cancelled() => {}
            }
        }
    }
}
