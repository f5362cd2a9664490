//! The conformance suite over a PostgreSQL server, each case in a database of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_snapshots::conformance::{Backend, Database};
use tidegate_snapshots::postgres::{self, PostgresOptions};
use tidegate_snapshots::{Snapshots, SnapshotsError, SnapshotsOptions, snapshots_conformance_suite};
use tidegate_testkit::servers::{PostgresServer, SqlOptions};
use tokio::task::block_in_place;

static DATABASES: AtomicU64 = AtomicU64::new(0);

struct Postgres;

struct OnServer {
    name: String,
    url: String,
    /// `None`: the shared one.
    server: Option<Mutex<PostgresServer>>,
}

impl OnServer {
    fn fresh(server: Option<PostgresServer>) -> Arc<dyn Database> {
        let name = format!("case_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let url = server
            .as_ref()
            .unwrap_or_else(|| PostgresServer::shared())
            .create_database(&name);
        Arc::new(Self {
            url: url.expect("a database"),
            name,
            server: server.map(Mutex::new),
        })
    }
}

#[async_trait]
impl Backend for Postgres {
    async fn fresh(&self) -> Arc<dyn Database> {
        block_in_place(|| OnServer::fresh(None))
    }

    async fn fresh_to_restart(&self) -> Arc<dyn Database> {
        block_in_place(|| {
            let server = PostgresServer::start(SqlOptions::default()).expect("a server");
            OnServer::fresh(Some(server))
        })
    }
}

#[async_trait]
impl Database for OnServer {
    async fn open(&self, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, SnapshotsError> {
        let options = PostgresOptions {
            snapshots,
            ..PostgresOptions::new(&self.url)
        };
        Ok(Arc::new(postgres::open(options)?))
    }

    async fn execute(&self, sql: &'static str) {
        block_in_place(|| PostgresServer::shared().execute(&self.name, sql)).expect("a statement");
    }

    async fn restart(&self) {
        let server = self.server.as_ref().expect("a server of its own");
        block_in_place(|| server.lock().unwrap_or_else(PoisonError::into_inner).restart())
            .expect("a restart");
    }
}

snapshots_conformance_suite!(Postgres);
