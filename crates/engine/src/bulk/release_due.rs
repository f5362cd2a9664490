//! The dispatcher: releases delayed jobs when they are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::bulk::{ReleaseDueOutcome, ReleaseDueParams};
use tidegate_core::clock::Clock;
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio_util::sync::CancellationToken;

use crate::alarm::Alarm;
use crate::outage::Outage;

/// Counters of a dispatcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DispatcherStats {
    pub total_moved: u64,
    pub total_cycles: u64,
}

#[derive(Debug, Default)]
struct Counters {
    moved: AtomicU64,
    cycles: AtomicU64,
}

/// Releases delayed jobs whose time has come.
#[derive(Clone)]
pub struct Dispatcher {
    store: Arc<dyn BulkStore>,
    clock: Arc<dyn Clock>,
    interval: Duration,
    batch: u32,
    counters: Arc<Counters>,
}

impl std::fmt::Debug for Dispatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatcher")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl Dispatcher {
    pub fn new(store: Arc<dyn BulkStore>, clock: Arc<dyn Clock>, interval: Duration, batch: u32) -> Self {
        Self {
            store,
            clock,
            interval,
            batch,
            counters: Arc::default(),
        }
    }

    /// One cycle: releases at most one batch.
    pub async fn dispatch_once(&self) -> Result<ReleaseDueOutcome, StoreError> {
        let outcome = self.store.call(ReleaseDueParams { max: self.batch }).await?;
        self.counters.cycles.fetch_add(1, Ordering::Relaxed);
        self.counters
            .moved
            .fetch_add(u64::from(outcome.released), Ordering::Relaxed);
        Ok(outcome)
    }

    pub fn stats(&self) -> DispatcherStats {
        DispatcherStats {
            total_moved: self.counters.moved.load(Ordering::Relaxed),
            total_cycles: self.counters.cycles.load(Ordering::Relaxed),
        }
    }

    pub(crate) async fn run(self, outage: Outage, stop: CancellationToken) -> Result<(), StoreError> {
        let notifier = self.store.notifier();
        let mut alarm = Alarm::new(self.clock.clone());
        while !stop.is_cancelled() {
            let signal = notifier.timer.notified();
            let Some(outcome) = outage
                .retry_until_available(&stop, || self.dispatch_once())
                .await?
            else {
                break;
            };
            let most = outcome.released.max(outcome.expired).max(outcome.recalled);
            if most == self.batch || outcome.more {
                continue;
            }
            let wait = match outcome.next_due {
                Some(due) => alarm.wait(due, self.interval),
                None => self.interval,
            };
            tokio::select! {
                () = signal => {}
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => {}
            }
        }
        Ok(())
    }
}
