//! The database in the folder of a process, read and locked from outside.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Row};

/// Longer than any write of a process.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct SqliteFile(SqliteConnection);

impl SqliteFile {
    pub(crate) async fn open(file: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(file).busy_timeout(PATIENCE);
        Self(options.connect().await.unwrap())
    }

    pub(crate) async fn execute(&mut self, statement: &'static str) {
        sqlx::raw_sql(statement).execute(&mut self.0).await.unwrap();
    }

    /// The first number of the first row.
    pub(crate) async fn number(&mut self, query: &'static str) -> i64 {
        sqlx::query(query).fetch_one(&mut self.0).await.unwrap().get(0)
    }

    /// Nobody writes to the file until it is unlocked.
    pub(crate) async fn lock(&mut self) {
        self.execute("BEGIN EXCLUSIVE").await;
    }

    pub(crate) async fn unlock(&mut self) {
        self.execute("ROLLBACK").await;
    }
}
