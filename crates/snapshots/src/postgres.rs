//! PostgreSQL, shared by several processes. Works at its default isolation level, read committed.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, Postgres};
use tidegate_core::time::Millis;

use crate::options::{SnapshotsOptions, check_scheme};
use crate::sql::driver::{Driver, Meaning, Session, session};
use crate::sql::lent::Lent;
use crate::sql::statement::Dialect;
use crate::{SnapshotsError, SqlSnapshots};

/// Two migrations of one database exclude each other by this number; it has no other meaning.
const MIGRATION_LOCK: &str = "SELECT pg_advisory_xact_lock(7461736770)";
/// The pool pings a connection that was idle for longer than this before it lends it.
const IDLE_BEFORE_PING: Duration = Duration::from_secs(1);
/// Statements differ by their number of rows; each one is prepared once.
const STATEMENT_CACHE: usize = 500;

#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// `postgres://user:password@host:5432/database`
    pub url: String,
    pub snapshots: SnapshotsOptions,
}

impl PostgresOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            snapshots: SnapshotsOptions::default(),
        }
    }
}

/// Creates the pool. It connects on the first call, so a server that is not up yet is no error.
pub fn open(options: PostgresOptions) -> Result<SqlSnapshots, SnapshotsError> {
    check_scheme(&options.url, &["postgres://", "postgresql://"])?;
    let connect: PgConnectOptions = options.url.parse().map_err(|error: sqlx::Error| {
        // Leave out the URL: it may contain a password.
        SnapshotsError::Invalid(format!("the URL of the PostgreSQL database: {error}"))
    })?;
    let name = format!(
        "the PostgreSQL database {} at {}:{}",
        connect.get_database().unwrap_or(connect.get_username()),
        connect.get_host(),
        connect.get_port()
    );
    let timeouts = options.snapshots.timeouts;
    let connect = connect
        .application_name("tidegate")
        .statement_cache_capacity(STATEMENT_CACHE)
        // A caller that gave up leaves nothing running, and no locks, on the server.
        .options([
            ("statement_timeout", timeouts.bulk.0.to_string()),
            ("idle_in_transaction_session_timeout", timeouts.bulk.0.to_string()),
        ])
        .disable_statement_logging();
    let pool = PgPoolOptions::new()
        .max_connections(options.snapshots.connections.max(1))
        // Calls have their own timeouts, all within this one.
        .acquire_timeout(timeouts.bulk.max(timeouts.write).max(Millis(1)).into())
        .test_before_acquire(false)
        .before_acquire(|connection, usage| {
            Box::pin(async move {
                if usage.idle_for > IDLE_BEFORE_PING {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(connect);
    Ok(SqlSnapshots::new(
        Box::new(PostgresDriver { name, pool }),
        options.snapshots,
    ))
}

#[derive(Debug)]
struct PostgresDriver {
    name: String,
    pool: PgPool,
}

#[async_trait]
impl Driver for PostgresDriver {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn meaning(&self, error: &dyn DatabaseError) -> Meaning {
        let code = error.code().unwrap_or_default();
        match code.as_ref() {
            // Serialization failure, deadlock.
            "40001" | "40P01" => Meaning::Conflict,
            "42P01" => Meaning::NoTable,
            // Lock not available; a read-only server after a failover.
            "55P03" | "25006" => Meaning::Transient,
            // A process of the server died, or a timeout ended the transaction.
            "25P03" | "XX000" => Meaning::Transient,
            _ => match code.get(..2) {
                // Connection, resources (full disk, too many clients), shutdown and cancelled, input/output.
                Some("08" | "53" | "57" | "58") => Meaning::Transient,
                _ => Meaning::Permanent,
            },
        }
    }

    async fn reader(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(PostgresSession(Lent::from(&self.pool).await?)))
    }

    async fn begin(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(PostgresSession(Lent::begin(&self.pool).await?)))
    }

    async fn begin_migration(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        let mut lent = Lent::begin(&self.pool).await?;
        // Waiting for another migration, or building an index, may take long.
        for sql in ["SET LOCAL statement_timeout = 0", MIGRATION_LOCK] {
            let done = lent.connection()?.execute(sql).await;
            lent.heard(done)?;
        }
        Ok(Box::new(PostgresSession(lent)))
    }
}

struct PostgresSession(Lent<Postgres>);

impl PostgresSession {
    fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.0.connection()
    }

    fn heard<T>(&mut self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        self.0.heard(answer)
    }

    async fn end(self) -> Result<(), sqlx::Error> {
        self.0.commit().await
    }
}

session!(PostgresSession, Postgres, Postgres);
