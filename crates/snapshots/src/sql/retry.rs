//! Claims records whose retry is due.

use tidegate_core::time::Timestamp;

use super::SqlSnapshots;
use super::driver::Fault;
use super::read::{STATUS_COLUMNS, status_at};
use super::record::{column, record};
use super::statement::Statement;
use super::steps::MAX_NAMED;
use crate::rows::Retry;

impl SqlSnapshots {
    pub(super) async fn claim_due_retries(
        &self,
        now: Timestamp,
        claim_until: Timestamp,
        max: u32,
    ) -> Result<Vec<Retry>, Fault> {
        let mut session = self.driver.begin().await?;
        let mut due = Vec::new();
        for row in session.fetch(self.select_due(now, max)).await? {
            due.push(Retry {
                record: record(&row, 0)?,
                status: status_at(&row, 2)?,
            });
        }
        for portion in due.chunks(MAX_NAMED) {
            // The claim is the later time itself: a claimer that dies leaves nothing to clean up.
            let update = Statement::new(self.driver.dialect(), "UPDATE update_status SET next_retry_at = ")
                .int(column(claim_until.0))
                .push(" WHERE ")
                .records("", portion.iter().map(|retry| &retry.record));
            session.run(update).await?;
        }
        session.commit().await?;
        Ok(due)
    }

    pub(super) fn select_due(&self, now: Timestamp, max: u32) -> Statement<'static> {
        let dialect = self.driver.dialect();
        Statement::new(dialect, "SELECT source, record_key, ")
            .push(STATUS_COLUMNS)
            .push(" FROM update_status WHERE state = 'RETRYING' AND next_retry_at <= ")
            .int(column(now.0))
            .push(" ORDER BY next_retry_at LIMIT ")
            .int(max.into())
            .push(dialect.skip_locked())
    }
}
