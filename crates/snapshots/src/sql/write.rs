//! Writes a batch: reads and locks the stored rows, decides, then applies the decisions. All of it is one transaction
//! with a handful of statements, however many records there are.

use std::collections::HashMap;

use super::SqlSnapshots;
use super::driver::{Fault, Session};
use super::record::{hash, record, version};
use super::statement::{Statement, portions};
use super::steps::{MAX_NAMED, Plan, Steps, registered};
use crate::decide::{Decision, Known, KnownRow, Step, decide};
use crate::rows::RecordRef;
use crate::{Write, WriteOutcome};

impl SqlSnapshots {
    pub(super) async fn write_batch(&self, writes: &[Write]) -> Result<Vec<WriteOutcome>, Fault> {
        // The loop sets each of them: every write is in one of the rounds.
        let mut outcomes = vec![WriteOutcome::Updated; writes.len()];
        if writes.is_empty() {
            return Ok(outcomes);
        }
        let mut session = self.driver.begin().await?;
        for round in rounds(writes) {
            let writes: Vec<&Write> = round.iter().map(|index| &writes[*index]).collect();
            let decisions = self.write_round(session.as_mut(), &writes).await?;
            for (index, decision) in round.into_iter().zip(decisions) {
                outcomes[index] = decision.outcome;
            }
        }
        session.commit().await?;
        Ok(outcomes)
    }

    /// Writes for distinct records.
    async fn write_round(
        &self,
        session: &mut dyn Session,
        writes: &[&Write],
    ) -> Result<Vec<Decision>, Fault> {
        let known = self.lock(session, writes).await?;
        let decisions: Vec<Decision> = writes
            .iter()
            .map(|write| decide(write, known.get(write.record()).copied().unwrap_or_default()))
            .collect();
        let chosen = |wanted: fn(&Decision) -> bool| {
            let pairs = writes.iter().zip(&decisions);
            let chosen = pairs
                .filter(|(_, decision)| wanted(decision))
                .map(|(write, _)| *write);
            chosen.collect::<Vec<&Write>>()
        };
        let plan = Plan {
            dialect: self.driver.dialect(),
            session,
        };
        plan.carry_out(Steps {
            replaced: chosen(|decision| decision.step == Step::Replace),
            touched: chosen(|decision| decision.step == Step::Touch),
            noted: chosen(|decision| decision.step == Step::Note),
            ended: chosen(|decision| decision.ends_status),
            known: &known,
            keeps_history: self.options.history,
        })
        .await?;
        Ok(decisions)
    }

    /// Reads the stored state of every record and locks it until the end of the transaction. A record without a row
    /// cannot be locked, so one that is about to get a row gets an empty one first: of two first writers, the second
    /// waits.
    async fn lock<'w>(
        &self,
        session: &mut dyn Session,
        writes: &[&'w Write],
    ) -> Result<HashMap<RecordRef, Known>, Fault> {
        let records: Vec<&RecordRef> = writes.iter().map(|write| write.record()).collect();
        let mut known = self.look(session, &records).await?;
        if !self.driver.dialect().has_concurrent_writers() {
            return Ok(known);
        }
        let is_new = |write: &&&'w Write| {
            let has_row = known.get(write.record()).is_some_and(|known| known.row.is_some());
            matches!(write, Write::Full { .. }) && !has_row
        };
        let mut new: Vec<&RecordRef> = writes.iter().filter(is_new).map(|write| write.record()).collect();
        if new.is_empty() {
            return Ok(known);
        }
        new.sort_unstable();
        self.register(session, &new).await?;
        known.extend(self.look(session, &new).await?);
        Ok(known)
    }

    async fn look(
        &self,
        session: &mut dyn Session,
        records: &[&RecordRef],
    ) -> Result<HashMap<RecordRef, Known>, Fault> {
        let dialect = self.driver.dialect();
        let mut known: HashMap<RecordRef, Known> = HashMap::with_capacity(records.len());
        for portion in records.chunks(MAX_NAMED) {
            for row in session.fetch(self.lock_rows(portion)).await? {
                known.entry(record(&row, 0)?).or_default().row = Some(KnownRow {
                    version: version(row.int(2)?),
                    hash: row.maybe_bytes(3)?.map(hash).transpose()?,
                });
            }
            let select = Statement::new(
                dialect,
                "SELECT source, record_key, version FROM update_status WHERE ",
            )
            .records("", portion.iter().copied())
            .push(" ORDER BY source, record_key")
            .push(&dialect.for_update("update_status"));
            for row in session.fetch(select).await? {
                known.entry(record(&row, 0)?).or_default().status = Some(version(row.int(2)?));
            }
        }
        Ok(known)
    }

    pub(super) fn lock_rows<'a>(&self, records: &[&'a RecordRef]) -> Statement<'a> {
        let dialect = self.driver.dialect();
        Statement::new(
            dialect,
            "SELECT source, record_key, version, hash FROM snapshot WHERE ",
        )
        .records("", records.iter().copied())
        .push(" ORDER BY source, record_key")
        .push(&dialect.for_update("snapshot"))
    }

    async fn register(&self, session: &mut dyn Session, records: &[&RecordRef]) -> Result<(), Fault> {
        let dialect = self.driver.dialect();
        let rows: Vec<_> = records.iter().map(|record| registered(record)).collect();
        for rows in portions(&rows) {
            let insert = Statement::new(dialect, dialect.insert_or_ignore())
                .push("snapshot (source, record_key, version, tier, prefetch_at) VALUES ")
                .rows(rows)
                .push(dialect.or_ignore());
            session.run(insert).await?;
        }
        Ok(())
    }
}

/// Indexes of the writes, such that no round has two for one record and rounds keep their order.
fn rounds(writes: &[Write]) -> Vec<Vec<usize>> {
    let mut seen: HashMap<&RecordRef, usize> = HashMap::with_capacity(writes.len());
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for (index, write) in writes.iter().enumerate() {
        let round = seen.entry(write.record()).or_insert(0);
        if rounds.len() <= *round {
            rounds.push(Vec::new());
        }
        rounds[*round].push(index);
        *round += 1;
    }
    rounds
}
