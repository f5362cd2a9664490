//! The settler: takes workers' answers to the store, as many at once as have come.

use std::sync::Arc;

use tidegate_core::bulk::{Answer, SettleParams, Settled};
use tidegate_store::{Store, StoreError, StoreExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::outage::Outage;

/// Limit: answers in one call.
const MAX_BATCH: usize = 1_000;

/// Runs until every sender is gone and everything is settled. From `abort` on, a store that is unavailable is
/// not waited for: the leases of what cannot be delivered run out, and those jobs run again.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    mut answers: mpsc::Receiver<Answer>,
    outage: Outage,
    abort: CancellationToken,
) -> Result<(), StoreError> {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while answers.recv_many(&mut batch, MAX_BATCH).await > 0 {
        let params = SettleParams {
            answers: std::mem::take(&mut batch),
        };
        let Some(settled) = outage.outlast(&abort, || store.call(params.clone())).await? else {
            let answers = params.answers.len();
            tracing::error!(answers, "answers could not be delivered; their leases run out");
            break;
        };
        let late = settled
            .iter()
            .filter(|settled| **settled == Settled::Stale)
            .count();
        if late > 0 {
            tracing::warn!(late, "answers came too late: their leases had run out");
        }
    }
    Ok(())
}
