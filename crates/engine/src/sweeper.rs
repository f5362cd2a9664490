//! Sweepers: expired leases, finished data, congestion history.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bulk::{DropFinishedParams, ExpireLeasesParams, SnapshotCongestionParams};
use tidegate_core::time::Millis;
use tidegate_store::{Clock, Store, StoreError, StoreExt};
use tokio_util::sync::CancellationToken;

/// Limit: leases or records in one call.
const BATCH: u32 = 1_000;
const INTERVAL: Duration = Duration::from_secs(1);

async fn pause(wait: Duration, stop: &CancellationToken) {
    tokio::select! {
        () = tokio::time::sleep(wait) => {}
        () = stop.cancelled() => {}
    }
}

pub(crate) async fn expire_leases(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    while !stop.is_cancelled() {
        let outcome = store.call(ExpireLeasesParams { max: BATCH }).await?;
        if outcome.delayed + outcome.dead > 0 {
            tracing::warn!(delayed = outcome.delayed, dead = outcome.dead, "leases ran out");
        }
        if outcome.delayed + outcome.dead == BATCH {
            continue;
        }
        let due = outcome
            .next_deadline
            .map(|at| Duration::from(at.since(clock.now()).max(Millis(1))));
        pause(due.map_or(INTERVAL, |due| due.min(INTERVAL)), &stop).await;
    }
    Ok(())
}

pub(crate) async fn drop_finished(store: Arc<dyn Store>, stop: CancellationToken) -> Result<(), StoreError> {
    while !stop.is_cancelled() {
        let outcome = store
            .call(DropFinishedParams {
                max: BATCH,
                older_than: None,
            })
            .await?;
        if !outcome.more {
            pause(INTERVAL, &stop).await;
        }
    }
    Ok(())
}

pub(crate) async fn snapshot_congestion(
    store: Arc<dyn Store>,
    interval: Duration,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    while !stop.is_cancelled() {
        store.call(SnapshotCongestionParams {}).await?;
        pause(interval, &stop).await;
    }
    Ok(())
}
