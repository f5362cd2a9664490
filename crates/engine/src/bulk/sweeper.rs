//! Sweepers: expire leases, drop finished data, record congestion history.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bulk::{DropFinishedParams, ExpireLeasesParams, SnapshotCongestionParams};
use tidegate_core::clock::Clock;
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio_util::sync::CancellationToken;

use crate::alarm::Alarm;
use crate::outage::Outage;

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
    store: Arc<dyn BulkStore>,
    clock: Arc<dyn Clock>,
    outage: Outage,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    let mut alarm = Alarm::new(clock);
    while !stop.is_cancelled() {
        let expire = || store.call(ExpireLeasesParams { max: BATCH });
        let Some(outcome) = outage.retry_until_available(&stop, expire).await? else {
            break;
        };
        if outcome.delayed + outcome.dead > 0 {
            tracing::warn!(delayed = outcome.delayed, dead = outcome.dead, "leases expired");
        }
        if outcome.delayed + outcome.dead == BATCH {
            continue;
        }
        let wait = match outcome.next_deadline {
            Some(at) => alarm.wait(at, INTERVAL),
            None => INTERVAL,
        };
        pause(wait, &stop).await;
    }
    Ok(())
}

pub(crate) async fn drop_finished(
    store: Arc<dyn BulkStore>,
    outage: Outage,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    while !stop.is_cancelled() {
        let params = DropFinishedParams {
            max: BATCH,
            older_than: None,
        };
        let Some(outcome) = outage
            .retry_until_available(&stop, || store.call(params.clone()))
            .await?
        else {
            break;
        };
        if !outcome.more {
            pause(INTERVAL, &stop).await;
        }
    }
    Ok(())
}

pub(crate) async fn snapshot_congestion(
    store: Arc<dyn BulkStore>,
    interval: Duration,
    outage: Outage,
    stop: CancellationToken,
) -> Result<(), StoreError> {
    while !stop.is_cancelled() {
        let snapshot = || store.call(SnapshotCongestionParams {});
        if outage.retry_until_available(&stop, snapshot).await?.is_none() {
            break;
        }
        pause(interval, &stop).await;
    }
    Ok(())
}
