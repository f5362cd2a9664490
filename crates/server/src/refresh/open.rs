//! Opens the refresh part's store, log and database from the settings. What is away is waited for a little, what does
//! not fit is refused at once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_log::embedded::EmbeddedLog;
use tidegate_log::redis::{RedisLog, RedisLogOptions};
use tidegate_log::{Log, Topic};
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_snapshots::{Snapshots, SnapshotsError, SnapshotsOptions, Timeouts};
use tidegate_store::Clock;
use tidegate_store::embedded::Durability;
use tidegate_store::refresh::{
    EmbeddedRefreshOptions, EmbeddedRefreshStore, RedisRefreshOptions, RedisRefreshStore, RefreshSettings,
    RefreshStore,
};
use tokio::time::Instant;

use crate::config::{Config, DatabaseKind, DurabilityConfig, LogKind, StoreKind};
use crate::service::ServiceError;

/// How long a database that is away at start is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);
/// Limit: how long a start looks whether the log is as configured.
const LOOK: Duration = Duration::from_secs(3);

/// The log's folder in the data folder.
const LOG_FOLDER: &str = "refresh-log";

/// The store, and how it is let go of.
pub(super) enum OpenStore {
    Embedded(Arc<EmbeddedRefreshStore>),
    Shared(Arc<dyn RefreshStore>),
}

impl OpenStore {
    pub(super) fn seam(&self) -> Arc<dyn RefreshStore> {
        match self {
            OpenStore::Embedded(store) => store.clone(),
            OpenStore::Shared(store) => store.clone(),
        }
    }

    pub(super) async fn close(self) -> Result<(), ServiceError> {
        match self {
            OpenStore::Embedded(store) => Ok(store.close().await?),
            OpenStore::Shared(_) => Ok(()),
        }
    }
}

pub(super) async fn store(config: &Config, clock: &Arc<dyn Clock>) -> Result<OpenStore, ServiceError> {
    let settings = RefreshSettings {
        budgets: config.budgets.clone(),
        coalescer: config.refresh.coalescer.clone(),
    };
    match config.store.kind {
        StoreKind::Embedded => {
            let store = EmbeddedRefreshStore::open(EmbeddedRefreshOptions {
                folder: config.store.data.clone(),
                durability: match config.store.durability {
                    DurabilityConfig::Sync => Durability::Sync,
                    DurabilityConfig::Buffered => Durability::Buffered,
                },
                settings,
                clock: clock.clone(),
            })?;
            Ok(OpenStore::Embedded(Arc::new(store)))
        }
        StoreKind::Redis => redis_store(config, settings).await,
    }
}

pub(super) async fn log(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Log>, ServiceError> {
    let (log, settings) = (&config.refresh.log, config.refresh.log.settings());
    let opened: Arc<dyn Log> = match config.log_kind() {
        LogKind::Embedded => {
            let options = tidegate_log::embedded::EmbeddedOptions {
                folder: config.store.data.join(LOG_FOLDER),
                settings,
                clock: clock.clone(),
            };
            Arc::new(EmbeddedLog::open(options)?)
        }
        LogKind::Redis => {
            let urls = match log.urls.is_empty() {
                true => config.redis.urls(),
                false => log.urls.iter().map(|url| url.expose().to_owned()).collect(),
            };
            let options = RedisLogOptions {
                urls,
                key_prefix: config.redis.key_prefix.clone(),
                settings,
                clock: None,
            };
            Arc::new(RedisLog::open(options)?)
        }
        LogKind::Kafka => kafka_log(config, settings)?,
    };
    // Another layout is told now. A log that is away is not: reads are answered without it.
    let looked = tokio::time::timeout(LOOK, opened.lag(Topic::High, &config.refresh.work.high_group)).await;
    match looked {
        Ok(Err(error)) if !error.is_retryable() => return Err(error.into()),
        Ok(Err(error)) => tracing::warn!(%error, "the log cannot be used yet; refreshes wait for it"),
        Err(_) => tracing::warn!("the log does not answer yet; refreshes wait for it"),
        Ok(Ok(_)) => {}
    }
    Ok(opened)
}

#[cfg(feature = "kafka")]
fn kafka_log(config: &Config, settings: tidegate_log::LogSettings) -> Result<Arc<dyn Log>, ServiceError> {
    use tidegate_log::kafka::{KafkaLog, KafkaLogOptions};
    let log = &config.refresh.log;
    let properties = log.properties.iter();
    let options = KafkaLogOptions {
        brokers: log.brokers.join(","),
        settings,
        properties: properties
            .map(|(name, value)| (name.clone(), value.expose().to_owned()))
            .collect(),
    };
    Ok(Arc::new(KafkaLog::open(options)?))
}

#[cfg(not(feature = "kafka"))]
fn kafka_log(_: &Config, _: tidegate_log::LogSettings) -> Result<Arc<dyn Log>, ServiceError> {
    Err(missing("refresh.log.kind = \"kafka\"", "kafka"))
}

/// Brings the database's schema up to date, as every start does. For commands: nothing else is started.
pub async fn migrate(config: &Config) -> Result<(), ServiceError> {
    open_snapshots(config).await.map(|_| ())
}

/// The database alone, up to date. For commands: nothing else is started.
pub async fn open_snapshots(config: &Config) -> Result<Arc<dyn Snapshots>, ServiceError> {
    config.validate()?;
    snapshots(config).await
}

/// The database, with the schema of this program.
pub(super) async fn snapshots(config: &Config) -> Result<Arc<dyn Snapshots>, ServiceError> {
    let section = &config.refresh.snapshots;
    let options = SnapshotsOptions {
        // Only the archive reads it: without one it would grow for ever.
        history: config.refresh.archive.to.is_some(),
        timeouts: Timeouts {
            read: config.refresh.query.read_timeout_ms,
            write: section.write_timeout_ms,
            ..Timeouts::default()
        },
        connections: section.connections,
    };
    let begun = Instant::now();
    loop {
        let opened = match connect(config, options.clone()).await {
            Ok(snapshots) => snapshots.migrate().await.map(|()| snapshots),
            Err(Unusable::Now(error)) => Err(error),
            Err(Unusable::Ever(error)) => return Err(error),
        };
        match opened {
            Ok(snapshots) => return Ok(snapshots),
            Err(error) if error.is_retryable() && begun.elapsed() < PATIENCE => {
                tracing::debug!(%error, "the database is waited for");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

enum Unusable {
    Now(SnapshotsError),
    Ever(ServiceError),
}

impl From<SnapshotsError> for Unusable {
    fn from(error: SnapshotsError) -> Self {
        Self::Now(error)
    }
}

async fn connect(config: &Config, options: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, Unusable> {
    match config.refresh.snapshots.kind() {
        Some(DatabaseKind::Postgres) => postgres(config, options),
        Some(DatabaseKind::Mysql) => mysql(config, options),
        Some(DatabaseKind::Sqlite) | None => {
            let file = config.snapshots_file();
            folder_of(&file)?;
            let durability = match config.store.durability {
                DurabilityConfig::Sync => sqlite::Durability::Sync,
                DurabilityConfig::Buffered => sqlite::Durability::Buffered,
            };
            let options = SqliteOptions {
                file,
                durability,
                snapshots: options,
            };
            Ok(Arc::new(sqlite::open(options).await?))
        }
    }
}

/// SQLite makes the file, but no folder.
fn folder_of(file: &Path) -> Result<(), Unusable> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|error| {
        let reason = format!("the folder {} cannot be used: {error}", folder.display());
        Unusable::Ever(ServiceError::Refresh(reason))
    })
}

#[cfg(feature = "postgres")]
fn postgres(config: &Config, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, Unusable> {
    use tidegate_snapshots::postgres::{self, PostgresOptions};
    let url = config.refresh.snapshots.url.expose().to_owned();
    Ok(Arc::new(postgres::open(PostgresOptions { url, snapshots })?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &Config, _: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, Unusable> {
    Err(Unusable::Ever(missing(
        "refresh.snapshots.url = \"postgres://…\"",
        "postgres",
    )))
}

#[cfg(feature = "mysql")]
fn mysql(config: &Config, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, Unusable> {
    use tidegate_snapshots::mysql::{self, MySqlOptions};
    let url = config.refresh.snapshots.url.expose().to_owned();
    Ok(Arc::new(mysql::open(MySqlOptions { url, snapshots })?))
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &Config, _: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, Unusable> {
    Err(Unusable::Ever(missing(
        "refresh.snapshots.url = \"mysql://…\"",
        "mysql",
    )))
}

#[cfg(not(all(feature = "kafka", feature = "postgres", feature = "mysql")))]
fn missing(setting: &str, feature: &str) -> ServiceError {
    match crate::config::need_feature(setting, feature, false) {
        Err(error) => error.into(),
        Ok(()) => unreachable!("a feature that is not built in is refused"),
    }
}

/// Beside the bulk store's keys, under a name of its own.
async fn redis_store(config: &Config, settings: RefreshSettings) -> Result<OpenStore, ServiceError> {
    let options = RedisRefreshOptions {
        urls: config.redis.urls(),
        prefix: format!("{}refresh:", config.redis.key_prefix),
        settings,
        clock: None,
    };
    let store = match config.only_queries() {
        true => RedisRefreshStore::open_lazily(options)?,
        false => RedisRefreshStore::open(options).await?,
    };
    Ok(OpenStore::Shared(Arc::new(store)))
}
