//! MySQL 8 and MariaDB 10.6 or later, shared by several processes.
//!
//! The SQL uses only what both have: no RETURNING, `VALUES(column)` in upserts, no row constructors in lists (MariaDB
//! uses no index for them), SKIP LOCKED.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlDatabaseError, MySqlPool, MySqlPoolOptions};
use sqlx::{ConnectOptions, Connection, Executor, MySql, Row};
use tidegate_core::time::Millis;

use crate::options::{SnapshotsOptions, check_scheme};
use crate::sql::driver::{Driver, Meaning, Session, session};
use crate::sql::lent::Lent;
use crate::sql::statement::Dialect;
use crate::{SnapshotsError, SqlSnapshots};

/// The pool pings a connection that was idle for longer than this before it lends it.
const IDLE_BEFORE_PING: Duration = Duration::from_secs(1);
/// Statements differ by their number of rows; each one is prepared once.
const STATEMENT_CACHE: usize = 500;

#[derive(Debug, Clone)]
pub struct MySqlOptions {
    /// `mysql://user:password@host:3306/database`
    pub url: String,
    pub snapshots: SnapshotsOptions,
}

impl MySqlOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            snapshots: SnapshotsOptions::default(),
        }
    }
}

/// Creates the pool. It connects on the first call, so a server that is not up yet is no error.
pub fn open(options: MySqlOptions) -> Result<SqlSnapshots, SnapshotsError> {
    check_scheme(&options.url, &["mysql://", "mariadb://"])?;
    let connect: MySqlConnectOptions = options.url.parse().map_err(|error: sqlx::Error| {
        // Leave out the URL: it may contain a password.
        SnapshotsError::Invalid(format!("the URL of the MySQL database: {error}"))
    })?;
    let Some(database) = connect.get_database() else {
        return Err(SnapshotsError::Invalid(
            "the URL of the MySQL database names no database".to_owned(),
        ));
    };
    let name = format!(
        "the MySQL database {database} at {}:{}",
        connect.get_host(),
        connect.get_port()
    );
    let timeouts = options.snapshots.timeouts;
    let connect = connect
        .charset("utf8mb4")
        .statement_cache_capacity(STATEMENT_CACHE)
        .disable_statement_logging();
    let session = session_settings(timeouts.write);
    let pool = MySqlPoolOptions::new()
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
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move {
                for setting in session {
                    connection.execute(sqlx::AssertSqlSafe(setting)).await?;
                }
                Ok(())
            })
        })
        .connect_lazy_with(connect);
    let driver = MySqlDriver {
        name,
        pool,
        migrate: timeouts.migrate,
    };
    Ok(SqlSnapshots::new(Box::new(driver), options.snapshots))
}

fn session_settings(lock_wait: Millis) -> Vec<String> {
    let seconds = lock_wait.0.div_ceil(1_000).max(1);
    vec![
        // Locks only the selected rows, not the gaps between them: claims and upserts do not block each other.
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED".to_owned(),
        // A value that does not fit is an error, whatever the server's setting.
        "SET SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_TRANS_TABLES')".to_owned(),
        format!("SET SESSION innodb_lock_wait_timeout = {seconds}"),
    ]
}

#[derive(Debug)]
struct MySqlDriver {
    name: String,
    pool: MySqlPool,
    migrate: Millis,
}

#[async_trait]
impl Driver for MySqlDriver {
    fn dialect(&self) -> Dialect {
        Dialect::MySql
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn meaning(&self, error: &dyn DatabaseError) -> Meaning {
        let number = error
            .try_downcast_ref::<MySqlDatabaseError>()
            .map_or(0, MySqlDatabaseError::number);
        match number {
            1213 => Meaning::Conflict,
            1146 => Meaning::NoTable,
            // No memory, full disk or table, too many clients, shutting down, killed, network, lock wait, time
            // limits, or a read-only server after a failover.
            1021
            | 1037
            | 1038
            | 1040
            | 1041
            | 1053
            | 1077..=1079
            | 1114
            | 1135
            | 1158..=1161
            | 1184
            | 1203
            | 1205
            | 1206
            | 1226
            | 1290
            | 1317
            | 1836
            | 1927
            | 1969
            | 3024
            | 4031 => Meaning::Transient,
            _ => Meaning::Permanent,
        }
    }

    async fn reader(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(MySqlSession::Lent(Lent::from(&self.pool).await?)))
    }

    async fn begin(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        Ok(Box::new(MySqlSession::Lent(Lent::begin(&self.pool).await?)))
    }

    async fn begin_migration(&self) -> Result<Box<dyn Session>, sqlx::Error> {
        // The lock belongs to the connection. This one does not return to the pool: it ends, and the lock with it.
        let mut connection = self.pool.acquire().await?.detach();
        let row = sqlx::query("SELECT GET_LOCK(CONCAT('tidegate:', MD5(DATABASE())), ?)")
            .bind(i64::try_from(self.migrate.0 / 1_000).unwrap_or(i64::MAX).max(1))
            .fetch_one(&mut connection)
            .await?;
        if row.try_get_unchecked::<Option<i64>, _>(0)? != Some(1) {
            return Err(sqlx::Error::Protocol(
                "another process is migrating and does not end".to_owned(),
            ));
        }
        Ok(Box::new(MySqlSession::Migration(connection)))
    }
}

enum MySqlSession {
    Lent(Lent<MySql>),
    Migration(MySqlConnection),
}

impl MySqlSession {
    fn connection(&mut self) -> Result<&mut MySqlConnection, sqlx::Error> {
        match self {
            MySqlSession::Lent(lent) => lent.connection(),
            MySqlSession::Migration(connection) => Ok(connection),
        }
    }

    fn heard<T>(&mut self, answer: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        match self {
            MySqlSession::Lent(lent) => lent.heard(answer),
            MySqlSession::Migration(_) => answer,
        }
    }

    async fn end(self) -> Result<(), sqlx::Error> {
        match self {
            MySqlSession::Lent(lent) => lent.commit().await,
            MySqlSession::Migration(connection) => connection.close().await,
        }
    }
}

session!(MySqlSession, MySql, MySql);
