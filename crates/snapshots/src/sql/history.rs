//! The history: rows for the archive, and restored rows.

use tidegate_core::ids::SourceId;
use tidegate_core::time::Timestamp;

use super::SqlSnapshots;
use super::driver::{Fault, Session, SqlRow};
use super::record::{column, hash, number, record, source, time, version};
use super::statement::{Statement, Value, portions};
use crate::rows::{HistoryParams, HistoryRow, RecordRef, Snapshot};

/// Columns of a row, in the order in which [`row_at`] reads them.
const COLUMNS: &str =
    "id, source, record_key, version, hash, last_checked_at, last_updated_at, replaced_at, data";
/// Limit: ids in one statement.
const MAX_IDS: usize = 1_000;
/// Limit: sources in one listing.
const MAX_SOURCES: usize = 10_000;

impl SqlSnapshots {
    /// Skips from source to source by the index, without reading the rows in between.
    pub(super) async fn sources_with_history(&self) -> Result<Vec<SourceId>, Fault> {
        let mut session = self.driver.reader().await?;
        let mut sources: Vec<SourceId> = Vec::new();
        while sources.len() < MAX_SOURCES {
            let mut select = Statement::new(self.driver.dialect(), "SELECT source FROM snapshot_history");
            let last = sources.last().cloned();
            if let Some(last) = &last {
                select = select.push(" WHERE source > ").bytes(last.as_str().as_bytes());
            }
            let rows = session.fetch(select.push(" ORDER BY source LIMIT 1")).await?;
            let Some(row) = rows.first() else { break };
            sources.push(source(row.bytes(0)?)?);
        }
        Ok(sources)
    }

    pub(super) async fn history_slice(&self, params: &HistoryParams) -> Result<Vec<HistoryRow>, Fault> {
        let mut session = self.driver.reader().await?;
        let ids = self.slice_ids(session.as_mut(), params).await?;
        let mut rows = Vec::with_capacity(ids.len());
        for portion in ids.chunks(MAX_IDS) {
            let select = Statement::new(self.driver.dialect(), "SELECT ")
                .push(COLUMNS)
                .push(" FROM snapshot_history WHERE id IN (")
                .values(portion.iter().map(|id| Value::Int(*id)))
                .push(")");
            for row in session.fetch(select).await? {
                rows.push(row_at(&row)?);
            }
        }
        rows.sort_by_key(HistoryRow::cursor);
        Ok(rows)
    }

    /// The row ids of the slice. Checks sizes before it reads any data, so that it never loads hundreds of rows of
    /// megabytes.
    async fn slice_ids(&self, session: &mut dyn Session, params: &HistoryParams) -> Result<Vec<i64>, Fault> {
        let mut ids = Vec::new();
        let mut bytes = 0;
        for row in session.fetch(self.select_slice(params)).await? {
            bytes += number(row.int(1)?);
            if bytes > params.max_bytes as u64 && !ids.is_empty() {
                break;
            }
            ids.push(row.int(0)?);
        }
        Ok(ids)
    }

    pub(super) fn select_slice<'a>(&self, params: &'a HistoryParams) -> Statement<'a> {
        let dialect = self.driver.dialect();
        let from = params
            .after
            .map_or(params.from, |after| params.from.max(after.replaced_at));
        let mut select = Statement::new(dialect, "SELECT id, ")
            .push(&dialect.byte_length("data"))
            .push(" FROM snapshot_history WHERE ")
            .source(params.source.as_str())
            .push(" AND replaced_at >= ")
            .int(column(from.0))
            .push(" AND replaced_at < ")
            .int(column(params.before.0))
            .push(" AND restored_until IS NULL");
        if let Some(after) = params.after {
            select = select
                .push(" AND (replaced_at > ")
                .int(column(after.replaced_at.0))
                .push(" OR id > ")
                .int(column(after.id))
                .push(")");
        }
        select
            .push(" ORDER BY replaced_at, id LIMIT ")
            .int(params.max_rows.into())
    }

    pub(super) async fn forget_history(&self, ids: &[u64]) -> Result<u64, Fault> {
        let mut session = self.driver.begin().await?;
        let mut forgotten = 0;
        for portion in ids.chunks(MAX_IDS) {
            let delete = Statement::new(
                self.driver.dialect(),
                "DELETE FROM snapshot_history WHERE id IN (",
            )
            .values(portion.iter().map(|id| Value::Int(column(*id))))
            .push(")");
            forgotten += session.run(delete).await?;
        }
        session.commit().await?;
        Ok(forgotten)
    }

    pub(super) async fn put_history_back(
        &self,
        rows: &[HistoryRow],
        keep_until: Timestamp,
    ) -> Result<u64, Fault> {
        let dialect = self.driver.dialect();
        let values: Vec<_> = rows.iter().map(|row| restored(row, keep_until)).collect();
        let mut session = self.driver.begin().await?;
        let mut restored = 0;
        for rows in portions(&values) {
            let insert = Statement::new(dialect, dialect.insert_or_ignore())
                .push("snapshot_history (")
                .push(COLUMNS)
                .push(", restored_until) VALUES ")
                .rows(rows)
                .push(dialect.or_ignore());
            restored += session.run(insert).await?;
        }
        // The rows come from another database with higher ids.
        let last = rows.iter().map(|row| column(row.id)).max();
        if let (Some(last), Some([set, below])) = (last, dialect.beyond_id()) {
            let beyond = Statement::new(dialect, set).int(last).push(below).int(last);
            session.fetch(beyond).await?;
        }
        session.commit().await?;
        Ok(restored)
    }

    pub(super) async fn forget_restored(&self, now: Timestamp, max: u32) -> Result<u64, Fault> {
        let mut ids = Vec::new();
        for row in self
            .driver
            .reader()
            .await?
            .fetch(self.select_restored(now, max))
            .await?
        {
            ids.push(number(row.int(0)?));
        }
        self.forget_history(&ids).await
    }

    pub(super) fn select_restored(&self, now: Timestamp, max: u32) -> Statement<'static> {
        Statement::new(
            self.driver.dialect(),
            "SELECT id FROM snapshot_history WHERE restored_until <= ",
        )
        .int(column(now.0))
        .push(" ORDER BY restored_until LIMIT ")
        .int(max.into())
    }

    pub(super) async fn history_of(&self, record: &RecordRef, max: u32) -> Result<Vec<HistoryRow>, Fault> {
        let select = Statement::new(self.driver.dialect(), "SELECT ")
            .push(COLUMNS)
            .push(" FROM snapshot_history WHERE ")
            .source(record.source.as_str())
            .push(" AND record_key = ")
            .bytes(record.key.as_str().as_bytes())
            .push(" ORDER BY version DESC, hash LIMIT ")
            .int(max.into());
        let rows = self.driver.reader().await?.fetch(select).await?;
        rows.iter().map(row_at).collect()
    }
}

fn row_at(row: &SqlRow) -> Result<HistoryRow, Fault> {
    Ok(HistoryRow {
        id: number(row.int(0)?),
        record: record(row, 1)?,
        snapshot: Snapshot {
            version: version(row.int(3)?),
            hash: hash(row.bytes(4)?)?,
            last_checked_at: time(row.int(5)?),
            last_updated_at: time(row.int(6)?),
            data: row.bytes(8)?.into(),
        },
        replaced_at: time(row.int(7)?),
    })
}

/// A row with its old id, so that it is the same row for everybody who knows it.
fn restored(row: &HistoryRow, keep_until: Timestamp) -> Vec<Value<'_>> {
    vec![
        Value::Int(column(row.id)),
        Value::Bytes(row.record.source.as_str().as_bytes()),
        Value::Bytes(row.record.key.as_str().as_bytes()),
        Value::Int(column(row.snapshot.version.0)),
        Value::Bytes(&row.snapshot.hash),
        Value::Int(column(row.snapshot.last_checked_at.0)),
        Value::Int(column(row.snapshot.last_updated_at.0)),
        Value::Int(column(row.replaced_at.0)),
        Value::Bytes(&row.snapshot.data),
        Value::Int(column(keep_until.0)),
    ]
}
