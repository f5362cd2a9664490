//! Marks of handled dead letters.

use std::collections::HashMap;

use super::SqlSnapshots;
use super::driver::{Fault, SqlRow};
use super::record::{column, fitting, number, time};
use super::statement::{Statement, Value, portions};
use crate::rows::{DeadLetterMark, DeadLetterPosition, Handled};

/// Limit: positions in one statement.
const MAX_POSITIONS: usize = 500;
/// Limit: characters of a name.
const MAX_BY: usize = 256;

impl SqlSnapshots {
    pub(super) async fn marks_of(
        &self,
        positions: &[DeadLetterPosition],
    ) -> Result<Vec<Option<DeadLetterMark>>, Fault> {
        let mut found = HashMap::new();
        for portion in positions.chunks(MAX_POSITIONS) {
            let mut session = self.driver.reader().await?;
            for row in session.fetch(self.select_marks(portion)).await? {
                let mark = mark_at(&row)?;
                found.insert(mark.position, mark);
            }
        }
        Ok(positions
            .iter()
            .map(|position| found.get(position).cloned())
            .collect())
    }

    fn select_marks(&self, positions: &[DeadLetterPosition]) -> Statement<'static> {
        let mut offsets: HashMap<u32, Vec<u64>> = HashMap::new();
        for position in positions {
            offsets
                .entry(position.partition)
                .or_default()
                .push(position.offset);
        }
        let mut select = Statement::new(
            self.driver.dialect(),
            "SELECT log_partition, log_offset, how, marked_at, marked_by FROM dead_letter_mark WHERE ",
        );
        for (index, (partition, offsets)) in offsets.into_iter().enumerate() {
            select = select
                .push(if index == 0 {
                    "(log_partition = "
                } else {
                    " OR (log_partition = "
                })
                .int(partition.into())
                .push(" AND log_offset IN (")
                .values(offsets.into_iter().map(|offset| Value::Int(column(offset))))
                .push("))");
        }
        select
    }

    pub(super) async fn put_marks(&self, marks: &[DeadLetterMark]) -> Result<u64, Fault> {
        let dialect = self.driver.dialect();
        let mut marks: Vec<_> = marks
            .iter()
            .map(|mark| (mark, fitting(&mark.by, MAX_BY)))
            .collect();
        // The first mark wins, also within a batch; every batch uses the same order.
        marks.sort_by_key(|(mark, _)| mark.position);
        marks.dedup_by_key(|(mark, _)| mark.position);
        let rows: Vec<_> = marks.iter().map(|(mark, by)| marked(mark, by)).collect();
        let mut session = self.driver.begin().await?;
        let mut marked = 0;
        for rows in portions(&rows) {
            let insert = Statement::new(dialect, dialect.insert_or_ignore())
                .push("dead_letter_mark (log_partition, log_offset, how, marked_at, marked_by) VALUES ")
                .rows(rows)
                .push(dialect.or_ignore());
            marked += session.run(insert).await?;
        }
        session.commit().await?;
        Ok(marked)
    }

    pub(super) async fn forget_marks(&self, partition: u32, offset: u64, max: u32) -> Result<u64, Fault> {
        let dialect = self.driver.dialect();
        let mut session = self.driver.begin().await?;
        let select = Statement::new(
            dialect,
            "SELECT log_offset FROM dead_letter_mark WHERE log_partition = ",
        )
        .int(partition.into())
        .push(" AND log_offset < ")
        .int(column(offset))
        .push(" ORDER BY log_offset LIMIT ")
        .int(max.into());
        let rows = session.fetch(select).await?;
        // Delete everything up to the last one: these are the first rows of the partition.
        let Some(last) = rows.last() else { return Ok(0) };
        let delete = Statement::new(dialect, "DELETE FROM dead_letter_mark WHERE log_partition = ")
            .int(partition.into())
            .push(" AND log_offset <= ")
            .int(last.int(0)?);
        let forgotten = session.run(delete).await?;
        session.commit().await?;
        Ok(forgotten)
    }
}

fn marked<'m>(mark: &DeadLetterMark, by: &'m str) -> Vec<Value<'m>> {
    vec![
        Value::Int(mark.position.partition.into()),
        Value::Int(column(mark.position.offset)),
        Value::Text(match mark.how {
            Handled::Replayed => "replayed",
            Handled::Purged => "purged",
        }),
        Value::Int(column(mark.at.0)),
        Value::Text(by),
    ]
}

fn mark_at(row: &SqlRow) -> Result<DeadLetterMark, Fault> {
    let partition = row.int(0)?;
    Ok(DeadLetterMark {
        position: DeadLetterPosition {
            partition: u32::try_from(partition)
                .map_err(|_| Fault::Odd(format!("a mark of partition {partition}")))?,
            offset: number(row.int(1)?),
        },
        how: match row.text(2)?.as_str() {
            "replayed" => Handled::Replayed,
            "purged" => Handled::Purged,
            other => return Err(Fault::Odd(format!("a dead letter was {other:?}"))),
        },
        at: time(row.int(3)?),
        by: row.text(4)?,
    })
}
