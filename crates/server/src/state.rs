//! The state that every request shares: configuration, stores, sessions and metrics.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{Command, LeaseOutcome, LeaseParams, Transition};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::RefreshHandle;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, LeasedJob};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::audit::{Audit, AuditedCommand};
use crate::auth::{Attempts, Caller, Keys, Sessions};
use crate::bulk::pull_workers::QueueActivity;
use crate::bulk::push::{Callbacks, Targets};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::problem::{ApiError, ApiResult, STOPPING, UNAVAILABLE};
use crate::refresh::Budgets;
use crate::room::module::Rooms;
use crate::sampler::Sampler;

/// The shared state of one service. Cloning it copies one pointer.
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
    pub(crate) store: Arc<dyn BulkStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    pub(crate) sessions: Sessions,
    pub(crate) attempts: Attempts,
    pub(crate) audit: Audit,
    pub(crate) targets: Targets,
    pub(crate) callbacks: Arc<Callbacks>,
    /// The refresh module; `None` without sources.
    pub(crate) refresh: Option<RefreshHandle>,
    /// The budgets as this process last read them; `None` without budgets.
    pub(crate) budgets: Option<Arc<Budgets>>,
    /// Waiting rooms; `None` if the configuration has none.
    pub(crate) rooms: Option<Arc<Rooms>>,
    pub(crate) queues: QueueActivity,
    pub(crate) sampler: Sampler,
    pub(crate) metrics: Arc<Metrics>,
    /// Limits the open event streams.
    pub(crate) event_streams: Arc<Semaphore>,
    /// Cancelled at shutdown: then streams end and long polls answer.
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

    /// Refuses at once while the sampler reports the store unavailable, so that no request waits for it.
    fn check_available(&self) -> ApiResult<()> {
        if self.stopping.is_cancelled() {
            return Err(ApiError::new(
                STOPPING,
                "the service is shutting down; send the request to another instance, or again later",
            ));
        }
        match self.sampler.unavailable_since() {
            None => Ok(()),
            Some(_) => Err(ApiError::new(
                UNAVAILABLE,
                "the store cannot be reached; repeating the request later is safe",
            )),
        }
    }

    /// Applies a transition, and turns its refusal into the problem of the request.
    pub(crate) async fn execute<T, O>(&self, params: T) -> ApiResult<O>
    where
        T: Transition<Outcome = Result<O, tidegate_core::bulk::Refusal>> + Send + 'static,
        O: Send,
    {
        self.check_available()?;
        Ok(self.store.call(params).await??)
    }

    /// Applies a transition, and returns its outcome whatever it is.
    pub(crate) async fn apply<T: Transition + Send + 'static>(&self, params: T) -> ApiResult<T::Outcome> {
        self.check_available()?;
        Ok(self.store.call(params).await?)
    }

    pub(crate) async fn lease(&self, params: LeaseParams) -> ApiResult<LeaseOutcome<LeasedJob>> {
        self.check_available()?;
        Ok(self.store.lease(params).await?)
    }

    /// The store, unless it is unavailable.
    pub(crate) fn available_store(&self) -> ApiResult<&Arc<dyn BulkStore>> {
        self.check_available()?;
        Ok(&self.store)
    }

    pub(crate) async fn query(&self, query: Query) -> ApiResult<View> {
        debug_assert!(matches!(query.clone().into_command(), Command::Query(_)));
        self.execute(query).await
    }

    /// Runs a command after the audit log has recorded it.
    ///
    /// The entry comes first, because an entry without its command does less harm than a command without its entry. If
    /// the command is refused, a second entry says so.
    pub(crate) async fn audited<T>(
        &self,
        caller: &Caller,
        command: AuditedCommand,
        run: impl Future<Output = ApiResult<T>>,
    ) -> ApiResult<T> {
        // A request that cannot run is not a command.
        self.check_available()?;
        self.audit
            .record(self.now(), &caller.name, command.clone(), None)
            .await?;
        let result = run.await;
        if let Err(refused) = &result {
            let why = format!("{}: {}", refused.kind.1, refused.detail);
            let recorded = self.audit.record(self.now(), &caller.name, command, Some(why));
            if let Err(error) = recorded.await {
                tracing::warn!(
                    error = error.detail,
                    "failed to record in the audit log that a command was refused"
                );
            }
        }
        result
    }

    /// Returns the next number, for the id of a request that brings none.
    pub(crate) fn request_number(&self) -> u64 {
        self.requests.fetch_add(1, Ordering::Relaxed)
    }
}

/// Checks a group id from a path or a body.
pub(crate) fn group_id(name: &str) -> ApiResult<GroupId> {
    Ok(GroupId::new(name)?)
}

pub(crate) fn batch_id(name: &str) -> ApiResult<BatchId> {
    Ok(BatchId::new(name)?)
}

pub(crate) fn job_id(name: &str) -> ApiResult<JobId> {
    Ok(JobId::new(name)?)
}
