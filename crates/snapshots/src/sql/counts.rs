//! Counts, in slices of bounded cost.

use tidegate_core::ids::SourceId;
use tidegate_core::time::Timestamp;

use super::SqlSnapshots;
use super::driver::Fault;
use super::record::{key, number, state, time};
use super::statement::Statement;
use crate::rows::{CountParams, Counts, StatusCounts, StatusState};

impl SqlSnapshots {
    pub(super) async fn count_slice(&self, params: &CountParams) -> Result<Counts, Fault> {
        let mut select = Statement::new(
            self.driver.dialect(),
            "SELECT record_key, last_checked_at, active_at FROM snapshot WHERE ",
        )
        .source(params.source.as_str());
        if let Some(after) = &params.after {
            select = select.push(" AND record_key > ").bytes(after.as_str().as_bytes());
        }
        let select = select.push(" ORDER BY record_key LIMIT ").int(params.max.into());
        let mut session = self.driver.reader().await?;
        let rows = session.fetch(select).await?;
        let mut counts = Counts::default();
        for row in &rows {
            let checked_at = row.maybe_int(1)?.map(time);
            let active_at = row.maybe_int(2)?.map(time);
            match checked_at {
                None => counts.missing += 1,
                Some(checked_at) if checked_at >= fresh_since(params, active_at) => counts.fresh += 1,
                Some(_) => counts.stale += 1,
            }
        }
        if rows.len() >= params.max as usize
            && let Some(last) = rows.last()
        {
            counts.next = Some(key(last.bytes(0)?)?);
        }
        Ok(counts)
    }

    pub(super) async fn count_status(&self, source: &SourceId, limit: u32) -> Result<StatusCounts, Fault> {
        let select = Statement::new(
            self.driver.dialect(),
            "SELECT counted.state, COUNT(*) FROM (SELECT state FROM update_status WHERE ",
        )
        .source(source.as_str())
        .push(" LIMIT ")
        .int(limit.into())
        .push(") AS counted GROUP BY counted.state");
        let mut session = self.driver.reader().await?;
        let mut counts = StatusCounts::default();
        for row in session.fetch(select).await? {
            let count = number(row.int(1)?);
            match state(&row.text(0)?)? {
                StatusState::Retrying => counts.retrying = count,
                StatusState::Failed => counts.failed = count,
            }
        }
        Ok(counts)
    }
}

fn fresh_since(params: &CountParams, active_at: Option<Timestamp>) -> Timestamp {
    let tier = active_at.and_then(|at| params.tiers.iter().find(|tier| tier.active_since <= at));
    tier.or(params.tiers.last())
        .map_or(Timestamp(0), |tier| tier.checked_since)
}
