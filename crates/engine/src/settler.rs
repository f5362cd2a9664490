//! The settler: takes workers' answers to the store, as many at once as have come.

use std::sync::Arc;

use tidegate_core::bulk::{Answer, SettleParams};
use tidegate_store::{Store, StoreError, StoreExt};
use tokio::sync::mpsc;

/// Limit: answers in one call.
const MAX_BATCH: usize = 1_000;

/// Runs until every sender is gone and everything is settled.
pub(crate) async fn run(
    store: Arc<dyn Store>,
    mut answers: mpsc::Receiver<Answer>,
) -> Result<(), StoreError> {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    while answers.recv_many(&mut batch, MAX_BATCH).await > 0 {
        store
            .call(SettleParams {
                answers: std::mem::take(&mut batch),
            })
            .await?;
    }
    Ok(())
}
