//! Stores and logs that fail, or become unavailable in the middle of things.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::budget::{BudgetView, LimitedBy};
use tidegate_core::ids::{Owner, RecordId, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_log::{
    Batch, CommitOutcome, CommittedOffset, ConsumeParams, Consumer, Delivered, Lag, Log, LogError,
    LogSettings, Position, Record, Topic,
};
use tidegate_snapshots::{
    CountParams, Counts, DeadLetterMark, DeadLetterPosition, HistoryParams, HistoryRow, Lapsed, LapsedParams,
    PrefetchParams, Prefetched, RecordRef, Retry, Row, Snapshots, SnapshotsError, StatusCounts, Write,
    WriteOutcome,
};
use tidegate_store::StoreError;
use tidegate_store::refresh::{RefreshStore, TakeOutcome};

#[derive(Debug)]
pub(crate) struct FaultySnapshots {
    inner: Arc<dyn Snapshots>,
    pub(crate) unavailable: AtomicBool,
    /// Writes that it rejected.
    pub(crate) refused: AtomicU64,
    /// Rejects every write of this key, alone or in a batch.
    pub(crate) bad_key: Mutex<Option<String>>,
    /// Blocks writes of failures.
    pub(crate) holds_failures: AtomicBool,
}

impl FaultySnapshots {
    pub(crate) fn new(inner: Arc<dyn Snapshots>) -> Self {
        Self {
            inner,
            unavailable: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            bad_key: Mutex::default(),
            holds_failures: AtomicBool::new(false),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<dyn Snapshots> {
        &self.inner
    }

    fn here(&self) -> Result<&dyn Snapshots, SnapshotsError> {
        match self.unavailable.load(Ordering::SeqCst) {
            false => Ok(&*self.inner),
            true => Err(SnapshotsError::Unavailable {
                database: "the test's database".into(),
                reason: "made unavailable".into(),
            }),
        }
    }
}

#[async_trait]
impl Snapshots for FaultySnapshots {
    async fn read(&self, records: &[RecordRef]) -> Result<Vec<Row>, SnapshotsError> {
        self.here()?.read(records).await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, SnapshotsError> {
        if self.here().is_err() {
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        let fails = writes.iter().any(|write| matches!(write, Write::Failed(_)));
        while fails && self.holds_failures.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let bad = self.bad_key.lock().unwrap().clone();
        let is_bad = |write: &Write| {
            matches!(write, Write::Full { .. } | Write::Parked(_))
                && bad.as_deref() == Some(write.record().key.as_str())
        };
        if writes.iter().any(is_bad) {
            return Err(SnapshotsError::Rejected {
                database: "the test's database".into(),
                reason: "a row that does not fit".into(),
            });
        }
        self.here()?.write(writes).await
    }

    async fn claim_retries(
        &self,
        now: Timestamp,
        claim_until: Timestamp,
        max: u32,
    ) -> Result<Vec<Retry>, SnapshotsError> {
        self.here()?.claim_retries(now, claim_until, max).await
    }

    async fn forget_lapsed(&self, params: &LapsedParams) -> Result<Lapsed, SnapshotsError> {
        self.here()?.forget_lapsed(params).await
    }

    async fn mark_active(&self, seen: &[(RecordRef, Timestamp)]) -> Result<(), SnapshotsError> {
        self.here()?.mark_active(seen).await
    }

    async fn claim_stale(&self, params: &PrefetchParams) -> Result<Vec<Prefetched>, SnapshotsError> {
        self.here()?.claim_stale(params).await
    }

    async fn counts(&self, params: &CountParams) -> Result<Counts, SnapshotsError> {
        self.here()?.counts(params).await
    }

    async fn status_counts(&self, source: &SourceId, limit: u32) -> Result<StatusCounts, SnapshotsError> {
        self.here()?.status_counts(source, limit).await
    }

    async fn history_sources(&self) -> Result<Vec<SourceId>, SnapshotsError> {
        self.here()?.history_sources().await
    }

    async fn history(&self, params: &HistoryParams) -> Result<Vec<HistoryRow>, SnapshotsError> {
        self.here()?.history(params).await
    }

    async fn delete_history(&self, ids: &[u64]) -> Result<u64, SnapshotsError> {
        self.here()?.delete_history(ids).await
    }

    async fn restore_history(
        &self,
        rows: &[HistoryRow],
        keep_until: Timestamp,
    ) -> Result<u64, SnapshotsError> {
        self.here()?.restore_history(rows, keep_until).await
    }

    async fn drop_restored(&self, now: Timestamp, max: u32) -> Result<u64, SnapshotsError> {
        self.here()?.drop_restored(now, max).await
    }

    async fn record_history(&self, record: &RecordRef, max: u32) -> Result<Vec<HistoryRow>, SnapshotsError> {
        self.here()?.record_history(record, max).await
    }

    async fn handled(
        &self,
        positions: &[DeadLetterPosition],
    ) -> Result<Vec<Option<DeadLetterMark>>, SnapshotsError> {
        self.here()?.handled(positions).await
    }

    async fn mark_handled(&self, marks: &[DeadLetterMark]) -> Result<u64, SnapshotsError> {
        self.here()?.mark_handled(marks).await
    }

    async fn forget_handled(&self, partition: u32, offset: u64, max: u32) -> Result<u64, SnapshotsError> {
        self.here()?.forget_handled(partition, offset, max).await
    }

    async fn check(&self) -> Result<(), SnapshotsError> {
        self.here()?.check().await
    }

    async fn migrate(&self) -> Result<(), SnapshotsError> {
        self.here()?.migrate().await
    }
}

#[derive(Debug)]
pub(crate) struct FaultyStore {
    inner: Arc<dyn RefreshStore>,
    pub(crate) unavailable: AtomicBool,
    /// Grants LOW no tokens.
    pub(crate) no_low: AtomicBool,
    /// Tokens that it granted.
    pub(crate) taken: AtomicU64,
    /// Calls that found it unavailable.
    pub(crate) refused: AtomicU64,
}

impl FaultyStore {
    pub(crate) fn new(inner: Arc<dyn RefreshStore>) -> Self {
        Self {
            inner,
            unavailable: AtomicBool::new(false),
            no_low: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<dyn RefreshStore> {
        &self.inner
    }

    fn here(&self) -> Result<&dyn RefreshStore, StoreError> {
        match self.unavailable.load(Ordering::SeqCst) {
            false => Ok(&*self.inner),
            true => {
                self.refused.fetch_add(1, Ordering::SeqCst);
                Err(StoreError::Unavailable {
                    server: "the test's store".into(),
                    reason: "made unavailable".into(),
                })
            }
        }
    }
}

#[async_trait]
impl RefreshStore for FaultyStore {
    async fn request(&self, asks: Vec<(RecordId, RequestParams)>) -> Result<Vec<RequestOutcome>, StoreError> {
        self.here()?.request(asks).await
    }

    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        self.here()?.confirm_sent(sent).await
    }

    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        self.here()?.send_failed(unsent).await
    }

    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> Result<Vec<BeginOutcome>, StoreError> {
        self.here()?.begin(begun).await
    }

    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> Result<Vec<bool>, StoreError> {
        self.here()?.extend(claims).await
    }

    async fn abandon(&self, claims: Vec<(RecordId, Version, Owner)>) -> Result<Vec<bool>, StoreError> {
        self.here()?.abandon(claims).await
    }

    async fn settle(&self, settled: Vec<(RecordId, SettleParams)>) -> Result<Vec<SettleOutcome>, StoreError> {
        self.here()?.settle(settled).await
    }

    async fn look(&self, records: Vec<RecordId>) -> Result<Vec<Option<RecordState>>, StoreError> {
        self.here()?.look(records).await
    }

    async fn take(
        &self,
        target: &TargetId,
        priority: Priority,
        max_tokens: u64,
    ) -> Result<TakeOutcome, StoreError> {
        let store = self.here()?;
        if priority == Priority::Low && self.no_low.load(Ordering::SeqCst) {
            return Ok(TakeOutcome::Limited {
                wait: Millis(5),
                by: LimitedBy::LowCap,
            });
        }
        let outcome = store.take(target, priority, max_tokens).await?;
        if let TakeOutcome::Taken { tokens, .. } = outcome {
            self.taken.fetch_add(tokens, Ordering::SeqCst);
        }
        Ok(outcome)
    }

    async fn hold(&self, target: &TargetId, until_in: Millis) -> Result<Millis, StoreError> {
        self.here()?.hold(target, until_in).await
    }

    async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        self.here()?.lift(target).await
    }

    async fn budget(&self, target: &TargetId) -> Result<BudgetView, StoreError> {
        self.here()?.budget(target).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.here()?.now().await
    }
}

/// How appends end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Confirmed,
    /// The records arrive, but the confirmation comes too late.
    Late,
    /// The records are lost, and the confirmation comes too late.
    Lost,
}

#[derive(Debug)]
pub(crate) struct FaultyLog {
    inner: Arc<dyn Log>,
    pub(crate) fate: Mutex<Fate>,
    /// Topics whose lag cannot be measured.
    pub(crate) hidden: Mutex<Vec<Topic>>,
    /// How often such a measurement failed.
    pub(crate) failed_looks: AtomicU64,
    /// The consumer of LOW gets nothing.
    pub(crate) low_stands_back: Arc<AtomicBool>,
}

impl FaultyLog {
    pub(crate) fn new(inner: Arc<dyn Log>) -> Self {
        Self {
            inner,
            fate: Mutex::new(Fate::Confirmed),
            hidden: Mutex::default(),
            failed_looks: AtomicU64::new(0),
            low_stands_back: Arc::default(),
        }
    }
}

/// A consumer whose pauses a test can observe.
#[derive(Debug)]
struct SeenConsumer {
    inner: Box<dyn Consumer>,
    paused: Arc<AtomicBool>,
}

#[async_trait]
impl Consumer for SeenConsumer {
    async fn next(&self, max: usize, wait: Duration) -> Result<Batch, LogError> {
        self.inner.next(max, wait).await
    }

    async fn commit(&self, offsets: &[CommittedOffset]) -> Result<Vec<CommitOutcome>, LogError> {
        self.inner.commit(offsets).await
    }

    fn set_paused(&self, paused: bool) {
        self.inner.set_paused(paused);
        self.paused.store(paused, Ordering::SeqCst);
    }

    async fn close(self: Box<Self>) {
        self.inner.close().await;
    }
}

#[async_trait]
impl Log for FaultyLog {
    fn settings(&self) -> &LogSettings {
        self.inner.settings()
    }

    async fn append(&self, records: Vec<Record>) -> Vec<Result<Position, LogError>> {
        let (fate, count) = (*self.fate.lock().unwrap(), records.len());
        if fate == Fate::Confirmed {
            return self.inner.append(records).await;
        }
        if fate == Fate::Late {
            self.inner.append(records).await;
        }
        vec![Err(LogError::Timeout(1_000)); count]
    }

    async fn consume(&self, params: ConsumeParams) -> Result<Box<dyn Consumer>, LogError> {
        if params.topic != Topic::Low {
            return self.inner.consume(params).await;
        }
        Ok(Box::new(SeenConsumer {
            inner: self.inner.consume(params).await?,
            paused: self.low_stands_back.clone(),
        }))
    }

    async fn lag(&self, topic: Topic, group: &str) -> Result<Lag, LogError> {
        if !self.hidden.lock().unwrap().contains(&topic) {
            return self.inner.lag(topic, group).await;
        }
        self.failed_looks.fetch_add(1, Ordering::SeqCst);
        Err(LogError::Unavailable {
            server: "the test's log".into(),
            reason: "its lag cannot be seen".into(),
        })
    }

    async fn read(&self, topic: Topic, from: Position, max: usize) -> Result<Vec<Delivered>, LogError> {
        self.inner.read(topic, from, max).await
    }

    async fn check(&self) -> Result<(), LogError> {
        self.inner.check().await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
