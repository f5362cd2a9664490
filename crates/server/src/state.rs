//! What every request can reach.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{Command, LeaseOutcome, LeaseParams, Transition};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::RefreshHandle;
use tidegate_store::{Clock, LeasedJob, Store, StoreExt};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, AuditedCommand};
use crate::auth::{Attempts, Caller, Keys, Sessions};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::problem::{ApiError, ApiResult, STOPPING, UNAVAILABLE};
use crate::push::{Callbacks, Targets};
use crate::queues::QueueActivity;
use crate::refresh::Budgets;
use crate::room::module::Rooms;
use crate::sampler::Sampler;

/// One per service; cheap to clone.
#[derive(Clone)]
pub(crate) struct App(Arc<Inner>);

impl std::ops::Deref for App {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    pub(crate) sessions: Sessions,
    pub(crate) attempts: Attempts,
    pub(crate) audit: Audit,
    pub(crate) targets: Targets,
    pub(crate) callbacks: Arc<Callbacks>,
    /// The refresh part; none without sources.
    pub(crate) refresh: Option<RefreshHandle>,
    /// As they were last seen; none without budgets.
    pub(crate) budgets: Option<Arc<Budgets>>,
    /// Waiting rooms; none where none are configured.
    pub(crate) rooms: Option<Arc<Rooms>>,
    pub(crate) queues: QueueActivity,
    pub(crate) sampler: Sampler,
    pub(crate) metrics: Arc<Metrics>,
    /// Open streams of events.
    pub(crate) event_streams: Arc<Semaphore>,
    /// No more long waits: streams end, long polls answer.
    pub(crate) stopping: CancellationToken,
    pub(crate) requests: AtomicU64,
}

impl App {
    pub(crate) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Refuses at once while the store is known to be away, instead of letting everybody wait for it.
    fn available(&self) -> ApiResult<()> {
        if self.stopping.is_cancelled() {
            return Err(ApiError::new(
                STOPPING,
                "the service is stopping; ask another one, or again later",
            ));
        }
        match self.sampler.away_since() {
            None => Ok(()),
            Some(_) => Err(ApiError::new(
                UNAVAILABLE,
                "the store cannot be reached; repeating the request later is safe",
            )),
        }
    }

    /// One transition whose refusals are the request's.
    pub(crate) async fn call<T, O>(&self, params: T) -> ApiResult<O>
    where
        T: Transition<Outcome = Result<O, tidegate_core::bulk::Refusal>> + Send + 'static,
        O: Send,
    {
        self.available()?;
        Ok(self.store.call(params).await??)
    }

    /// One transition that is never refused.
    pub(crate) async fn ask<T: Transition + Send + 'static>(&self, params: T) -> ApiResult<T::Outcome> {
        self.available()?;
        Ok(self.store.call(params).await?)
    }

    pub(crate) async fn lease(&self, params: LeaseParams) -> ApiResult<LeaseOutcome<LeasedJob>> {
        self.available()?;
        Ok(self.store.lease(params).await?)
    }

    /// The store, if it can be used.
    pub(crate) fn reach(&self) -> ApiResult<&Arc<dyn Store>> {
        self.available()?;
        Ok(&self.store)
    }

    pub(crate) async fn view(&self, query: Query) -> ApiResult<View> {
        debug_assert!(matches!(query.clone().into_command(), Command::Query(_)));
        self.call(query).await
    }

    /// Does what the audit log tells. It is written before it is done: an entry without its command is better than
    /// the other way, and if it is refused, a second entry says so.
    pub(crate) async fn audited<T>(
        &self,
        caller: &Caller,
        command: AuditedCommand,
        doing: impl Future<Output = ApiResult<T>>,
    ) -> ApiResult<T> {
        // What is refused anyway is no command.
        self.available()?;
        self.audit
            .note(self.now(), &caller.name, command.clone(), None)
            .await?;
        let done = doing.await;
        if let Err(refused) = &done {
            let why = format!("{}: {}", refused.kind.1, refused.detail);
            let noted = self.audit.note(self.now(), &caller.name, command, Some(why));
            if let Err(error) = noted.await {
                tracing::warn!(
                    error = error.detail,
                    "that a command was refused is not in the audit log"
                );
            }
        }
        done
    }

    /// A number for a request that brings none of its own.
    pub(crate) fn request_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}

/// Names in addresses, checked.
pub(crate) fn group_id(name: &str) -> ApiResult<GroupId> {
    Ok(GroupId::new(name)?)
}

pub(crate) fn batch_id(name: &str) -> ApiResult<BatchId> {
    Ok(BatchId::new(name)?)
}

pub(crate) fn job_id(name: &str) -> ApiResult<JobId> {
    Ok(JobId::new(name)?)
}
