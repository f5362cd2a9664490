//! Reads records: snapshot and status of a whole batch in one statement.

use std::collections::HashMap;

use super::SqlSnapshots;
use super::driver::{Fault, SqlRow};
use super::record::{blob, hash, number, record, state, time, version};
use super::statement::Statement;
use crate::rows::{RecordRef, Row, Snapshot, Status};

/// Limit: records in one statement; further ones go into further statements.
const MAX_RECORDS: usize = 1_000;

/// Columns of a status, in the order in which [`status_at`] reads them.
pub(super) const STATUS_COLUMNS: &str = "version, event, next_retry_at, created_at, updated_at, state, last_error_code, \
     last_error_message, fail_count, absent";

impl SqlSnapshots {
    pub(super) async fn read_rows(&self, records: &[RecordRef]) -> Result<Vec<Row>, Fault> {
        let mut found: HashMap<RecordRef, Row> = HashMap::with_capacity(records.len());
        for portion in records.chunks(MAX_RECORDS) {
            let mut session = self.driver.reader().await?;
            for row in session.fetch(self.select_rows(portion)).await? {
                let slot = found.entry(record(&row, 0)?).or_default();
                take(slot, &row)?;
            }
        }
        let rows = records.iter().map(|record| {
            let mut row = found.get(record).cloned().unwrap_or_default();
            drop_outdated_status(&mut row);
            row
        });
        Ok(rows.collect())
    }

    pub(super) fn select_rows<'a>(&self, records: &'a [RecordRef]) -> Statement<'a> {
        Statement::new(
            self.driver.dialect(),
            "SELECT source, record_key, version, data, last_checked_at, last_updated_at, active_at, \
                NULL, NULL, NULL, NULL, NULL, hash \
             FROM snapshot WHERE ",
        )
        .records("", records)
        .push(" UNION ALL SELECT source, record_key, ")
        .push(STATUS_COLUMNS)
        .push(", NULL FROM update_status WHERE ")
        .records("", records)
    }
}

/// Adds the content of a row of either table.
fn take(slot: &mut Row, row: &SqlRow) -> Result<(), Fault> {
    if row.maybe_text(7)?.is_some() {
        slot.status = Some(status_at(row, 2)?);
        return Ok(());
    }
    slot.active_at = row.maybe_int(6)?.map(time);
    if let (Some(data), Some(bytes)) = (row.maybe_bytes(3)?, row.maybe_bytes(12)?) {
        slot.snapshot = Some(Snapshot {
            data: data.into(),
            hash: hash(bytes)?,
            version: version(row.int(2)?),
            last_checked_at: time(row.int(4)?),
            last_updated_at: time(row.int(5)?),
        });
    }
    Ok(())
}

/// A status from columns in the order of [`STATUS_COLUMNS`].
pub(super) fn status_at(row: &SqlRow, index: usize) -> Result<Status, Fault> {
    Ok(Status {
        version: version(row.int(index)?),
        event: blob(row.maybe_bytes(index + 1)?),
        next_retry_at: row.maybe_int(index + 2)?.map(time),
        created_at: time(row.int(index + 3)?),
        updated_at: time(row.int(index + 4)?),
        state: state(&row.text(index + 5)?)?,
        last_error_code: row.text(index + 6)?,
        last_error_message: row.text(index + 7)?,
        fail_count: number(row.int(index + 8)?),
        absent: row.int(index + 9)? != 0,
    })
}

/// A failure written during a later success, for a record that had no row yet, can stay behind. It is obsolete.
fn drop_outdated_status(row: &mut Row) {
    if let (Some(snapshot), Some(status)) = (&row.snapshot, &row.status)
        && status.version < snapshot.version
    {
        row.status = None;
    }
}
