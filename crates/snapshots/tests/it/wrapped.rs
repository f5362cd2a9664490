//! A backend between a test and SQLite that does one thing differently.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::ids::SourceId;
use tidegate_core::time::Timestamp;
use tidegate_snapshots::*;

/// What it does differently; by default nothing.
#[async_trait]
pub(crate) trait Fault: Send + Sync + std::fmt::Debug + 'static {
    fn before_write(&self, writes: &[Write]) -> Vec<Write> {
        writes.to_vec()
    }

    fn after_write(&self, _outcomes: &mut Vec<WriteOutcome>) {}

    async fn after_claim(&self, _inner: &dyn Snapshots, _claimed: &[Retry]) {}

    fn after_stale(&self, _claimed: &mut Vec<Prefetched>) {}

    fn before_delete_history(&self, _ids: &[u64]) -> Result<(), SnapshotsError> {
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct Wrapped<F> {
    pub(crate) inner: Arc<dyn Snapshots>,
    pub(crate) fault: F,
}

#[async_trait]
impl<F: Fault> Snapshots for Wrapped<F> {
    async fn read(&self, records: &[RecordRef]) -> Result<Vec<Row>, SnapshotsError> {
        self.inner.read(records).await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, SnapshotsError> {
        let mut outcomes = self.inner.write(&self.fault.before_write(writes)).await?;
        self.fault.after_write(&mut outcomes);
        Ok(outcomes)
    }

    async fn claim_retries(
        &self,
        now: Timestamp,
        claim_until: Timestamp,
        max: u32,
    ) -> Result<Vec<Retry>, SnapshotsError> {
        let claimed = self.inner.claim_retries(now, claim_until, max).await?;
        self.fault.after_claim(self.inner.as_ref(), &claimed).await;
        Ok(claimed)
    }

    async fn forget_lapsed(&self, params: &LapsedParams) -> Result<Lapsed, SnapshotsError> {
        self.inner.forget_lapsed(params).await
    }

    async fn mark_active(&self, seen: &[(RecordRef, Timestamp)]) -> Result<(), SnapshotsError> {
        self.inner.mark_active(seen).await
    }

    async fn claim_stale(&self, params: &PrefetchParams) -> Result<Vec<Prefetched>, SnapshotsError> {
        let mut claimed = self.inner.claim_stale(params).await?;
        self.fault.after_stale(&mut claimed);
        Ok(claimed)
    }

    async fn counts(&self, params: &CountParams) -> Result<Counts, SnapshotsError> {
        self.inner.counts(params).await
    }

    async fn status_counts(&self, source: &SourceId, limit: u32) -> Result<StatusCounts, SnapshotsError> {
        self.inner.status_counts(source, limit).await
    }

    async fn history_sources(&self) -> Result<Vec<SourceId>, SnapshotsError> {
        self.inner.history_sources().await
    }

    async fn history(&self, params: &HistoryParams) -> Result<Vec<HistoryRow>, SnapshotsError> {
        self.inner.history(params).await
    }

    async fn delete_history(&self, ids: &[u64]) -> Result<u64, SnapshotsError> {
        self.fault.before_delete_history(ids)?;
        self.inner.delete_history(ids).await
    }

    async fn restore_history(
        &self,
        rows: &[HistoryRow],
        keep_until: Timestamp,
    ) -> Result<u64, SnapshotsError> {
        self.inner.restore_history(rows, keep_until).await
    }

    async fn drop_restored(&self, now: Timestamp, max: u32) -> Result<u64, SnapshotsError> {
        self.inner.drop_restored(now, max).await
    }

    async fn record_history(&self, record: &RecordRef, max: u32) -> Result<Vec<HistoryRow>, SnapshotsError> {
        self.inner.record_history(record, max).await
    }

    async fn handled(
        &self,
        positions: &[DeadLetterPosition],
    ) -> Result<Vec<Option<DeadLetterMark>>, SnapshotsError> {
        self.inner.handled(positions).await
    }

    async fn mark_handled(&self, marks: &[DeadLetterMark]) -> Result<u64, SnapshotsError> {
        self.inner.mark_handled(marks).await
    }

    async fn forget_handled(&self, partition: u32, offset: u64, max: u32) -> Result<u64, SnapshotsError> {
        self.inner.forget_handled(partition, offset, max).await
    }

    async fn check(&self) -> Result<(), SnapshotsError> {
        self.inner.check().await
    }

    async fn migrate(&self) -> Result<(), SnapshotsError> {
        self.inner.migrate().await
    }
}
