//! The `Snapshots` trait in SQL, written once for every database that a [`Driver`] supports.
//!
//! Every file has one kind of access; `statement.rs` knows where the databases differ, `driver.rs` what a backend
//! provides. Invariant: every query reaches its rows by an index, and the caller's batch bounds every loop.

mod active;
mod counts;
mod dead_letters;
pub(crate) mod driver;
mod history;
mod lapsed_failures;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod lent;
#[cfg(test)]
mod plans;
mod prefetch;
mod read;
mod record;
mod retry;
pub(crate) mod schema;
pub(crate) mod statement;
mod steps;
mod write;

use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::ids::SourceId;
use tidegate_core::time::{Millis, Timestamp};

use crate::options::SnapshotsOptions;
use crate::rows::*;
use crate::{Snapshots, SnapshotsError, Write, WriteOutcome};
use driver::{Driver, Fault, Meaning};

/// How often to repeat a transaction after a conflict before the caller gets an error.
const CONFLICT_RETRIES: u32 = 4;
const CONFLICT_PAUSE: Duration = Duration::from_millis(5);

/// Snapshots in an SQL database. Opened by [`sqlite`](crate::sqlite) and the other backends.
#[derive(Debug)]
pub struct SqlSnapshots {
    driver: Box<dyn Driver>,
    options: SnapshotsOptions,
}

impl SqlSnapshots {
    pub(crate) fn new(driver: Box<dyn Driver>, options: SnapshotsOptions) -> Self {
        Self { driver, options }
    }

    /// The name of the database for messages, without secrets.
    pub fn database(&self) -> &str {
        self.driver.name()
    }

    /// Runs `work` within `limit`, and again after a conflict.
    async fn call<T, W, F>(&self, limit: Millis, work: W) -> Result<T, SnapshotsError>
    where
        W: Fn() -> F,
        F: Future<Output = Result<T, Fault>>,
    {
        let attempts = async {
            let mut tries = 0;
            loop {
                match work().await {
                    Err(Fault::Sql(error)) if self.is_conflict(&error) && tries < CONFLICT_RETRIES => {
                        tries += 1;
                        tracing::debug!(%error, tries, "a transaction met another, and is repeated");
                        tokio::time::sleep(CONFLICT_PAUSE * tries).await;
                    }
                    answer => return answer,
                }
            }
        };
        match tokio::time::timeout(limit.into(), attempts).await {
            Ok(answer) => answer.map_err(|fault| self.error_of(fault)),
            Err(_) => Err(SnapshotsError::Timeout {
                database: self.driver.name().to_owned(),
                after: limit,
            }),
        }
    }

    fn is_conflict(&self, error: &sqlx::Error) -> bool {
        matches!(error, sqlx::Error::Database(error) if self.driver.meaning(error.as_ref()) == Meaning::Conflict)
    }

    fn error_of(&self, fault: Fault) -> SnapshotsError {
        let database = self.driver.name().to_owned();
        let error = match fault {
            Fault::Typed(error) => return error,
            Fault::Odd(reason) => return SnapshotsError::Corrupt { database, reason },
            Fault::Sql(error) => error,
        };
        let reason = error.to_string();
        match error {
            sqlx::Error::Database(error) => match self.driver.meaning(error.as_ref()) {
                Meaning::Conflict | Meaning::Transient => SnapshotsError::Unavailable { database, reason },
                Meaning::NoTable => SnapshotsError::NoSchema { database },
                Meaning::Permanent => SnapshotsError::Rejected { database, reason },
            },
            sqlx::Error::Io(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => SnapshotsError::Unavailable { database, reason },
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                SnapshotsError::Corrupt { database, reason }
            }
            _ => SnapshotsError::Rejected { database, reason },
        }
    }
}

#[async_trait]
impl Snapshots for SqlSnapshots {
    async fn read(&self, records: &[RecordRef]) -> Result<Vec<Row>, SnapshotsError> {
        self.call(self.options.timeouts.read, || self.read_rows(records))
            .await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, SnapshotsError> {
        writes.iter().try_for_each(Write::check)?;
        self.call(self.options.timeouts.write, || self.write_batch(writes))
            .await
    }

    async fn claim_retries(
        &self,
        now: Timestamp,
        claim_until: Timestamp,
        max: u32,
    ) -> Result<Vec<Retry>, SnapshotsError> {
        self.call(self.options.timeouts.write, || {
            self.claim_due_retries(now, claim_until, max)
        })
        .await
    }

    async fn forget_lapsed(&self, params: &LapsedParams) -> Result<Lapsed, SnapshotsError> {
        self.call(self.options.timeouts.write, || self.forget_lapsed_slice(params))
            .await
    }

    async fn mark_active(&self, seen: &[(RecordRef, Timestamp)]) -> Result<(), SnapshotsError> {
        self.call(self.options.timeouts.write, || self.note_active(seen))
            .await
    }

    async fn claim_stale(&self, params: &PrefetchParams) -> Result<Vec<Prefetched>, SnapshotsError> {
        if params.tiers.is_empty() || params.tiers.len() > MAX_TIERS {
            return Err(SnapshotsError::Invalid(format!(
                "{} tiers were requested; 1 to {MAX_TIERS} are allowed",
                params.tiers.len()
            )));
        }
        self.call(self.options.timeouts.write, || self.claim_candidates(params))
            .await
    }

    async fn counts(&self, params: &CountParams) -> Result<Counts, SnapshotsError> {
        if params.tiers.is_empty() {
            return Err(SnapshotsError::Invalid(
                "counting needs at least one tier".to_owned(),
            ));
        }
        self.call(self.options.timeouts.bulk, || self.count_slice(params))
            .await
    }

    async fn status_counts(&self, source: &SourceId, limit: u32) -> Result<StatusCounts, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || self.count_status(source, limit))
            .await
    }

    async fn history_sources(&self) -> Result<Vec<SourceId>, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || self.sources_with_history())
            .await
    }

    async fn history(&self, params: &HistoryParams) -> Result<Vec<HistoryRow>, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || self.history_slice(params))
            .await
    }

    async fn delete_history(&self, ids: &[u64]) -> Result<u64, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || self.forget_history(ids))
            .await
    }

    async fn restore_history(
        &self,
        rows: &[HistoryRow],
        keep_until: Timestamp,
    ) -> Result<u64, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || {
            self.put_history_back(rows, keep_until)
        })
        .await
    }

    async fn drop_restored(&self, now: Timestamp, max: u32) -> Result<u64, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || self.forget_restored(now, max))
            .await
    }

    async fn record_history(&self, record: &RecordRef, max: u32) -> Result<Vec<HistoryRow>, SnapshotsError> {
        self.call(self.options.timeouts.bulk, || self.history_of(record, max))
            .await
    }

    async fn handled(
        &self,
        positions: &[DeadLetterPosition],
    ) -> Result<Vec<Option<DeadLetterMark>>, SnapshotsError> {
        self.call(self.options.timeouts.write, || self.marks_of(positions))
            .await
    }

    async fn mark_handled(&self, marks: &[DeadLetterMark]) -> Result<u64, SnapshotsError> {
        self.call(self.options.timeouts.write, || self.put_marks(marks))
            .await
    }

    async fn forget_handled(&self, partition: u32, offset: u64, max: u32) -> Result<u64, SnapshotsError> {
        self.call(self.options.timeouts.write, || {
            self.forget_marks(partition, offset, max)
        })
        .await
    }

    async fn check(&self) -> Result<(), SnapshotsError> {
        self.call(self.options.timeouts.write, || self.check_schema())
            .await
    }

    async fn migrate(&self) -> Result<(), SnapshotsError> {
        self.call(self.options.timeouts.migrate, || self.migrate_schema())
            .await
    }
}
