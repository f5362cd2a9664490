//! A statement and its values, and the few places where the SQL dialects differ.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::RecordRef;

/// Limit: rows in one multi-row statement.
const MAX_ROWS: usize = 500;
/// Limit: bytes in one multi-row statement. Well below the default packet limit of servers (16 MB).
const MAX_BYTES: usize = 4 << 20;

/// The SQL dialect of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "only one backend speaks it")
    )]
    Postgres,
    #[cfg_attr(
        not(feature = "mysql"),
        allow(dead_code, reason = "only one backend speaks it")
    )]
    MySql,
}

impl Dialect {
    /// In the update of an upsert: the value that the insert offered.
    pub(crate) fn offered(self, column: &str) -> String {
        match self {
            // MariaDB does not know the newer row alias of MySQL; both have this form.
            Dialect::MySql => format!("VALUES({column})"),
            _ => format!("excluded.{column}"),
        }
    }

    /// Starts the update of an upsert on `key`.
    pub(crate) fn on_conflict(self, key: &str) -> String {
        match self {
            Dialect::MySql => " ON DUPLICATE KEY UPDATE ".to_owned(),
            _ => format!(" ON CONFLICT ({key}) DO UPDATE SET "),
        }
    }

    /// Starts an insert that leaves existing rows unchanged; [`or_ignore`](Self::or_ignore) ends it. The caller makes
    /// every value fit first: MySQL would also ignore one that does not.
    pub(crate) fn insert_or_ignore(self) -> &'static str {
        match self {
            Dialect::MySql => "INSERT IGNORE INTO ",
            _ => "INSERT INTO ",
        }
    }

    pub(crate) fn or_ignore(self) -> &'static str {
        match self {
            Dialect::MySql => "",
            _ => " ON CONFLICT DO NOTHING",
        }
    }

    /// Like [`or_ignore`](Self::or_ignore), but only for rows with the same `key`.
    pub(crate) fn or_ignore_same(self, key: &str) -> String {
        match self {
            Dialect::MySql => String::new(),
            _ => format!(" ON CONFLICT ({key}) DO NOTHING"),
        }
    }

    /// The query that moves generated ids beyond an explicitly inserted one, where the database does not do so
    /// itself. The id is the value of both placeholders.
    pub(crate) fn beyond_id(self) -> Option<[&'static str; 2]> {
        match self {
            Dialect::Postgres => Some([
                "SELECT setval('snapshot_history_id_seq', ",
                ") FROM snapshot_history_id_seq WHERE last_value < ",
            ]),
            _ => None,
        }
    }

    /// The larger of two numbers that are not null.
    pub(crate) fn greatest(self, a: &str, b: &str) -> String {
        match self {
            Dialect::Sqlite => format!("max({a}, {b})"),
            _ => format!("GREATEST({a}, {b})"),
        }
    }

    /// Locks the rows selected from table `alias` until the end of the transaction. SQLite has one writer at a time.
    pub(crate) fn for_update(self, alias: &str) -> String {
        match self {
            Dialect::Sqlite => String::new(),
            // The status may be missing in an outer join, which PostgreSQL cannot lock.
            Dialect::Postgres => format!(" FOR UPDATE OF {alias}"),
            Dialect::MySql => " FOR UPDATE".to_owned(),
        }
    }

    /// Locks the selected rows and skips rows that others have locked.
    pub(crate) fn skip_locked(self) -> &'static str {
        match self {
            Dialect::Sqlite => "",
            _ => " FOR UPDATE SKIP LOCKED",
        }
    }

    /// Whether other writers may run while a transaction is open.
    pub(crate) fn has_concurrent_writers(self) -> bool {
        self != Dialect::Sqlite
    }

    /// The length of a blob in bytes, without reading it where possible.
    pub(crate) fn byte_length(self, column: &str) -> String {
        match self {
            // Its LENGTH is an INT4.
            Dialect::Postgres => format!("CAST(OCTET_LENGTH({column}) AS BIGINT)"),
            _ => format!("LENGTH({column})"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Int(i64),
    MaybeInt(Option<i64>),
    Bytes(&'a [u8]),
    MaybeBytes(Option<&'a [u8]>),
    Text(&'a str),
}

impl Value<'_> {
    fn size(&self) -> usize {
        match self {
            Value::Int(_) | Value::MaybeInt(_) => 8,
            Value::Bytes(bytes) => bytes.len(),
            Value::MaybeBytes(bytes) => bytes.map_or(0, <[u8]>::len),
            Value::Text(text) => text.len(),
        }
    }
}

/// A statement under construction. Values never become part of its text.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) sql: String,
    pub(crate) values: Vec<Value<'a>>,
}

impl<'a> Statement<'a> {
    pub(crate) fn new(dialect: Dialect, sql: &str) -> Self {
        Self {
            dialect,
            sql: sql.to_owned(),
            values: Vec::new(),
        }
    }

    pub(crate) fn push(mut self, sql: &str) -> Self {
        self.sql.push_str(sql);
        self
    }

    pub(crate) fn value(mut self, value: Value<'a>) -> Self {
        self.put(value);
        self
    }

    pub(crate) fn int(self, value: i64) -> Self {
        self.value(Value::Int(value))
    }

    pub(crate) fn bytes(self, value: &'a [u8]) -> Self {
        self.value(Value::Bytes(value))
    }

    /// `(a, b), (c, d)`: one bracket per row.
    pub(crate) fn rows(mut self, rows: &[Vec<Value<'a>>]) -> Self {
        for (index, row) in rows.iter().enumerate() {
            self.sql.push_str(if index == 0 { "(" } else { ", (" });
            self.list(row);
            self.sql.push(')');
        }
        self
    }

    /// `a, b, c`.
    pub(crate) fn values(mut self, values: impl IntoIterator<Item = Value<'a>>) -> Self {
        let values: Vec<_> = values.into_iter().collect();
        self.list(&values);
        self
    }

    /// A condition for one source. PostgreSQL must not see which one while it plans. For a source newer than its
    /// statistics it expects a single row, and then reads all rows of the source to find one by its key. For a source
    /// that it cannot see, it expects as many rows as for any other.
    pub(crate) fn source(mut self, source: &'a str) -> Self {
        self.put_source("", source);
        self
    }

    fn put_source(&mut self, prefix: &str, source: &'a str) {
        let hides = self.dialect == Dialect::Postgres;
        self.sql.push_str(prefix);
        self.sql
            .push_str(if hides { "source = (SELECT " } else { "source = " });
        self.put(Value::Bytes(source.as_bytes()));
        self.sql.push_str(if hides { ")" } else { "" });
    }

    /// A condition for exactly these records. By source and then by key, because not every database finds pairs by
    /// index.
    pub(crate) fn records(mut self, prefix: &str, records: impl IntoIterator<Item = &'a RecordRef>) -> Self {
        let mut by_source: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for record in records {
            by_source
                .entry(record.source.as_str())
                .or_default()
                .push(record.key.as_str());
        }
        self.sql.push('(');
        for (index, (source, mut keys)) in by_source.into_iter().enumerate() {
            // Sorted, so that any two batches lock in the same order.
            keys.sort_unstable();
            keys.dedup();
            self.sql.push_str(if index == 0 { "(" } else { " OR (" });
            self.put_source(prefix, source);
            self.sql.push_str(" AND ");
            self.sql.push_str(prefix);
            self.sql.push_str("record_key IN (");
            let keys: Vec<_> = keys.into_iter().map(|key| Value::Bytes(key.as_bytes())).collect();
            self.list(&keys);
            self.sql.push_str("))");
        }
        self.sql.push(')');
        self
    }

    fn list(&mut self, values: &[Value<'a>]) {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.sql.push_str(", ");
            }
            self.put(*value);
        }
    }

    fn put(&mut self, value: Value<'a>) {
        self.values.push(value);
        match self.dialect {
            Dialect::Postgres => {
                // Writing to a string cannot fail.
                let _ = write!(self.sql, "${}", self.values.len());
            }
            _ => self.sql.push('?'),
        }
    }
}

/// Splits rows into portions that fit one statement, each with at least one row.
pub(crate) fn portions<'r, 'a>(rows: &'r [Vec<Value<'a>>]) -> Vec<&'r [Vec<Value<'a>>]> {
    let mut portions = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (index, row) in rows.iter().enumerate() {
        let size: usize = row.iter().map(Value::size).sum();
        if index > start && (index - start >= MAX_ROWS || bytes + size > MAX_BYTES) {
            portions.push(&rows[start..index]);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    if start < rows.len() {
        portions.push(&rows[start..]);
    }
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_bounded_by_rows_and_bytes() {
        let small: Vec<_> = (0..1_001).map(|n| vec![Value::Int(n)]).collect();
        let sizes: Vec<_> = portions(&small).iter().map(|rows| rows.len()).collect();
        assert_eq!(sizes, [500, 500, 1]);
        let megabytes = vec![0; 3 << 20];
        let large: Vec<_> = (0..3).map(|_| vec![Value::Bytes(&megabytes)]).collect();
        assert_eq!(portions(&large).len(), 3);
        assert!(portions(&[]).is_empty());
    }
}
