//! The settler: reports workers' outcomes to the store, as many in one call as have arrived.
//!
//! A slow call does not block the next one. If a store spans several servers and one of them is unavailable, the
//! outcomes for that server wait, and the leases of all others must not expire meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bulk::{SettleParams, Settled, Settlement};
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::outage::Outage;

/// Limit: outcomes in one call, and calls in flight.
const MAX_BATCH: usize = 1_000;
const MAX_CALLS: usize = 64;

/// While a call takes no longer than this, outcomes collect for the next one: few large calls cost less.
const COLLECT: Duration = Duration::from_millis(100);

/// Runs until every sender is gone and everything is settled. After `abort`, it no longer waits for an unavailable
/// store: the leases of undelivered outcomes expire, and those jobs run again.
pub(crate) async fn run(
    store: Arc<dyn BulkStore>,
    mut answers: mpsc::Receiver<Settlement>,
    outage: Outage,
    abort: CancellationToken,
) -> Result<(), StoreError> {
    let mut calls = JoinSet::new();
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while answers.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let params = SettleParams {
            answers: std::mem::take(&mut batch),
        };
        calls.spawn(deliver(store.clone(), params, outage.clone(), abort.clone()));
        if let Ok(Some(ended)) = tokio::time::timeout(COLLECT, calls.join_next()).await {
            result_of(ended)?;
        }
        while calls.len() >= MAX_CALLS
            && let Some(ended) = calls.join_next().await
        {
            result_of(ended)?;
        }
    }
    while let Some(ended) = calls.join_next().await {
        result_of(ended)?;
    }
    Ok(())
}

/// Propagates the panic of a call to the caller that waits.
fn result_of(ended: Result<Result<(), StoreError>, JoinError>) -> Result<(), StoreError> {
    ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
}

async fn deliver(
    store: Arc<dyn BulkStore>,
    params: SettleParams,
    outage: Outage,
    abort: CancellationToken,
) -> Result<(), StoreError> {
    let Some(settled) = outage
        .retry_until_available(&abort, || store.call(params.clone()))
        .await?
    else {
        let answers = params.answers.len();
        tracing::error!(answers, "failed to deliver outcomes; their leases expire");
        return Ok(());
    };
    let late = settled
        .iter()
        .filter(|settled| **settled == Settled::Stale)
        .count();
    if late > 0 {
        tracing::warn!(late, "outcomes came too late: their leases had expired");
    }
    Ok(())
}
