//! SQLite: one file, in this process.
//!
//! One connection writes, several read; with a write-ahead log neither waits for the other. A second process may use
//! the same file. The two take turns at writing: each waits for the other up to the write timeout, and then fails
//! with a retryable error. Claims are as disjoint as between threads. The file has to be on a local disk, because the
//! log uses shared memory.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::error::DatabaseError;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Sqlite, Transaction};

use crate::options::SnapshotsOptions;
use crate::sql::driver::{Driver, Meaning, Session, session};
use crate::sql::statement::Dialect;
use crate::{SnapshotsError, SqlSnapshots};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Every confirmed write is on disk.
    #[default]
    Sync,
    /// A power cut may lose the last moments, never more; the file stays consistent.
    Buffered,
}

#[derive(Debug, Clone)]
pub struct SqliteOptions {
    /// Created if it is missing; its folder is not.
    pub file: PathBuf,
    pub durability: Durability,
    pub snapshots: SnapshotsOptions,
}

impl SqliteOptions {
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self {
            file: file.into(),
            durability: Durability::default(),
            snapshots: SnapshotsOptions::default(),
        }
    }
}

/// Opens the file, without checking its schema.
pub async fn open(options: SqliteOptions) -> Result<SqlSnapshots, SnapshotsError> {
    let name = format!("the SQLite file {}", options.file.display());
    let driver = SqliteDriver::open(&options, name.clone())
        .await
        .map_err(|error| refused(name, &error))?;
    Ok(SqlSnapshots::new(Box::new(driver), options.snapshots))
}

fn refused(database: String, error: &sqlx::Error) -> SnapshotsError {
    let reason = error.to_string();
    match error {
        sqlx::Error::Database(error) if meaning(error.as_ref()) == Meaning::Permanent => {
            SnapshotsError::Rejected { database, reason }
        }
        _ => SnapshotsError::Unavailable { database, reason },
    }
}

fn meaning(error: &dyn DatabaseError) -> Meaning {
    let code = error
        .code()
        .and_then(|code| code.parse::<u32>().ok())
        .unwrap_or(0);
    // The upper bytes only add detail.
    match code & 0xff {
        // Busy, locked, out of memory, interrupted, input/output, full, cannot open.
        5 | 6 | 7 | 9 | 10 | 13 | 14 => Meaning::Transient,
        1 if error.message().starts_with("no such table") => Meaning::NoTable,
        _ => Meaning::Permanent,
    }
}

#[derive(Debug)]
struct SqliteDriver {
    name: String,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteDriver {
    async fn open(options: &SqliteOptions, name: String) -> Result<Self, sqlx::Error> {
        let timeouts = options.snapshots.timeouts;
        let connect = SqliteConnectOptions::new()
            .filename(&options.file)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(match options.durability {
                Durability::Sync => SqliteSynchronous::Full,
                Durability::Buffered => SqliteSynchronous::Normal,
            })
            .busy_timeout(timeouts.write.into())
            .disable_statement_logging();
        // The writer comes first: it creates the file and its log.
        let writer = pool(1, timeouts.migrate.into())
            .connect_with(connect.clone())
            .await?;
        let readers = pool(options.snapshots.connections.max(1), timeouts.bulk.into())
            .connect_lazy_with(connect.pragma("query_only", "ON"));
        Ok(Self {
            name,
            writer,
            readers,
        })
    }
}

fn pool(connections: u32, patience: Duration) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        // Calls have their own timeouts, all within this one.
        .acquire_timeout(patience)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
}

#[async_trait]
impl Driver for SqliteDriver {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn meaning(&self, error: &dyn DatabaseError) -> Meaning {
        meaning(error)
    }

    async fn reader(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(SqliteSession::Reader(self.readers.acquire().await?)))
    }

    async fn begin(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        // Takes the write lock at once: SQLite may refuse a transaction that starts with a read when it writes.
        let transaction = self.writer.begin_with("BEGIN IMMEDIATE").await?;
        Ok(Box::new(SqliteSession::Writer(transaction)))
    }

    async fn begin_migration(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        self.begin().await
    }
}

enum SqliteSession {
    Reader(PoolConnection<Sqlite>),
    Writer(Transaction<'static, Sqlite>),
}

impl SqliteSession {
    fn connection(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        Ok(match self {
            SqliteSession::Reader(connection) => connection,
            SqliteSession::Writer(transaction) => transaction,
        })
    }

    /// A file always responds.
    fn heard<T>(&mut self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        answer
    }

    async fn end(self) -> Result<(), sqlx::Error> {
        match self {
            SqliteSession::Reader(_) => Ok(()),
            SqliteSession::Writer(transaction) => transaction.commit().await,
        }
    }
}

session!(SqliteSession, Sqlite, Sqlite);
