//! The aggregator: folds the results of complete batches, decides them and calls back.
//!
//! claim → fold → finish (decides once) → callback → confirm. An aggregator that dies on the way loses its claim,
//! and another one continues. The fold may run again, the decision may not, and the callback runs at least once. A
//! failed callback is not confirmed: an aggregator claims the batch again when its claim has expired.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    Aggregation, BatchStatus, ClaimAggregationParams, ConfirmCompletionParams, FinishAggregationParams,
    Transition,
};
use tidegate_core::ids::{BatchId, GroupId, Owner};
use tidegate_core::time::Millis;
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, JobDetails};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::callback::{Callback, CompletedBatch};
use crate::outage::Outage;
use crate::tasks::panic_message;

/// Limit: batches folded concurrently.
const FOLDS: usize = 16;
/// Limit: results in one read.
const PAGE: u32 = 500;
pub(crate) const CLAIM_FOR: Millis = Millis(60_000);
const INTERVAL: Duration = Duration::from_secs(1);

/// Folds the results of one batch into a summary. Use it only for batches opened with `keep_results`: retention may
/// drop the results of others before the fold.
pub trait Reducer: Send {
    fn fold(&mut self, job: &JobDetails) -> Result<(), String>;
    fn finish(self: Box<Self>) -> Result<Bytes, String>;
}

/// Makes the reducer of a batch. None: the summary is the counts and the first errors as JSON.
pub(crate) type ReducerFactory = Arc<dyn Fn(&Aggregation) -> Option<Box<dyn Reducer>> + Send + Sync>;

pub(crate) struct Aggregator {
    pub(crate) store: Arc<dyn BulkStore>,
    pub(crate) owner: Owner,
    pub(crate) reducer: Option<ReducerFactory>,
    pub(crate) callback: Option<Callback>,
    /// How long the fold and the callback may take; after that, another aggregator takes over.
    pub(crate) claim_for: Millis,
    pub(crate) outage: Outage,
    pub(crate) stop: CancellationToken,
}

type Name = (GroupId, BatchId);
type Ended = (Name, Result<(), StoreError>);

/// Batches in the fold or in the callback, each in its own task.
#[derive(Default)]
struct InHand {
    /// The latest claim of each batch. A task that outlasts its claim continues under the next one, claimed here.
    claims: HashMap<Name, Arc<AtomicU64>>,
    tasks: JoinSet<Ended>,
}

impl InHand {
    /// Removes the tasks that have ended.
    fn clear_up(&mut self) -> Result<(), StoreError> {
        while let Some(ended) = self.tasks.try_join_next() {
            self.forget(ended)?;
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), StoreError> {
        while let Some(ended) = self.tasks.join_next().await {
            self.forget(ended)?;
        }
        Ok(())
    }

    fn forget(&mut self, ended: Result<Ended, JoinError>) -> Result<(), StoreError> {
        // The aggregator catches panics of user code, so this one is a bug of ours.
        let (name, result) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.claims.remove(&name);
        result
    }
}

impl Aggregator {
    /// Runs until stopped, and returns when all claimed batches are finished. If the store has failed, it drops
    /// them: nothing could store their results.
    pub(crate) async fn run(self) -> Result<(), StoreError> {
        let aggregator = Arc::new(self);
        let mut in_hand = InHand::default();
        aggregator.claim_until_stopped(&mut in_hand).await?;
        in_hand.finish().await
    }

    async fn claim_until_stopped(self: &Arc<Self>, in_hand: &mut InHand) -> Result<(), StoreError> {
        let notifier = self.store.notifier();
        let folds = Arc::new(Semaphore::new(FOLDS));
        loop {
            let signal = notifier.aggregate.notified();
            let permit = folds.clone().acquire_owned().await;
            let mut permits = permit.expect("the semaphore is never closed");
            let free = folds.available_permits() as u32;
            if let Ok(others) = folds.clone().try_acquire_many_owned(free) {
                permits.merge(others);
            }
            let params = ClaimAggregationParams {
                owner: self.owner.clone(),
                max: permits.num_permits() as u32,
                claim_for: self.claim_for,
            };
            // Taken before the claim, so that the claim ends here before it ends in the store.
            let claimed = Instant::now();
            let Some(aggregations) = self.retry_until_available(params).await? else {
                return Ok(());
            };
            // After the claim: tasks that still run at this point were claimed again while running.
            in_hand.clear_up()?;
            let mut more = false;
            for aggregation in aggregations {
                let name = (aggregation.group.clone(), aggregation.batch.clone());
                if let Some(claim) = in_hand.claims.get(&name) {
                    claim.store(aggregation.claim, Ordering::Relaxed);
                    continue;
                }
                let claim = Arc::new(AtomicU64::new(aggregation.claim));
                in_hand.claims.insert(name.clone(), claim.clone());
                more = true;
                let permit = permits.split(1).expect("no more batches than permits");
                let aggregator = self.clone();
                in_hand.tasks.spawn(async move {
                    let result = aggregator.complete(aggregation, &claim, claimed, permit).await;
                    (name, result)
                });
            }
            drop(permits);
            if more {
                continue;
            }
            if self.stop.is_cancelled() {
                return Ok(());
            }
            tokio::select! {
                () = signal => {}
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// None: stopped while the store was unavailable. The claims expire, and another aggregator continues.
    async fn retry_until_available<T: Transition + Clone + Send + 'static>(
        &self,
        params: T,
    ) -> Result<Option<T::Outcome>, StoreError> {
        let call = || self.store.call(params.clone());
        self.outage.retry_until_available(&self.stop, call).await
    }

    async fn complete(
        &self,
        aggregation: Aggregation,
        claim: &AtomicU64,
        claimed: Instant,
        permit: OwnedSemaphorePermit,
    ) -> Result<(), StoreError> {
        let decided = match aggregation.finished {
            Some(status) => Some((status, None)),
            None => self.decide(&aggregation, claim).await?,
        };
        let Some((status, summary)) = decided else {
            return Ok(());
        };
        let (group, batch) = (aggregation.group.clone(), aggregation.batch.clone());
        if let Some(callback) = &self.callback {
            let Some(completed) = self.completed(aggregation, status, summary).await? else {
                return Ok(());
            };
            // The fold of the next batch may start while this callback runs.
            drop(permit);
            if !callback.deliver(completed, claimed).await {
                return Ok(());
            }
        }
        // The store refuses only if another aggregator confirmed first.
        let _ = self
            .retry_until_available(ConfirmCompletionParams { group, batch })
            .await?;
        Ok(())
    }

    /// Folds and decides: returns the status, and the summary unless folding failed. None: another aggregator was
    /// faster, or this one was stopped.
    async fn decide(
        &self,
        aggregation: &Aggregation,
        claim: &AtomicU64,
    ) -> Result<Option<(BatchStatus, Option<Bytes>)>, StoreError> {
        // The reducer is dropped with its panic, so no state of ours is half-changed.
        let summary = AssertUnwindSafe(self.summarise(aggregation)).catch_unwind().await;
        let summary = summary.unwrap_or_else(|panic| {
            let panic = panic_message(&*panic);
            Ok(Some(Err(format!("the reducer panicked: {panic}"))))
        })?;
        let Some(summary) = summary else {
            return Ok(None);
        };
        let params = FinishAggregationParams {
            group: aggregation.group.clone(),
            batch: aggregation.batch.clone(),
            claim: claim.load(Ordering::Relaxed),
            summary: summary.clone(),
        };
        let Some(Ok(status)) = self.retry_until_available(params).await? else {
            return Ok(None);
        };
        let (group, batch) = (&aggregation.group, &aggregation.batch);
        tracing::info!(%group, %batch, ?status, "group {group}: batch {batch} completed");
        Ok(Some((status, summary.ok())))
    }

    /// The input of the callback. Without a summary, the batch was decided earlier or its aggregation failed; then
    /// this reads what the store retains. None: stopped while the store was unavailable.
    async fn completed(
        &self,
        aggregation: Aggregation,
        status: BatchStatus,
        summary: Option<Bytes>,
    ) -> Result<Option<CompletedBatch>, StoreError> {
        let mut completed = CompletedBatch {
            group: aggregation.group,
            batch: aggregation.batch,
            status,
            counts: aggregation.counts,
            errors: aggregation.errors,
            summary,
            callback: aggregation.callback,
        };
        if completed.summary.is_none() {
            let query = Query::Batch(completed.group.clone(), completed.batch.clone());
            match self.retry_until_available(query).await? {
                Some(Ok(View::Batch(view))) => {
                    completed.errors = view.errors;
                    completed.summary = view.summary;
                }
                Some(Ok(other)) => unreachable!("a batch is answered with a batch, not {other:?}"),
                // Confirmed and dropped in the meantime: call back with what is known here.
                Some(Err(_)) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(completed))
    }

    async fn summarise(
        &self,
        aggregation: &Aggregation,
    ) -> Result<Option<Result<Bytes, String>>, StoreError> {
        let Some(mut reducer) = self
            .reducer
            .as_ref()
            .filter(|_| aggregation.keep_results)
            .and_then(|make| make(aggregation))
        else {
            let summary = serde_json::json!({ "counts": aggregation.counts, "errors": aggregation.errors });
            return Ok(Some(Ok(Bytes::from(summary.to_string()))));
        };
        let mut after = None;
        loop {
            let results = || {
                self.store
                    .results(&aggregation.group, &aggregation.batch, after, PAGE)
            };
            let page = match self.outage.retry_until_available(&self.stop, results).await? {
                Some(Ok(page)) => page,
                Some(Err(refusal)) => return Ok(Some(Err(refusal.to_string()))),
                None => return Ok(None),
            };
            for job in &page.items {
                if let Err(error) = reducer.fold(job) {
                    return Ok(Some(Err(error)));
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(Some(reducer.finish()));
            }
        }
    }
}
