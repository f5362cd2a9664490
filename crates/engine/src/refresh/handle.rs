//! The handle through which callers use a refresh service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::budget::BudgetView;
use tidegate_core::ids::{CorrelationId, RecordId, SourceId, TargetId};
use tidegate_core::refresh::Version;
use tidegate_core::refresh::breaker::BreakerState;
use tidegate_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use super::counters::CountersView;
use super::dead_letters::DeadLetterReader;
use super::error::RefreshError;
use super::options::{RefreshOptions, SourceOptions};
use super::plan::freshness_census::{Censuses, FreshnessCensus};
use super::plan::pressure::{LagWatcher, Lags};
use super::publish::publisher::PublishOutcome;
use super::read::follow::RecordFollower;
use super::read::reader::Reader;
use super::read::view::RecordView;
use super::shared::Shared;
use super::work::token_dispenser::TokenDispenser;
use crate::histogram::HistogramView;

/// The circuit breakers in front of the store and the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breakers {
    /// `redis_circuit_breaker_state`, and the duration of calls: `redis_command_duration_seconds`.
    pub store: BreakerState,
    pub store_calls: HistogramView,
    /// `db_circuit_breaker_state`, and the duration of writes: `db_upsert_duration_seconds`.
    pub database: BreakerState,
    pub database_writes: HistogramView,
}

/// Clones share the service.
#[derive(Debug, Clone)]
pub struct RefreshHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) reader: Option<Arc<Reader>>,
    pub(crate) token_dispenser: TokenDispenser,
    pub(crate) lags: Arc<LagWatcher>,
    pub(crate) censuses: Arc<Censuses>,
    pub(crate) dead_letters: DeadLetterReader,
    pub(crate) stop: CancellationToken,
}

impl RefreshHandle {
    /// Answers from the snapshot alone. Requests a refresh if the snapshot is stale or missing, and reports whether
    /// one is queued.
    pub async fn read(
        &self,
        record: &RecordId,
        correlation: Option<CorrelationId>,
    ) -> Result<RecordView, RefreshError> {
        self.reader()?.read(record, correlation).await
    }

    /// One result for each record, in order.
    pub async fn read_many(
        &self,
        records: &[RecordId],
    ) -> Result<Vec<Result<RecordView, RefreshError>>, RefreshError> {
        Ok(self.reader()?.read_many(records).await)
    }

    /// Reads the database, bypassing the cache, and requests nothing.
    pub async fn peek(&self, record: &RecordId) -> Result<RecordView, RefreshError> {
        self.reader()?.peek(record).await
    }

    /// Requests a refresh on behalf of a user. Waits up to `wait` for the result of the request, not for the refresh.
    pub async fn request_refresh(
        &self,
        record: &RecordId,
        correlation: Option<CorrelationId>,
        wait: Duration,
    ) -> Result<PublishOutcome, RefreshError> {
        self.reader()?.request(record, correlation, wait).await
    }

    /// Follows a record until it is fresh, known to be absent, or dead-lettered. With `since`, only an event of that
    /// version or a later one ends it; [`PublishOutcome::version`] names the version.
    pub fn follow(&self, record: RecordId, since: Option<Version>) -> Result<RecordFollower, RefreshError> {
        self.shared.options.source(&record)?;
        let reader = self.reader()?.clone();
        Ok(RecordFollower::new(
            &self.shared,
            reader,
            record,
            since,
            self.stop.clone(),
        ))
    }

    /// Dispenses tokens of the targets' budgets to every caller in this process.
    pub fn token_dispenser(&self) -> TokenDispenser {
        self.token_dispenser.clone()
    }

    pub fn dead_letters(&self) -> &DeadLetterReader {
        &self.dead_letters
    }

    pub fn counters(&self) -> CountersView {
        self.shared.counters.view()
    }

    pub fn breakers(&self) -> Breakers {
        Breakers {
            store: self.shared.store_guard.state(),
            store_calls: self.shared.store_guard.durations(),
            database: self.shared.write_guard.state(),
            database_writes: self.shared.write_guard.durations(),
        }
    }

    /// Whether records can be read, for which only the database must respond. Probes it at most once a second.
    pub async fn can_read(&self) -> bool {
        self.reader.is_some() && self.shared.presence.look(&self.shared).await
    }

    /// The lag of the log when it was last measured.
    pub fn lags(&self) -> Lags {
        self.lags.lags()
    }

    /// How fresh the records of each source were at the last census.
    pub fn census(&self) -> BTreeMap<SourceId, FreshnessCensus> {
        self.censuses.view()
    }

    pub async fn budget(&self, target: &TargetId) -> Result<BudgetView, RefreshError> {
        Ok(self.shared.options.store.budget(target).await?)
    }

    pub fn sources(&self) -> &BTreeMap<SourceId, SourceOptions> {
        &self.shared.options.sources
    }

    pub fn options(&self) -> &RefreshOptions {
        &self.shared.options
    }

    /// The store's time, or the local clock until the store has answered once.
    pub fn now(&self) -> Timestamp {
        self.shared.now()
    }

    fn reader(&self) -> Result<&Arc<Reader>, RefreshError> {
        self.reader.as_ref().ok_or(RefreshError::NotQuerying)
    }
}
