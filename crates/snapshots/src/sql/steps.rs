//! The statements that apply the decisions on a batch.

use std::collections::HashMap;

use tidegate_core::time::Timestamp;

use super::driver::{Fault, Session};
use super::prefetch::COLDEST;
use super::record::{column, fitting, state_name};
use super::statement::{Dialect, Statement, Value, portions};
use crate::decide::Known;
use crate::rows::RecordRef;
use crate::{Failure, MAX_ERROR_CODE, MAX_ERROR_MESSAGE, Write};

/// Limit: records in a condition that names each of them.
pub(super) const MAX_NAMED: usize = 500;

/// The decisions on a round.
pub(super) struct Steps<'w> {
    pub(super) replaced: Vec<&'w Write>,
    pub(super) touched: Vec<&'w Write>,
    pub(super) noted: Vec<&'w Write>,
    pub(super) ended: Vec<&'w Write>,
    pub(super) known: &'w HashMap<RecordRef, Known>,
    pub(super) keeps_history: bool,
}

/// The statements that apply them. Each one checks the version once more: the rows are locked, so this fence is a
/// second safeguard.
pub(super) struct Plan<'s> {
    pub(super) dialect: Dialect,
    pub(super) session: &'s mut dyn Session,
}

impl Plan<'_> {
    pub(super) async fn carry_out(mut self, steps: Steps<'_>) -> Result<(), Fault> {
        if steps.keeps_history {
            let had_data = |write: &&&Write| {
                let known = steps.known.get(write.record()).and_then(|known| known.row);
                known.is_some_and(|row| row.hash.is_some())
            };
            let old: Vec<&Write> = steps.replaced.iter().filter(had_data).copied().collect();
            self.keep_history(&old).await?;
        }
        self.replace(&steps.replaced).await?;
        self.touch(&steps.touched).await?;
        self.note(&steps.noted).await?;
        let has_row = |write: &&&Write| {
            steps
                .known
                .get(write.record())
                .is_some_and(|known| known.row.is_some())
        };
        let postponed: Vec<&Write> = steps.noted.iter().filter(has_row).copied().collect();
        self.postpone(&postponed).await?;
        self.end_status(&steps.ended).await
    }

    async fn keep_history(&mut self, writes: &[&Write]) -> Result<(), Fault> {
        // One time for the batch: its writes belong to the same moment.
        let at = writes.iter().map(|write| at(write)).max().unwrap_or_default();
        for portion in writes.chunks(MAX_NAMED) {
            let insert = Statement::new(self.dialect, self.dialect.insert_or_ignore())
                .push(
                    "snapshot_history \
                 (source, record_key, version, hash, last_checked_at, last_updated_at, data, replaced_at) \
                 SELECT source, record_key, version, hash, last_checked_at, last_updated_at, data, ",
                )
                .int(column(at.0))
                .push(" FROM snapshot WHERE hash IS NOT NULL AND ")
                .records("", portion.iter().map(|write| write.record()))
                .push(&self.dialect.or_ignore_same("source, record_key, version, hash"));
            self.session.run(insert).await?;
        }
        Ok(())
    }

    async fn replace(&mut self, writes: &[&Write]) -> Result<(), Fault> {
        let rows: Vec<_> = sorted(writes).into_iter().filter_map(replaced).collect();
        for rows in portions(&rows) {
            let new = |name| self.dialect.offered(name);
            let checked = self
                .dialect
                .greatest("COALESCE(snapshot.last_checked_at, 0)", &new("last_checked_at"));
            let upsert = Statement::new(
                self.dialect,
                "INSERT INTO snapshot (source, record_key, version, hash, last_checked_at, last_updated_at, \
                 tier, prefetch_at, data) VALUES ",
            )
            .rows(rows)
            .push(&self.dialect.on_conflict("source, record_key"))
            .push(&self.fenced(
                "snapshot",
                &[
                    ("hash", new("hash")),
                    ("last_checked_at", checked),
                    ("last_updated_at", new("last_updated_at")),
                    ("prefetch_at", new("prefetch_at")),
                    ("claimed_until", "0".to_owned()),
                    ("data", new("data")),
                    ("version", new("version")),
                ],
            ));
            self.session.run(upsert).await?;
        }
        Ok(())
    }

    async fn touch(&mut self, writes: &[&Write]) -> Result<(), Fault> {
        let writes = sorted(writes);
        let rows: Vec<_> = writes.into_iter().map(touched).collect();
        for rows in portions(&rows) {
            let new = |name| self.dialect.offered(name);
            let checked = self
                .dialect
                .greatest("COALESCE(snapshot.last_checked_at, 0)", &new("last_checked_at"));
            let upsert = Statement::new(
                self.dialect,
                "INSERT INTO snapshot (source, record_key, version, tier, prefetch_at, last_checked_at) VALUES ",
            )
            .rows(rows)
            .push(&self.dialect.on_conflict("source, record_key"))
            .push(&self.fenced("snapshot", &[
                // Before `last_checked_at`: MySQL assigns from left to right.
                ("prefetch_at", checked.clone()),
                ("claimed_until", "0".to_owned()),
                ("last_checked_at", checked),
                ("version", new("version")),
            ]));
            self.session.run(upsert).await?;
        }
        Ok(())
    }

    async fn note(&mut self, writes: &[&Write]) -> Result<(), Fault> {
        let failures: Vec<(&Failure, String, String, i64)> = sorted(writes)
            .into_iter()
            .filter_map(|write| match write {
                Write::Failed(failure) => Some((failure, 1)),
                Write::Parked(failure) => Some((failure, 0)),
                _ => None,
            })
            .map(|(failure, counts)| {
                let code = fitting(&failure.error_code, MAX_ERROR_CODE);
                let message = fitting(&failure.error_message, MAX_ERROR_MESSAGE);
                (failure, code, message, counts)
            })
            .collect();
        let rows: Vec<_> = failures
            .iter()
            .map(|(failure, code, message, counts)| noted(failure, code, message, *counts))
            .collect();
        for rows in portions(&rows) {
            let new = |name| self.dialect.offered(name);
            // The same failure reported twice counts once.
            let fail_count = format!(
                "CASE WHEN update_status.version = {} AND update_status.updated_at = {} \
                 THEN update_status.fail_count ELSE update_status.fail_count + {} END",
                new("version"),
                new("updated_at"),
                new("fail_count")
            );
            let upsert = Statement::new(
                self.dialect,
                "INSERT INTO update_status (source, record_key, version, state, absent, fail_count, last_error_code, \
                 last_error_message, next_retry_at, event, created_at, updated_at) VALUES ",
            )
            .rows(rows)
            .push(&self.dialect.on_conflict("source, record_key"))
            .push(&self.fenced("update_status", &[
                ("state", new("state")),
                ("absent", new("absent")),
                ("fail_count", fail_count),
                ("last_error_code", new("last_error_code")),
                ("last_error_message", new("last_error_message")),
                ("next_retry_at", new("next_retry_at")),
                ("event", new("event")),
                ("updated_at", new("updated_at")),
                ("version", new("version")),
            ]));
            self.session.run(upsert).await?;
        }
        Ok(())
    }

    /// No prefetch of a failed record before its retry.
    async fn postpone(&mut self, writes: &[&Write]) -> Result<(), Fault> {
        let writes = sorted(writes);
        let rows: Vec<_> = writes
            .iter()
            .map(|write| {
                let mut row = registered(write.record());
                row[4] = Value::Int(column(next_try(write).0));
                row
            })
            .collect();
        for rows in portions(&rows) {
            let later = self
                .dialect
                .greatest("snapshot.prefetch_at", &self.dialect.offered("prefetch_at"));
            let upsert = Statement::new(
                self.dialect,
                "INSERT INTO snapshot (source, record_key, version, tier, prefetch_at) VALUES ",
            )
            .rows(rows)
            .push(&self.dialect.on_conflict("source, record_key"))
            .push("prefetch_at = ")
            .push(&later);
            self.session.run(upsert).await?;
        }
        Ok(())
    }

    async fn end_status(&mut self, writes: &[&Write]) -> Result<(), Fault> {
        for portion in sorted(writes).chunks(MAX_NAMED) {
            let mut delete = Statement::new(self.dialect, "DELETE FROM update_status WHERE ");
            for (index, write) in portion.iter().enumerate() {
                let record = write.record();
                delete = delete
                    .push(if index == 0 { "(" } else { " OR (" })
                    .source(record.source.as_str())
                    .push(" AND record_key = ")
                    .bytes(record.key.as_str().as_bytes())
                    .push(" AND version <= ")
                    .int(column(write.version().0))
                    .push(")");
            }
            self.session.run(delete).await?;
        }
        Ok(())
    }

    /// Assignments that leave a row with a newer version unchanged. The version itself must come last: MySQL assigns
    /// from left to right.
    fn fenced(&self, table: &str, assignments: &[(&str, String)]) -> String {
        let version = self.dialect.offered("version");
        let fenced = assignments.iter().map(|(name, value)| {
            format!("{name} = CASE WHEN {table}.version <= {version} THEN {value} ELSE {table}.{name} END")
        });
        fenced.collect::<Vec<_>>().join(", ")
    }
}

fn at(write: &Write) -> Timestamp {
    match write {
        Write::Full { at, .. } => *at,
        Write::Failed(failure) | Write::Parked(failure) => failure.at,
    }
}

fn next_try(write: &Write) -> Timestamp {
    match write {
        Write::Failed(failure) | Write::Parked(failure) => failure.next_retry_at.unwrap_or(failure.at),
        Write::Full { at, .. } => *at,
    }
}

/// Every batch locks in the same order.
fn sorted<'w>(writes: &[&'w Write]) -> Vec<&'w Write> {
    let mut writes = writes.to_vec();
    writes.sort_by(|a, b| a.record().cmp(b.record()));
    writes
}

/// A record of which only the name is known.
pub(super) fn registered(record: &RecordRef) -> Vec<Value<'_>> {
    vec![
        Value::Bytes(record.source.as_str().as_bytes()),
        Value::Bytes(record.key.as_str().as_bytes()),
        Value::Int(0),
        Value::Int(COLDEST),
        Value::Int(0),
    ]
}

/// Like [`registered`], but checked.
fn touched(write: &Write) -> Vec<Value<'_>> {
    let mut row = registered(write.record());
    let at = Value::Int(column(at(write).0));
    row[2] = Value::Int(column(write.version().0));
    row[4] = at;
    row.push(at);
    row
}

fn replaced(write: &Write) -> Option<Vec<Value<'_>>> {
    let Write::Full {
        record,
        version,
        data,
        hash,
        at,
    } = write
    else {
        return None;
    };
    let at = Value::Int(column(at.0));
    Some(vec![
        Value::Bytes(record.source.as_str().as_bytes()),
        Value::Bytes(record.key.as_str().as_bytes()),
        Value::Int(column(version.0)),
        Value::Bytes(hash),
        at,
        at,
        Value::Int(COLDEST),
        at,
        Value::Bytes(data),
    ])
}

fn noted<'w>(failure: &'w Failure, code: &'w str, message: &'w str, counts: i64) -> Vec<Value<'w>> {
    let at = Value::Int(column(failure.at.0));
    vec![
        Value::Bytes(failure.record.source.as_str().as_bytes()),
        Value::Bytes(failure.record.key.as_str().as_bytes()),
        Value::Int(column(failure.version.0)),
        Value::Text(state_name(failure.state)),
        Value::Int(failure.absent.into()),
        Value::Int(counts),
        Value::Text(code),
        Value::Text(message),
        Value::MaybeInt(failure.next_retry_at.map(|at| column(at.0))),
        Value::MaybeBytes(failure.event.as_deref()),
        at,
        at,
    ]
}
