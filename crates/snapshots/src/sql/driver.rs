//! What a backend provides: connections that take statements and return rows, and the meaning of its errors. Each
//! backend has its own typed pools; everything above is written once.

use std::fmt;

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::error::DatabaseError;

use super::statement::{Dialect, Statement};
use crate::SnapshotsError;

/// What a database error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A conflict with another transaction; a repetition of the same transaction succeeds.
    Conflict,
    /// The database is unavailable.
    Transient,
    /// A table is missing.
    NoTable,
    Permanent,
}

#[async_trait]
pub(crate) trait Driver: Send + Sync + fmt::Debug + 'static {
    fn dialect(&self) -> Dialect;
    /// The name of the database for messages, without secrets.
    fn name(&self) -> &str;
    fn meaning(&self, error: &dyn DatabaseError) -> Meaning;
    /// A connection for one statement that changes nothing.
    async fn reader(&self) -> Result<Box<dyn Session>, sqlx::Error>;
    /// A transaction. Dropping it without a commit rolls it back.
    async fn begin(&self) -> Result<Box<dyn Session>, sqlx::Error>;
    /// A transaction that excludes every other migration until it ends. Where DDL statements commit on their own, it
    /// only holds the lock.
    async fn begin_migration(&self) -> Result<Box<dyn Session>, sqlx::Error>;
}

#[async_trait]
pub(crate) trait Session: Send {
    async fn fetch(&mut self, statement: Statement<'_>) -> Result<Vec<SqlRow>, sqlx::Error>;
    /// Returns how many rows changed.
    async fn run(&mut self, statement: Statement<'_>) -> Result<u64, sqlx::Error>;
    async fn commit(self: Box<Self>) -> Result<(), sqlx::Error>;
}

/// A row of any backend.
pub(crate) enum SqlRow {
    Sqlite(sqlx::sqlite::SqliteRow),
    #[cfg(feature = "postgres")]
    Postgres(sqlx::postgres::PgRow),
    #[cfg(feature = "mysql")]
    MySql(sqlx::mysql::MySqlRow),
}

macro_rules! column {
    ($row:expr, $index:expr) => {
        match $row {
            SqlRow::Sqlite(row) => row.try_get_unchecked($index),
            #[cfg(feature = "postgres")]
            SqlRow::Postgres(row) => row.try_get_unchecked($index),
            #[cfg(feature = "mysql")]
            SqlRow::MySql(row) => row.try_get_unchecked($index),
        }
    };
}

impl SqlRow {
    pub(crate) fn int(&self, index: usize) -> Result<i64, sqlx::Error> {
        column!(self, index)
    }

    pub(crate) fn maybe_int(&self, index: usize) -> Result<Option<i64>, sqlx::Error> {
        column!(self, index)
    }

    pub(crate) fn bytes(&self, index: usize) -> Result<Vec<u8>, sqlx::Error> {
        column!(self, index)
    }

    pub(crate) fn maybe_bytes(&self, index: usize) -> Result<Option<Vec<u8>>, sqlx::Error> {
        column!(self, index)
    }

    pub(crate) fn text(&self, index: usize) -> Result<String, sqlx::Error> {
        column!(self, index)
    }

    pub(crate) fn maybe_text(&self, index: usize) -> Result<Option<String>, sqlx::Error> {
        column!(self, index)
    }
}

/// Errors below the `Snapshots` trait.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(sqlx::Error),
    /// Already an error for the caller.
    Typed(SnapshotsError),
    /// A value in the database that this program does not write.
    Odd(String),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        Fault::Sql(error)
    }
}

/// Implements [`Session`] for a session type of one backend. The type lends its connection for a call and then learns
/// the result.
macro_rules! session {
    ($session:ty, $db:ty, $row:ident) => {
        #[async_trait::async_trait]
        impl $crate::sql::driver::Session for $session {
            async fn fetch(
                &mut self,
                statement: $crate::sql::statement::Statement<'_>,
            ) -> Result<Vec<$crate::sql::driver::SqlRow>, sqlx::Error> {
                let query = $crate::sql::driver::bind!($db, statement);
                let rows = query.fetch_all(self.connection()?).await;
                Ok(self
                    .heard(rows)?
                    .into_iter()
                    .map($crate::sql::driver::SqlRow::$row)
                    .collect())
            }

            async fn run(
                &mut self,
                statement: $crate::sql::statement::Statement<'_>,
            ) -> Result<u64, sqlx::Error> {
                let query = $crate::sql::driver::bind!($db, statement);
                let done = query.execute(self.connection()?).await;
                Ok(self.heard(done)?.rows_affected())
            }

            async fn commit(self: Box<Self>) -> Result<(), sqlx::Error> {
                self.end().await
            }
        }
    };
}
pub(crate) use session;

macro_rules! bind {
    ($db:ty, $statement:expr) => {{
        use $crate::sql::statement::Value;
        let statement = $statement;
        // The text consists of constants of this crate and placeholders only.
        let mut query = sqlx::query::<$db>(sqlx::AssertSqlSafe(statement.sql));
        for value in statement.values {
            query = match value {
                Value::Int(number) => query.bind(number),
                Value::MaybeInt(number) => query.bind(number),
                Value::Bytes(bytes) => query.bind(bytes),
                Value::MaybeBytes(bytes) => query.bind(bytes),
                Value::Text(text) => query.bind(text),
            };
        }
        query
    }};
}
pub(crate) use bind;
