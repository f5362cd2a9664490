//! The fetcher of one queue: keeps ready filled for its workers, and moves jobs that meet a spent window to
//! delayed. It runs with `hold = "job"` only: otherwise workers lease the next job in fair order without the detour
//! over ready. It wakes on the work signal, and at the latest after `fetch_interval_ms`.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bulk::{AdmitParams, Stop};
use tidegate_core::ids::QueueId;
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio_util::sync::CancellationToken;

use super::gate::Gate;
use crate::outage::Outage;

pub(crate) struct Fetcher {
    pub(crate) store: Arc<dyn BulkStore>,
    pub(crate) queue: QueueId,
    pub(crate) batch: u32,
    /// About twice the workers: more would fix the order too early.
    pub(crate) ready_cap: u32,
    pub(crate) interval: Duration,
    pub(crate) gate: Gate,
    pub(crate) outage: Outage,
    pub(crate) stop: CancellationToken,
}

impl Fetcher {
    pub(crate) async fn run(self) -> Result<(), StoreError> {
        let notifier = self.store.notifier();
        while !self.stop.is_cancelled() {
            // A ready job takes a place in the window, so make none ready in a queue from which nobody leases.
            if !self.gate.is_open() {
                tokio::select! {
                    () = self.gate.opened() => {}
                    () = self.stop.cancelled() => {}
                }
                continue;
            }
            let signal = notifier.work.notified();
            let params = AdmitParams {
                queue: self.queue.clone(),
                max: self.batch,
                ready_cap: self.ready_cap,
            };
            let admit = || self.store.call(params.clone());
            let Some(outcome) = self.outage.retry_until_available(&self.stop, admit).await? else {
                break;
            };
            for denied in &outcome.denied {
                tracing::debug!(group = %denied.group, "{denied}");
            }
            if matches!(outcome.stop, Stop::Enough | Stop::More) && !outcome.admitted.is_empty() {
                continue;
            }
            tokio::select! {
                () = signal => {}
                () = tokio::time::sleep(self.interval) => {}
                () = self.stop.cancelled() => {}
            }
        }
        Ok(())
    }
}
