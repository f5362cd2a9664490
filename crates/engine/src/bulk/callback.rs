//! The completion callback: its input, its concurrency, and when it counts as delivered.
//!
//! Callbacks may be slow, or fail for as long as the receiver is unavailable. Folding never waits for them, because
//! they have separate slots. A batch that finds no slot gets its callback after its claim has expired, from the
//! aggregator that claims it then.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use tidegate_core::bulk::{BatchCounts, BatchStatus};
use tidegate_core::ids::{BatchId, GroupId};
use tidegate_core::time::Millis;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use crate::tasks::panic_message;

/// Limit: callbacks that run concurrently.
const TURNS: usize = 64;

/// Limit: batches whose callback runs or waits.
const PLACES: usize = 4_096;

/// A decided batch.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletedBatch {
    pub group: GroupId,
    pub batch: BatchId,
    pub status: BatchStatus,
    pub counts: BatchCounts,
    /// The first distinct errors of its jobs, and that of its aggregation if it failed.
    pub errors: Vec<String>,
    /// The summary that its results were folded into; none if that failed.
    pub summary: Option<Bytes>,
    /// The receiver, as given when the batch was opened.
    pub callback: Option<String>,
}

/// What a completion callback may return: nothing, or a result. After an error, the callback runs again when the
/// claim on the batch has expired.
pub trait IntoCallbackResult {
    /// The error says why the delivery failed.
    fn into_callback_result(self) -> Result<(), String>;
}

impl IntoCallbackResult for () {
    fn into_callback_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Display> IntoCallbackResult for Result<(), E> {
    fn into_callback_result(self) -> Result<(), String> {
        self.map_err(|error| error.to_string())
    }
}

pub(crate) type OnComplete =
    Arc<dyn Fn(CompletedBatch) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

pub(crate) struct Callback {
    on_complete: OnComplete,
    claim_for: Millis,
    places: Semaphore,
    turns: Semaphore,
}

impl Callback {
    pub(crate) fn new(on_complete: OnComplete, claim_for: Millis) -> Self {
        Self {
            on_complete,
            claim_for,
            places: Semaphore::new(PLACES),
            turns: Semaphore::new(TURNS),
        }
    }

    /// Calls back for a batch claimed at this time. True if it counts as delivered.
    pub(crate) async fn deliver(&self, completed: CompletedBatch, claimed: Instant) -> bool {
        let (group, batch) = (completed.group.clone(), completed.batch.clone());
        // A callback that starts late in the claim would overlap with that of the next aggregator.
        let latest = claimed + Millis(self.claim_for.0 / 2).into();
        let turn = async {
            let place = self.places.try_acquire().ok()?;
            let turn = timeout_at(latest, self.turns.acquire()).await.ok()?.ok()?;
            Some((place, turn))
        };
        let Some(_turn) = turn.await else {
            tracing::info!(%group, %batch, "too many completion callbacks run; this one is called later");
            return false;
        };
        let called = AssertUnwindSafe(async { (self.on_complete)(completed).await });
        match timeout(self.claim_for.into(), called.catch_unwind()).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!(%group, %batch, error, "the completion callback failed and is called again");
                return false;
            }
            // A panic counts as delivered: the callback would panic again.
            Ok(Err(panic)) => {
                let error = panic_message(&*panic);
                tracing::error!(%group, %batch, error, "the completion callback panicked");
            }
            Err(_) => tracing::error!(%group, %batch, "the completion callback did not return"),
        }
        true
    }
}
