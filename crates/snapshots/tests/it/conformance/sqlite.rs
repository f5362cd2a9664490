//! The conformance suite over SQLite, each case with a file of its own.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Connection;
use tempfile::TempDir;
use tidegate_snapshots::conformance::{Backend, Database};
use tidegate_snapshots::sqlite::{self, Durability, SqliteOptions};
use tidegate_snapshots::{Snapshots, SnapshotsError, SnapshotsOptions, snapshots_conformance_suite};

struct Sqlite;

struct File {
    folder: TempDir,
}

#[async_trait]
impl Backend for Sqlite {
    async fn fresh(&self) -> Arc<dyn Database> {
        let folder = TempDir::new().expect("a temporary folder");
        Arc::new(File { folder })
    }
}

#[async_trait]
impl Database for File {
    async fn open(&self, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, SnapshotsError> {
        let options = SqliteOptions {
            // Durability is proven where a process is killed; here it would only cost time.
            durability: Durability::Buffered,
            snapshots,
            ..SqliteOptions::new(self.folder.path().join("snapshots.db"))
        };
        Ok(Arc::new(sqlite::open(options).await?))
    }

    async fn execute(&self, sql: &'static str) {
        let url = format!("sqlite://{}", self.folder.path().join("snapshots.db").display());
        let mut connection = sqlx::SqliteConnection::connect(&url)
            .await
            .expect("the file opens");
        sqlx::query(sql)
            .execute(&mut connection)
            .await
            .expect("a statement");
    }
}

snapshots_conformance_suite!(Sqlite);
