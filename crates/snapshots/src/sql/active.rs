//! Records when users request records.

use std::collections::BTreeMap;

use tidegate_core::time::Timestamp;

use super::SqlSnapshots;
use super::driver::Fault;
use super::prefetch::HOTTEST;
use super::record::column;
use super::statement::{Statement, Value, portions};
use crate::rows::RecordRef;

impl SqlSnapshots {
    pub(super) async fn note_active(&self, seen: &[(RecordRef, Timestamp)]) -> Result<(), Fault> {
        // One row per record, and the same order in every batch.
        let mut latest: BTreeMap<&RecordRef, Timestamp> = BTreeMap::new();
        for (record, at) in seen {
            let slot = latest.entry(record).or_default();
            *slot = (*slot).max(*at);
        }
        if latest.is_empty() {
            return Ok(());
        }
        let rows: Vec<_> = latest
            .into_iter()
            .map(|(record, at)| seen_row(record, at))
            .collect();
        let dialect = self.driver.dialect();
        let mut session = self.driver.begin().await?;
        for rows in portions(&rows) {
            let new = dialect.offered("active_at");
            let old = "COALESCE(snapshot.active_at, 0)";
            let upsert = Statement::new(
                dialect,
                "INSERT INTO snapshot (source, record_key, version, tier, prefetch_at, active_at) VALUES ",
            )
            .rows(rows)
            .push(&dialect.on_conflict("source, record_key"))
            // Before `active_at`: MySQL assigns from left to right.
            .push(&format!(
                "tier = CASE WHEN {new} > {old} THEN {HOTTEST} ELSE snapshot.tier END, active_at = {}",
                dialect.greatest(old, &new)
            ));
            session.run(upsert).await?;
        }
        Ok(session.commit().await?)
    }
}

/// A record that was never fetched counts as checked at time zero: it is the most overdue.
fn seen_row(record: &RecordRef, at: Timestamp) -> Vec<Value<'_>> {
    vec![
        Value::Bytes(record.source.as_str().as_bytes()),
        Value::Bytes(record.key.as_str().as_bytes()),
        Value::Int(0),
        Value::Int(HOTTEST),
        Value::Int(0),
        Value::Int(column(at.0)),
    ]
}
