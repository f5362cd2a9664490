//! The tables, and how a database gets them.
//!
//! - `snapshot`: one row per record. `data`, `hash` and the two times are null for a record that is registered but
//!   was never fetched. `tier`, `prefetch_at` and `claimed_until` serve the prefetch alone: see `prefetch.rs`.
//! - `update_status`: rows only for what is not as it should be.
//! - `snapshot_history`: what was replaced. `restored_until` is null for what no archive has yet.
//! - `dead_letter_mark`: dead letters that were dealt with.
//! - `schema_version`: one row per migration that was carried out.
//!
//! Names given by users are stored as bytes: they may have any characters, and are equal only if every byte is.
//! Times are milliseconds since the Unix epoch.

use super::SqlSnapshots;
use super::driver::{Fault, Session};
use super::statement::{Dialect, Statement};
use crate::SnapshotsError;

/// The schema that this program reads and writes.
pub const SCHEMA_VERSION: u32 = 1;

/// Statements of each migration; the first one leads from nothing to schema 1. On MySQL every one of them commits by
/// itself, so each must do no harm when it is repeated.
fn migrations(dialect: Dialect) -> [&'static [&'static str]; SCHEMA_VERSION as usize] {
    match dialect {
        Dialect::Sqlite => [SQLITE_1],
        Dialect::Postgres => [POSTGRES_1],
        Dialect::MySql => [MYSQL_1],
    }
}

const SQLITE_1: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS snapshot (
        source BLOB NOT NULL,
        record_key BLOB NOT NULL,
        version INTEGER NOT NULL,
        hash BLOB,
        last_checked_at INTEGER,
        last_updated_at INTEGER,
        active_at INTEGER,
        tier INTEGER NOT NULL,
        prefetch_at INTEGER NOT NULL,
        claimed_until INTEGER NOT NULL DEFAULT 0,
        data BLOB,
        PRIMARY KEY (source, record_key)
    ) STRICT",
    "CREATE INDEX IF NOT EXISTS idx_prefetch ON snapshot (source, tier, prefetch_at)",
    "CREATE TABLE IF NOT EXISTS update_status (
        source BLOB NOT NULL,
        record_key BLOB NOT NULL,
        version INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('RETRYING', 'FAILED')),
        absent INTEGER NOT NULL,
        fail_count INTEGER NOT NULL,
        last_error_code TEXT NOT NULL,
        last_error_message TEXT NOT NULL,
        next_retry_at INTEGER,
        event BLOB,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        PRIMARY KEY (source, record_key)
    ) STRICT",
    "CREATE INDEX IF NOT EXISTS idx_state_next_retry ON update_status (state, next_retry_at)",
    "CREATE TABLE IF NOT EXISTS snapshot_history (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        source BLOB NOT NULL,
        record_key BLOB NOT NULL,
        version INTEGER NOT NULL,
        hash BLOB NOT NULL,
        last_checked_at INTEGER NOT NULL,
        last_updated_at INTEGER NOT NULL,
        replaced_at INTEGER NOT NULL,
        restored_until INTEGER,
        data BLOB NOT NULL,
        UNIQUE (source, record_key, version, hash)
    ) STRICT",
    "CREATE INDEX IF NOT EXISTS idx_history_replaced ON snapshot_history (source, replaced_at, id)",
    "CREATE INDEX IF NOT EXISTS idx_history_restored ON snapshot_history (restored_until)",
    "CREATE TABLE IF NOT EXISTS dead_letter_mark (
        log_partition INTEGER NOT NULL,
        log_offset INTEGER NOT NULL,
        how TEXT NOT NULL CHECK (how IN ('replayed', 'purged')),
        marked_at INTEGER NOT NULL,
        marked_by TEXT NOT NULL,
        PRIMARY KEY (log_partition, log_offset)
    ) STRICT, WITHOUT ROWID",
];

const POSTGRES_1: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS snapshot (
        source BYTEA NOT NULL,
        record_key BYTEA NOT NULL,
        version BIGINT NOT NULL,
        hash BYTEA,
        last_checked_at BIGINT,
        last_updated_at BIGINT,
        active_at BIGINT,
        tier BIGINT NOT NULL,
        prefetch_at BIGINT NOT NULL,
        claimed_until BIGINT NOT NULL DEFAULT 0,
        data BYTEA,
        PRIMARY KEY (source, record_key)
    )",
    // What is stored is packed already: trying to pack it again only costs time.
    "ALTER TABLE snapshot ALTER COLUMN data SET STORAGE EXTERNAL",
    "CREATE INDEX IF NOT EXISTS idx_prefetch ON snapshot (source, tier, prefetch_at)",
    "CREATE TABLE IF NOT EXISTS update_status (
        source BYTEA NOT NULL,
        record_key BYTEA NOT NULL,
        version BIGINT NOT NULL,
        state VARCHAR(8) NOT NULL CHECK (state IN ('RETRYING', 'FAILED')),
        absent BIGINT NOT NULL,
        fail_count BIGINT NOT NULL,
        last_error_code VARCHAR(50) NOT NULL,
        last_error_message VARCHAR(1000) NOT NULL,
        next_retry_at BIGINT,
        event BYTEA,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (source, record_key)
    )",
    "CREATE INDEX IF NOT EXISTS idx_state_next_retry ON update_status (state, next_retry_at)",
    "CREATE TABLE IF NOT EXISTS snapshot_history (
        id BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
        source BYTEA NOT NULL,
        record_key BYTEA NOT NULL,
        version BIGINT NOT NULL,
        hash BYTEA NOT NULL,
        last_checked_at BIGINT NOT NULL,
        last_updated_at BIGINT NOT NULL,
        replaced_at BIGINT NOT NULL,
        restored_until BIGINT,
        data BYTEA NOT NULL,
        UNIQUE (source, record_key, version, hash)
    )",
    "ALTER TABLE snapshot_history ALTER COLUMN data SET STORAGE EXTERNAL",
    "CREATE INDEX IF NOT EXISTS idx_history_replaced ON snapshot_history (source, replaced_at, id)",
    "CREATE INDEX IF NOT EXISTS idx_history_restored ON snapshot_history (restored_until)
        WHERE restored_until IS NOT NULL",
    "CREATE TABLE IF NOT EXISTS dead_letter_mark (
        log_partition BIGINT NOT NULL,
        log_offset BIGINT NOT NULL,
        how VARCHAR(8) NOT NULL CHECK (how IN ('replayed', 'purged')),
        marked_at BIGINT NOT NULL,
        marked_by VARCHAR(256) NOT NULL,
        PRIMARY KEY (log_partition, log_offset)
    )",
];

const MYSQL_1: &[&str] = &[
    "CREATE TABLE IF NOT EXISTS snapshot (
        source VARBINARY(256) NOT NULL,
        record_key VARBINARY(256) NOT NULL,
        version BIGINT NOT NULL,
        hash BINARY(32),
        last_checked_at BIGINT,
        last_updated_at BIGINT,
        active_at BIGINT,
        tier BIGINT NOT NULL,
        prefetch_at BIGINT NOT NULL,
        claimed_until BIGINT NOT NULL DEFAULT 0,
        data LONGBLOB,
        PRIMARY KEY (source, record_key),
        INDEX idx_prefetch (source, tier, prefetch_at)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS update_status (
        source VARBINARY(256) NOT NULL,
        record_key VARBINARY(256) NOT NULL,
        version BIGINT NOT NULL,
        state ENUM('RETRYING', 'FAILED') NOT NULL,
        absent BIGINT NOT NULL,
        fail_count BIGINT NOT NULL,
        last_error_code VARCHAR(50) NOT NULL,
        last_error_message VARCHAR(1000) NOT NULL,
        next_retry_at BIGINT,
        event LONGBLOB,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (source, record_key),
        INDEX idx_state_next_retry (state, next_retry_at)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS snapshot_history (
        id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
        source VARBINARY(256) NOT NULL,
        record_key VARBINARY(256) NOT NULL,
        version BIGINT NOT NULL,
        hash BINARY(32) NOT NULL,
        last_checked_at BIGINT NOT NULL,
        last_updated_at BIGINT NOT NULL,
        replaced_at BIGINT NOT NULL,
        restored_until BIGINT,
        data LONGBLOB NOT NULL,
        UNIQUE INDEX idx_history_change (source, record_key, version, hash),
        INDEX idx_history_replaced (source, replaced_at, id),
        INDEX idx_history_restored (restored_until)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin",
    "CREATE TABLE IF NOT EXISTS dead_letter_mark (
        log_partition BIGINT NOT NULL,
        log_offset BIGINT NOT NULL,
        how ENUM('replayed', 'purged') NOT NULL,
        marked_at BIGINT NOT NULL,
        marked_by VARCHAR(256) NOT NULL,
        PRIMARY KEY (log_partition, log_offset)
    ) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin",
];

const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL PRIMARY KEY)";
const VERSION_TABLE_SQLITE: &str =
    "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL PRIMARY KEY) STRICT";

impl SqlSnapshots {
    pub(super) async fn check_schema(&self) -> Result<(), Fault> {
        let mut session = self.driver.reader().await?;
        match self.found(session.as_mut()).await? {
            Some(SCHEMA_VERSION) => Ok(()),
            Some(found) => Err(self.other_schema(found)),
            None => Err(Fault::Told(SnapshotsError::NoSchema {
                database: self.driver.name().to_owned(),
            })),
        }
    }

    pub(super) async fn migrate_schema(&self) -> Result<(), Fault> {
        let dialect = self.driver.dialect();
        let mut session = self.driver.begin_migration().await?;
        let table = match dialect {
            Dialect::Sqlite => VERSION_TABLE_SQLITE,
            _ => VERSION_TABLE,
        };
        session.run(Statement::new(dialect, table)).await?;
        let found = self.found(session.as_mut()).await?.unwrap_or(0);
        if found > SCHEMA_VERSION {
            return Err(self.other_schema(found));
        }
        for (done, statements) in migrations(dialect).iter().enumerate().skip(found as usize) {
            for sql in *statements {
                session.run(Statement::new(dialect, sql)).await?;
            }
            let version = done as i64 + 1;
            tracing::info!(
                database = self.driver.name(),
                version,
                "schema brought up to date"
            );
            let insert = Statement::new(dialect, "INSERT INTO schema_version (version) VALUES (");
            session.run(insert.int(version).push(")")).await?;
        }
        Ok(session.commit().await?)
    }

    /// The schema that the database has; `None` if it has a table for that, but nothing in it.
    async fn found(&self, session: &mut dyn Session) -> Result<Option<u32>, Fault> {
        let select = Statement::new(
            self.driver.dialect(),
            "SELECT version FROM schema_version ORDER BY version DESC LIMIT 1",
        );
        let rows = session.fetch(select).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let version = row.int(0)?;
        u32::try_from(version)
            .map(Some)
            .map_err(|_| Fault::Odd(format!("schema_version says {version}")))
    }

    fn other_schema(&self, found: u32) -> Fault {
        Fault::Told(SnapshotsError::OtherSchema {
            database: self.driver.name().to_owned(),
            found,
        })
    }
}
