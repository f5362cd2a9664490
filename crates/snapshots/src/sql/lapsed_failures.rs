//! Deletes lapsed failures: of records that were never fetched, and that nobody requested since a request was
//! possible again. Otherwise a caller that invents keys would fill the table.

use std::collections::HashSet;

use tidegate_core::time::Millis;

use super::SqlSnapshots;
use super::driver::{Fault, Session};
use super::record::{column, record, time};
use super::statement::Statement;
use super::steps::MAX_NAMED;
use crate::rows::{Lapsed, LapsedParams, RecordRef};

impl SqlSnapshots {
    pub(super) async fn forget_lapsed_slice(&self, params: &LapsedParams) -> Result<Lapsed, Fault> {
        let mut session = self.driver.begin().await?;
        let mut records = Vec::new();
        let mut last = params.from;
        for row in session.fetch(self.select_lapsed(params)).await? {
            records.push(record(&row, 0)?);
            last = time(row.int(2)?);
        }
        let mut forgotten = 0;
        for portion in records.chunks(MAX_NAMED) {
            let fetched = self.fetched(session.as_mut(), portion).await?;
            let unknown: Vec<&RecordRef> = portion
                .iter()
                .filter(|record| !fetched.contains(record))
                .collect();
            if unknown.is_empty() {
                continue;
            }
            let delete = Statement::new(self.driver.dialect(), "DELETE FROM update_status WHERE ")
                .records("", unknown)
                .push(" AND state = 'FAILED' AND next_retry_at < ")
                .int(column(params.before.0));
            forgotten += session.run(delete).await?;
        }
        session.commit().await?;
        let full = records.len() >= params.max as usize && params.max > 0;
        // One timestamp may have more rows than a slice takes; each deletion makes room for the others.
        let stuck = forgotten == 0 && last == params.from;
        Ok(Lapsed {
            forgotten,
            next: full.then(|| if stuck { last + Millis(1) } else { last }),
        })
    }

    pub(super) fn select_lapsed(&self, params: &LapsedParams) -> Statement<'static> {
        let dialect = self.driver.dialect();
        Statement::new(
            dialect,
            "SELECT source, record_key, next_retry_at FROM update_status \
             WHERE state = 'FAILED' AND next_retry_at >= ",
        )
        .int(column(params.from.0))
        .push(" AND next_retry_at < ")
        .int(column(params.before.0))
        .push(" ORDER BY next_retry_at LIMIT ")
        .int(params.max.into())
        .push(dialect.skip_locked())
    }

    /// Those that have a snapshot.
    async fn fetched(
        &self,
        session: &mut dyn Session,
        records: &[RecordRef],
    ) -> Result<HashSet<RecordRef>, Fault> {
        let select = Statement::new(
            self.driver.dialect(),
            "SELECT source, record_key FROM snapshot WHERE hash IS NOT NULL AND ",
        )
        .records("", records);
        let rows = session.fetch(select).await?;
        rows.iter().map(|row| record(row, 0)).collect()
    }
}
