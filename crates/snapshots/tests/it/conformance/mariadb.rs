//! The conformance suite over a MariaDB server, each case in a database of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_snapshots::conformance::{Backend, Database};
use tidegate_snapshots::mysql::{self, MySqlOptions};
use tidegate_snapshots::{Snapshots, SnapshotsError, SnapshotsOptions, snapshots_conformance_suite};
use tidegate_testkit::servers::{MariaDbServer, SqlOptions};
use tokio::task::block_in_place;

static DATABASES: AtomicU64 = AtomicU64::new(0);

struct MariaDb;

struct OnServer {
    name: String,
    url: String,
    /// `None`: the shared one.
    server: Option<Mutex<MariaDbServer>>,
}

impl OnServer {
    fn fresh(server: Option<MariaDbServer>) -> Arc<dyn Database> {
        let name = format!("case_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
        let url = server
            .as_ref()
            .unwrap_or_else(|| MariaDbServer::shared())
            .create_database(&name);
        Arc::new(Self {
            url: url.expect("a database"),
            name,
            server: server.map(Mutex::new),
        })
    }
}

#[async_trait]
impl Backend for MariaDb {
    async fn fresh(&self) -> Arc<dyn Database> {
        block_in_place(|| OnServer::fresh(None))
    }

    async fn fresh_to_restart(&self) -> Arc<dyn Database> {
        block_in_place(|| {
            let server = MariaDbServer::start(SqlOptions::default()).expect("a server");
            OnServer::fresh(Some(server))
        })
    }
}

#[async_trait]
impl Database for OnServer {
    async fn open(&self, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, SnapshotsError> {
        let options = MySqlOptions {
            snapshots,
            ..MySqlOptions::new(&self.url)
        };
        Ok(Arc::new(mysql::open(options)?))
    }

    async fn execute(&self, sql: &'static str) {
        block_in_place(|| MariaDbServer::shared().execute(&self.name, sql)).expect("a statement");
    }

    async fn restart(&self) {
        let server = self.server.as_ref().expect("a server of its own");
        block_in_place(|| server.lock().unwrap_or_else(PoisonError::into_inner).restart())
            .expect("a restart");
    }
}

snapshots_conformance_suite!(MariaDb);
