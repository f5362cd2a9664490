//! Cached records as a library: reads return at once, and a background service keeps the records fresh.
//!
//! ```no_run
//! use tidegate::refresh::{BudgetConfig, Fetch, FetchOutcome, Projected, Records};
//!
//! # async fn example() -> Result<(), tidegate::refresh::RefreshError> {
//! let records = Records::open("data")
//!     .budget("api", BudgetConfig::default())?
//!     .source("character", "api", Fetch::by(|key| async move {
//!         let name = key.to_uppercase(); // in earnest, a call to the provider
//!         FetchOutcome::Fetched(Projected::json(format!("{{\"name\":{name:?}}}")))
//!     }))?
//!     .start()
//!     .await?;
//!
//! let record = records.read("character", "anna").await?; // returns at once; requests a refresh if necessary
//! println!("{:?}", record.freshness);
//! let mut follower = records.follow("character", "anna")?;
//! while let Some(record) = follower.next().await {
//!     println!("{:?}", record?.freshness);
//! }
//! drop(follower);
//! records.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Records`] keeps everything in one data folder. For other backends, [`RefreshOptions`] takes any store,
//! [`log`] and database ([`snapshots`]), and [`RefreshService`] runs them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_log::Log;
use tidegate_log::embedded::{EmbeddedLog, EmbeddedLogOptions};
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
#[cfg(feature = "http")]
pub use tidegate_source::{HttpFetcher, SettingsError, SourceSettings};

pub use tidegate_log as log;
pub use tidegate_snapshots as snapshots;
pub use tidegate_store::refresh as store;

/// How long a refresh request waits for the confirmation that it is queued.
const ASK: Duration = Duration::from_secs(1);

/// A [`Fetcher`] from an async function.
pub struct Fetch<F>(F);

impl<F> Fetch<F> {
    /// Wraps a function that makes one attempt to fetch the record of a key.
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

/// The budgets and sources of [`Records`], before the service runs.
#[derive(Debug)]
pub struct RecordsSetup {
    folder: PathBuf,
    budgets: BTreeMap<TargetId, BudgetConfig>,
    sources: BTreeMap<SourceId, SourceOptions>,
}

/// Cached records in one data folder, and the service that refreshes them.
///
/// ```no_run
/// use tidegate::refresh::Records;
///
/// # async fn example(records: Records) -> Result<(), tidegate::refresh::RefreshError> {
/// let outcome = records.refresh("character", "anna").await?;
/// println!("queued: {}", outcome.is_queued());
///
/// let record = records.read("character", "anna").await?;
/// match record.snapshot {
///     Some(snapshot) => println!("{:?}, checked at {:?}", record.freshness, snapshot.last_checked_at),
///     None => println!("no data yet"),
/// }
/// # Ok(())
/// # }
/// ```
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
    /// Sets the call budget of a target: its rate and its daily quota.
    pub fn budget(mut self, target: &str, budget: BudgetConfig) -> Result<Self, RefreshError> {
        budget.validate(target).map_err(invalid)?;
        self.budgets
            .insert(TargetId::new(target).map_err(invalid)?, budget);
        Ok(self)
    }

    /// Adds a source of records with default options. The budget of `target` pays for its calls.
    pub fn source(self, name: &str, target: &str, fetcher: impl Fetcher) -> Result<Self, RefreshError> {
        let target = TargetId::new(target).map_err(invalid)?;
        self.source_with(name, SourceOptions::new(target, Arc::new(fetcher)))
    }

    /// Adds a source of records with its own tiers, key rule and prefetching. The time zone of its budget
    /// replaces `zone`.
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

    /// Opens the data folder and starts the service.
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
        let log: Arc<dyn Log> = Arc::new(EmbeddedLog::open(EmbeddedLogOptions::new(&folder))?);
        let mut database = SqliteOptions::new(folder.join("snapshots.db"));
        // History is for an archive. The library runs none, so the history would only grow.
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
    /// Starts the setup in a data folder, which [`start`](RecordsSetup::start) creates if it is missing.
    pub fn open(folder: impl Into<PathBuf>) -> RecordsSetup {
        RecordsSetup {
            folder: folder.into(),
            budgets: BTreeMap::new(),
            sources: BTreeMap::new(),
        }
    }

    /// Reads a record: returns the stored snapshot at once, and requests a refresh if it is stale or missing.
    pub async fn read(&self, source: &str, key: &str) -> Result<RecordView, RefreshError> {
        self.handle().read(&record(source, key)?, None).await
    }

    /// Requests a refresh with high priority, also of a fresh record. Returns when the log has confirmed it,
    /// after a second at the latest.
    pub async fn refresh(&self, source: &str, key: &str) -> Result<PublishOutcome, RefreshError> {
        self.handle()
            .request_refresh(&record(source, key)?, None, ASK)
            .await
    }

    /// Follows a record until it is fresh, known to be absent, or failed for good.
    pub fn follow(&self, source: &str, key: &str) -> Result<RecordFollower, RefreshError> {
        self.handle().follow(record(source, key)?, None)
    }

    /// Returns the handle for everything else: reads of many records, dead letters, budgets, counters.
    pub fn handle(&self) -> RefreshHandle {
        self.service.handle()
    }

    /// Finishes the refreshes in progress and stops; the folder keeps pending ones for the next start. Drop all
    /// handles and followers, too: they hold the folder.
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
