//! The refresh part as a library: records that are read at once and kept fresh behind the reader's back.
//!
//! ```no_run
//! use tidegate::records::{BudgetConfig, Fetch, FetchOutcome, Projected, Records};
//!
//! # async fn example() -> Result<(), tidegate::records::RefreshError> {
//! let records = Records::open("data")
//!     .budget("api", BudgetConfig::default())?
//!     .source("character", "api", Fetch::by(|key| async move {
//!         let name = key.to_uppercase(); // a call to the provider, in earnest
//!         FetchOutcome::Fetched(Projected::json(format!("{{\"name\":{name:?}}}")))
//!     }))?
//!     .start()
//!     .await?;
//!
//! let now = records.read("character", "anna").await?; // at once; asks for a refresh if there is need
//! println!("{:?}", now.freshness);
//! let mut follower = records.follow("character", "anna")?;
//! while let Some(record) = follower.next().await {
//!     println!("{:?}", record?.freshness);
//! }
//! records.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything is in one data folder here. Other places have the same seams: [`RefreshOptions`] takes any store, log and
//! database, [`RefreshService`] runs them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_log::Log;
use tidegate_log::embedded::{EmbeddedLog, EmbeddedOptions};
use tidegate_snapshots::Snapshots;
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_store::refresh::{EmbeddedRefreshOptions, EmbeddedRefreshStore, RefreshSettings};

pub use tidegate_core::budget::BudgetConfig;
pub use tidegate_core::refresh::freshness::Freshness;
pub use tidegate_engine::refresh::{
    PublishOutcome, RecordFollower, RecordView, RefreshError, RefreshHandle, RefreshOptions, RefreshService,
    SourceOptions,
};
pub use tidegate_source::{
    FetchOutcome, FetchParams, Fetcher, PermanentCode, Projected, Projection, TransientCode, pack, unpack,
};

/// How long a request for a refresh waits to hear that it is queued.
const ASK: Duration = Duration::from_secs(1);

/// A function as a [`Fetcher`].
pub struct Fetch<F>(F);

impl<F> Fetch<F> {
    /// One attempt to get the record of a key.
    pub fn by<R>(fetch: F) -> Self
    where
        F: Fn(String) -> R + Send + Sync + 'static,
        R: Future<Output = FetchOutcome> + Send + 'static,
    {
        Self(fetch)
    }
}

impl<F> fmt::Debug for Fetch<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fetch")
    }
}

#[async_trait]
impl<F, R> Fetcher for Fetch<F>
where
    F: Fn(String) -> R + Send + Sync + 'static,
    R: Future<Output = FetchOutcome> + Send + 'static,
{
    async fn fetch(&self, params: FetchParams) -> FetchOutcome {
        (self.0)(params.key).await
    }
}

/// Budgets and sources, before anything runs.
#[derive(Debug)]
pub struct RecordsSetup {
    folder: PathBuf,
    budgets: BTreeMap<TargetId, BudgetConfig>,
    sources: BTreeMap<SourceId, SourceOptions>,
}

/// Records that are kept fresh, all in one data folder.
#[derive(Debug)]
pub struct Records {
    service: RefreshService,
    store: Arc<EmbeddedRefreshStore>,
    log: Arc<dyn Log>,
}

fn invalid(error: impl fmt::Display) -> RefreshError {
    RefreshError::Config(error.to_string())
}

impl RecordsSetup {
    /// How many calls a provider takes.
    pub fn budget(mut self, target: &str, budget: BudgetConfig) -> Result<Self, RefreshError> {
        budget.validate(target).map_err(invalid)?;
        self.budgets
            .insert(TargetId::new(target).map_err(invalid)?, budget);
        Ok(self)
    }

    /// Where records of one kind come from, and whose budget their calls are taken from.
    pub fn source(self, name: &str, target: &str, fetcher: impl Fetcher) -> Result<Self, RefreshError> {
        let target = TargetId::new(target).map_err(invalid)?;
        self.source_with(name, SourceOptions::new(target, Arc::new(fetcher)))
    }

    /// The same, with times to live, rules for keys and more.
    pub fn source_with(mut self, name: &str, options: SourceOptions) -> Result<Self, RefreshError> {
        let Some(budget) = self.budgets.get(&options.target) else {
            let target = &options.target;
            return Err(invalid(format!(
                "source {name:?} names the budget {target:?}, which there is not: call `budget` first"
            )));
        };
        let options = SourceOptions {
            zone: budget.zone,
            ..options
        };
        self.sources
            .insert(SourceId::new(name).map_err(invalid)?, options);
        Ok(self)
    }

    /// Opens the folder and begins to work.
    pub async fn start(self) -> Result<Records, RefreshError> {
        let Self {
            folder,
            budgets,
            sources,
        } = self;
        let store = Arc::new(EmbeddedRefreshStore::open(EmbeddedRefreshOptions {
            settings: RefreshSettings {
                budgets,
                ..RefreshSettings::default()
            },
            ..EmbeddedRefreshOptions::new(&folder)
        })?);
        let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(EmbeddedOptions::new(
            folder.join("refresh-log"),
        ))?);
        let mut database = SqliteOptions::new(folder.join("snapshots.db"));
        // Replaced snapshots are kept for an archive, and the library runs none: they would only grow.
        database.snapshots.history = false;
        let snapshots = sqlite::open(database).await?;
        snapshots.migrate().await?;
        let options = RefreshOptions {
            sources,
            ..RefreshOptions::new(store.clone(), log.clone(), Arc::new(snapshots))
        };
        Ok(Records {
            service: RefreshService::start(options).await?,
            store,
            log,
        })
    }
}

impl Records {
    /// In a data folder, which is made if it is missing.
    pub fn open(folder: impl Into<PathBuf>) -> RecordsSetup {
        RecordsSetup {
            folder: folder.into(),
            budgets: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }

    /// What is known, at once. Asks for a refresh if it is stale or missing.
    pub async fn read(&self, source: &str, key: &str) -> Result<RecordView, RefreshError> {
        self.handle().read(&record(source, key)?, None).await
    }

    /// A user asks for a refresh; returns when it is queued.
    pub async fn refresh(&self, source: &str, key: &str) -> Result<PublishOutcome, RefreshError> {
        self.handle()
            .request_refresh(&record(source, key)?, None, ASK)
            .await
    }

    /// Follows a record until it is fresh, known to be absent, or given up.
    pub fn follow(&self, source: &str, key: &str) -> Result<RecordFollower, RefreshError> {
        self.handle().follow(record(source, key)?, None)
    }

    /// Everything else: many reads at once, dead letters, budgets, counters.
    pub fn handle(&self) -> RefreshHandle {
        self.service.handle()
    }

    /// What is begun finishes; what waits is there at the next start. The folder is free for it when all handles and
    /// followers are gone, too.
    pub async fn shutdown(self) -> Result<(), RefreshError> {
        let ended = self.service.shutdown().await;
        self.log.close().await;
        self.store.close().await?;
        ended
    }
}

fn record(source: &str, key: &str) -> Result<RecordId, RefreshError> {
    Ok(RecordId {
        source: SourceId::new(source).map_err(invalid)?,
        key: RecordKey::new(key).map_err(invalid)?,
    })
}
