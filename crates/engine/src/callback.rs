//! The completion callback: what it is told, how many run at once, and what counts as told.
//!
//! Callbacks may be slow or fail for as long as whoever listens is away. Folding never waits for them: they have
//! places of their own, and a batch that finds none is told when its claim has run out, by whoever claims it
//! then.

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

use crate::handler;

/// Limit: callbacks that run at once.
const TURNS: usize = 64;

/// Limit: batches whose callback runs or waits for its turn.
const PLACES: usize = 4_096;

/// A batch that is decided.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletedBatch {
    pub group: GroupId,
    pub batch: BatchId,
    pub status: BatchStatus,
    pub counts: BatchCounts,
    /// The first errors of its jobs that differ, and that of its aggregation if it failed.
    pub errors: Vec<String>,
    /// What its results were folded into; none if that failed.
    pub summary: Option<Bytes>,
    /// Who is to be told, as the batch was opened with.
    pub callback: Option<String>,
}

/// What a completion callback may return: nothing, or whether it worked. After an error the callback is called
/// again, when the claim on the batch has run out.
pub trait IntoCallbackResult {
    /// The error is why nobody was told.
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

    /// Calls back for a batch that was claimed at this time; true if that counts as told.
    pub(crate) async fn tell(&self, completed: CompletedBatch, claimed: Instant) -> bool {
        let (group, batch) = (completed.group.clone(), completed.batch.clone());
        // A turn that comes late in the claim would overlap with that of the next watcher.
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
            // Called is called: a callback that panics would do so again.
            Ok(Err(panic)) => {
                let error = handler::message(&*panic);
                tracing::error!(%group, %batch, error, "the completion callback panicked");
            }
            Err(_) => tracing::error!(%group, %batch, "the completion callback did not return"),
        }
        true
    }
}
