//! The watcher: folds the results of complete actions, decides them and calls back.
//!
//! claim → fold → finish (decides once) → callback → confirm. A watcher that dies on the way loses its
//! claim, and another goes on: the fold may run again, the decision not, the callback at least once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use tidegate_core::bulk::{
    ActionCounts, ActionStatus, Aggregation, ClaimAggregationParams, ConfirmCompletionParams,
    FinishAggregationParams, Transition,
};
use tidegate_core::ids::{ActionId, GroupId, Owner};
use tidegate_core::time::Millis;
use tidegate_store::{JobDetails, Store, StoreError, StoreExt};
use tokio_util::sync::CancellationToken;

use crate::handler;
use crate::outage::Outage;

/// Limit: actions claimed, and results read, at once.
const CLAIMS: u32 = 16;
const PAGE: u32 = 500;
pub(crate) const CLAIM_FOR: Millis = Millis(60_000);
const INTERVAL: Duration = Duration::from_secs(1);

/// Folds the results of one action into a summary. Only of actions opened with `keep_results`: those of
/// others may be dropped before they are folded.
pub trait Reducer: Send {
    fn fold(&mut self, job: &JobDetails) -> Result<(), String>;
    fn finish(self: Box<Self>) -> Result<Bytes, String>;
}

/// Makes the reducer of an action; none: the summary is the counts and the first errors as JSON.
pub type ReducerFactory = Arc<dyn Fn(&Aggregation) -> Option<Box<dyn Reducer>> + Send + Sync>;

/// Called when an action is decided.
pub type OnComplete = Arc<dyn Fn(CompletedAction) -> BoxFuture<'static, ()> + Send + Sync>;

#[derive(Debug, Clone, PartialEq)]
pub struct CompletedAction {
    pub group: GroupId,
    pub action: ActionId,
    pub status: ActionStatus,
    pub counts: ActionCounts,
}

pub(crate) struct Watcher {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) owner: Owner,
    pub(crate) reducer: Option<ReducerFactory>,
    pub(crate) on_complete: Option<OnComplete>,
    /// How long it may take to fold and call back; after that, another watcher takes over.
    pub(crate) claim_for: Millis,
    pub(crate) outage: Outage,
    pub(crate) stop: CancellationToken,
}

impl Watcher {
    pub(crate) async fn run(self) -> Result<(), StoreError> {
        let wakeups = self.store.wakeups();
        loop {
            let bell = wakeups.aggregate.notified();
            let params = ClaimAggregationParams {
                owner: self.owner.clone(),
                max: CLAIMS,
                claim_for: self.claim_for,
            };
            let Some(claimed) = self.patiently(params).await? else {
                return Ok(());
            };
            if !claimed.is_empty() {
                for aggregation in claimed {
                    self.complete(aggregation).await?;
                }
                continue;
            }
            if self.stop.is_cancelled() {
                return Ok(());
            }
            tokio::select! {
                () = bell => {}
                () = tokio::time::sleep(INTERVAL) => {}
                () = self.stop.cancelled() => {}
            }
        }
    }

    /// None: stopped while the store was unavailable. Claims run out, and another watcher goes on.
    async fn patiently<T: Transition + Clone + Send + 'static>(
        &self,
        params: T,
    ) -> Result<Option<T::Outcome>, StoreError> {
        let call = || self.store.call(params.clone());
        self.outage.outlast(&self.stop, call).await
    }

    async fn complete(&self, aggregation: Aggregation) -> Result<(), StoreError> {
        let Aggregation {
            group,
            action,
            claim,
            counts,
            finished,
            ..
        } = aggregation.clone();
        let status = match finished {
            Some(status) => status,
            None => {
                // The reducer is dropped with its panic: nothing of ours is half-changed.
                let summary = AssertUnwindSafe(self.summarise(&aggregation))
                    .catch_unwind()
                    .await;
                let summary = summary.unwrap_or_else(|panic| {
                    Ok(Some(Err(format!(
                        "the reducer panicked: {}",
                        handler::message(&*panic)
                    ))))
                })?;
                let Some(summary) = summary else { return Ok(()) };
                let params = FinishAggregationParams {
                    group: group.clone(),
                    action: action.clone(),
                    claim,
                    summary,
                };
                match self.patiently(params).await? {
                    Some(Ok(status)) => status,
                    // Another watcher was faster, or this one was stopped.
                    Some(Err(_)) | None => return Ok(()),
                }
            }
        };
        tracing::info!(%group, %action, ?status, "group {group}: action {action} completed");
        if let Some(on_complete) = &self.on_complete {
            let completed = CompletedAction {
                group: group.clone(),
                action: action.clone(),
                status,
                counts,
            };
            // Called is called: a callback that panics would do so again.
            let called = AssertUnwindSafe(async { on_complete(completed).await });
            match tokio::time::timeout(self.claim_for.into(), called.catch_unwind()).await {
                Ok(Ok(())) => {}
                Ok(Err(panic)) => {
                    let error = handler::message(&*panic);
                    tracing::error!(%group, %action, error, "the completion callback panicked");
                }
                Err(_) => tracing::error!(%group, %action, "the completion callback did not return"),
            }
        }
        // Refused only if another watcher confirmed it first.
        let _ = self.patiently(ConfirmCompletionParams { group, action }).await?;
        Ok(())
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
                    .results(&aggregation.group, &aggregation.action, after, PAGE)
            };
            let page = match self.outage.outlast(&self.stop, results).await? {
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
