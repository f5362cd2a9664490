//! The tools of a case: its own database, and short verbs for every transition.
//!
//! The verbs panic when the database fails, so that case bodies show only their subject.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::{Millis, Timestamp};

use crate::*;

/// The start time of every case.
pub const T0: Timestamp = Timestamp(1_706_000_000_000);

/// Provides databases.
#[async_trait]
pub trait Backend: Send + Sync {
    /// A database without any tables, which nobody else uses.
    async fn fresh(&self) -> Arc<dyn Database>;

    /// Like `fresh`, on a server that nobody else uses: the case will restart it.
    async fn fresh_to_restart(&self) -> Arc<dyn Database> {
        self.fresh().await
    }
}

/// One database, in which a case may do anything.
#[async_trait]
pub trait Database: Send + Sync {
    /// Opens it as a process would; cases may call this several times.
    async fn open(&self, options: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, SnapshotsError>;

    /// Runs a statement that changes something, bypassing the `Snapshots` trait.
    async fn execute(&self, sql: &'static str);

    /// Restarts its server; does nothing where there is none.
    async fn restart(&self) {}
}

pub struct Harness {
    // Dropped in this order: the handle before the database it uses.
    pub snapshots: Arc<dyn Snapshots>,
    pub database: Arc<dyn Database>,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("snapshots", &self.snapshots)
            .finish_non_exhaustive()
    }
}

/// Long timeouts: a case does not test speed, and runs beside many others.
pub(super) fn patient() -> SnapshotsOptions {
    let minute = Millis::from_secs(60);
    SnapshotsOptions {
        timeouts: Timeouts {
            read: minute,
            write: minute,
            bulk: minute,
            migrate: minute,
        },
        connections: 4,
        ..SnapshotsOptions::default()
    }
}

impl Harness {
    /// A fresh database with its schema.
    pub async fn new(backend: &dyn Backend) -> Self {
        Self::with(backend, patient()).await
    }

    pub async fn with(backend: &dyn Backend, options: SnapshotsOptions) -> Self {
        Self::on(backend.fresh().await, options).await
    }

    pub async fn on(database: Arc<dyn Database>, options: SnapshotsOptions) -> Self {
        let snapshots = database.open(options).await.expect("the database opens");
        snapshots.migrate().await.expect("the schema is made");
        Self { snapshots, database }
    }

    /// The same database, opened once more.
    pub async fn another(&self) -> Arc<dyn Snapshots> {
        self.database
            .open(patient())
            .await
            .expect("the database opens again")
    }

    pub async fn write(&self, writes: &[Write]) -> Vec<WriteOutcome> {
        self.snapshots.write(writes).await.expect("a write")
    }

    pub async fn write_one(&self, write: Write) -> WriteOutcome {
        let outcomes = self.write(&[write]).await;
        assert_eq!(outcomes.len(), 1, "one outcome for one write");
        outcomes[0]
    }

    pub async fn row(&self, record: &RecordRef) -> Row {
        let mut rows = self
            .snapshots
            .read(std::slice::from_ref(record))
            .await
            .expect("a read");
        assert_eq!(rows.len(), 1, "one row for one record");
        rows.remove(0)
    }

    pub async fn snapshot(&self, record: &RecordRef) -> Snapshot {
        self.row(record).await.snapshot.expect("a snapshot")
    }

    pub async fn status(&self, record: &RecordRef) -> Status {
        self.row(record).await.status.expect("a status")
    }

    pub async fn active(&self, record: &RecordRef, at: Timestamp) {
        let seen = [(record.clone(), at)];
        self.snapshots.mark_active(&seen).await.expect("activity");
    }

    /// Claims up to `max` and returns the keys, in order.
    pub async fn stale(&self, params: &PrefetchParams) -> Vec<String> {
        let claimed = self.snapshots.claim_stale(params).await.expect("a claim");
        claimed
            .into_iter()
            .map(|claimed| claimed.record.key.to_string())
            .collect()
    }

    pub async fn retries(&self, now: Timestamp, until: Timestamp, max: u32) -> Vec<Retry> {
        self.snapshots
            .claim_retries(now, until, max)
            .await
            .expect("a claim")
    }

    pub async fn history_of(&self, record: &RecordRef) -> Vec<HistoryRow> {
        self.snapshots.record_history(record, 100).await.expect("history")
    }
}

pub(super) fn source(name: &str) -> SourceId {
    SourceId::new(name).expect("a source")
}

pub(super) fn record(key: impl AsRef<str>) -> RecordRef {
    RecordRef {
        source: source("characters"),
        key: RecordKey::new(key).expect("a key"),
    }
}

pub(super) fn after(secs: u64) -> Timestamp {
    T0 + Millis::from_secs(secs)
}

pub(super) fn before(secs: u64) -> Timestamp {
    T0 - Millis::from_secs(secs)
}

/// A hash that stands for `text`; how it is made does not matter here.
pub(super) fn hash(text: &[u8]) -> [u8; 32] {
    let mut hash = [0_u8; 32];
    for (index, byte) in text.iter().enumerate() {
        let place = &mut hash[index % 32];
        *place = place.wrapping_mul(31).wrapping_add(*byte).wrapping_add(1);
    }
    hash
}

pub(super) fn full(record: &RecordRef, version: u64, data: impl Into<Bytes>, at: Timestamp) -> Write {
    let data = data.into();
    Write::Full {
        record: record.clone(),
        version: Version(version),
        hash: hash(&data),
        data,
        at,
    }
}

pub(super) fn failure(record: &RecordRef, version: u64, at: Timestamp) -> Failure {
    Failure {
        record: record.clone(),
        version: Version(version),
        state: StatusState::Retrying,
        absent: false,
        error_code: "API_5XX".to_owned(),
        error_message: "the upstream answered 503".to_owned(),
        next_retry_at: Some(at + Millis::from_secs(60)),
        event: None,
        at,
    }
}

pub(super) fn failed(record: &RecordRef, version: u64, at: Timestamp) -> Write {
    Write::Failed(failure(record, version, at))
}
