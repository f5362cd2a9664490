//! State that the components of one service share, and the failure that ends them all.

use std::sync::{Arc, OnceLock};

use tidegate_core::ids::RecordId;
use tidegate_core::retry::pause;
use tidegate_core::time::Timestamp;
use tidegate_log::LogError;
use tidegate_snapshots::RecordRef;
use tidegate_store::StoreError;
use tokio_util::sync::CancellationToken;

use super::counters::Counters;
use super::database_health::Presence;
use super::error::RefreshError;
use super::guard::Guard;
use super::options::RefreshOptions;
use super::publish::in_doubt::InDoubt;
use super::read::cache::Cache;
use super::read::change_feed::ChangeFeed;
use super::store_time::StoreTime;
use crate::retry;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: RefreshOptions,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) counters: Arc<Counters>,
    /// Around the store: the `redis` breaker.
    pub(crate) store_guard: Arc<Guard>,
    /// Around writes to the database: the `dbWrite` breaker.
    pub(crate) write_guard: Arc<Guard>,
    pub(crate) presence: Presence,
    pub(crate) changes: ChangeFeed,
    pub(crate) cache: Cache,
    pub(crate) in_doubt: InDoubt,
    /// Cancelled on an unrecoverable failure.
    pub(crate) failed: CancellationToken,
    failure: OnceLock<RefreshError>,
}

impl Shared {
    pub(crate) fn new(options: RefreshOptions) -> Self {
        let breaker = &options.config.breaker;
        Self {
            time: Arc::new(StoreTime::new(options.clock.clone())),
            counters: Arc::default(),
            store_guard: Arc::new(Guard::new("the store", breaker.clone())),
            write_guard: Arc::new(Guard::new("the database", breaker.clone())),
            presence: Presence::default(),
            changes: ChangeFeed::default(),
            cache: Cache::new(&options.query),
            in_doubt: InDoubt::default(),
            failed: CancellationToken::new(),
            failure: OnceLock::new(),
            options,
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// The service cannot continue: stops every component and keeps the error for callers.
    pub(crate) fn fail(&self, error: RefreshError) {
        tracing::error!(%error, "the refresh service ends");
        let _ = self.failure.set(error);
        self.failed.cancel();
    }

    pub(crate) fn failure(&self) -> Option<RefreshError> {
        self.failure.get().cloned()
    }

    /// Repeats a call to the store until it answers. None: `stop` fired first, or the store failed unrecoverably,
    /// which ends the service.
    pub(crate) async fn store_call<T, Call, Answer>(&self, stop: &CancellationToken, call: Call) -> Option<T>
    where
        Call: FnMut() -> Answer,
        Answer: Future<Output = Result<T, StoreError>>,
    {
        match self.store_guard.retry_until_available(stop, call).await? {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.fail(error.into());
                None
            }
        }
    }

    /// Repeats a call to the log until it answers, or fails unrecoverably. None: `stop` fired first.
    pub(crate) async fn log_call<T, Call, Answer>(
        &self,
        stop: &CancellationToken,
        call: Call,
    ) -> Option<Result<T, LogError>>
    where
        Call: FnMut() -> Answer,
        Answer: Future<Output = Result<T, LogError>>,
    {
        let mut failures = 0;
        let answer = retry::until_available(stop, call, |error: LogError| {
            if !error.is_retryable() {
                return Err(error);
            }
            if failures == 0 {
                tracing::warn!(%error, "the log is unavailable; work waits");
            }
            failures += 1;
            Ok(pause(failures))
        });
        let answer = answer.await;
        if failures > 0 && matches!(answer, Some(Ok(_))) {
            tracing::info!("the log is available again");
        }
        answer
    }

    /// Somebody wrote the record: invalidates the cached row and notifies followers.
    pub(crate) fn written(&self, record: &RecordId) {
        self.cache.forget(record);
        self.changes.notify(record);
    }
}

pub(crate) fn record_ref(record: &RecordId) -> RecordRef {
    RecordRef {
        source: record.source.clone(),
        key: record.key.clone(),
    }
}

pub(crate) fn record_id(record: &RecordRef) -> RecordId {
    RecordId {
        source: record.source.clone(),
        key: record.key.clone(),
    }
}
