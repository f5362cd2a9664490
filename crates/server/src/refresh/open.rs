//! Opens the store, the log and the database of the refresh module. A start waits for an unavailable one for a short time, and
//! fails at once if one does not match the configuration.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::clock::Clock;
use tidegate_durable::Durability;
use tidegate_log::embedded::EmbeddedLog;
use tidegate_log::redis::{RedisLog, RedisLogOptions};
use tidegate_log::{Log, Topic};
use tidegate_snapshots::sqlite::{self, SqliteOptions};
use tidegate_snapshots::{Snapshots, SnapshotsError, SnapshotsOptions, Timeouts};
use tidegate_store::refresh::{
    EmbeddedRefreshOptions, EmbeddedRefreshStore, RedisRefreshOptions, RedisRefreshStore, RefreshSettings,
    RefreshStore,
};
use tokio::time::Instant;

use crate::config::{Config, DatabaseKind, LogKind, StoreKind};
use crate::service::ServiceError;

/// How long a start waits for an unavailable database.
const MAX_WAIT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(250);
/// Limit: how long a start checks whether the log matches the configuration.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// The opened store. Only an embedded one has to be closed.
pub(crate) enum OpenStore {
    Embedded(Arc<EmbeddedRefreshStore>),
    Shared(Arc<dyn RefreshStore>),
}

impl OpenStore {
    pub(crate) fn store(&self) -> Arc<dyn RefreshStore> {
        match self {
            OpenStore::Embedded(store) => store.clone(),
            OpenStore::Shared(store) => store.clone(),
        }
    }

    pub(crate) async fn close(self) -> Result<(), ServiceError> {
        match self {
            OpenStore::Embedded(store) => Ok(store.close().await?),
            OpenStore::Shared(_) => Ok(()),
        }
    }
}

pub(crate) async fn store(config: &Config, clock: &Arc<dyn Clock>) -> Result<OpenStore, ServiceError> {
    let settings = RefreshSettings {
        budgets: config.budgets.clone(),
        coalescer: config.refresh.coalescer.clone(),
    };
    match config.store.kind {
        StoreKind::Embedded => {
            let store = EmbeddedRefreshStore::open(EmbeddedRefreshOptions {
                folder: config.store.data.clone(),
                durability: config.store.durability,
                settings,
                clock: clock.clone(),
            })?;
            Ok(OpenStore::Embedded(Arc::new(store)))
        }
        StoreKind::Redis => redis_store(config, settings).await,
    }
}

pub(crate) async fn log(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn Log>, ServiceError> {
    let (log, settings) = (&config.refresh.log, config.refresh.log.settings());
    let opened: Arc<dyn Log> = match config.log_kind() {
        LogKind::Embedded => {
            let options = tidegate_log::embedded::EmbeddedLogOptions {
                folder: config.store.data.clone(),
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
    // A log with another layout fails the start. An unavailable log does not, because reads do not need it.
    let lag = opened.lag(Topic::High, &config.refresh.work.high_group);
    match tokio::time::timeout(CHECK_TIMEOUT, lag).await {
        Ok(Err(error)) if !error.is_retryable() => return Err(error.into()),
        Ok(Err(error)) => tracing::warn!(%error, "the log is unavailable; refreshes wait for it"),
        Err(_) => tracing::warn!("the log does not answer; refreshes wait for it"),
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

/// Migrates the database's schema, as every start does. Starts nothing else, for use by commands.
pub async fn migrate(config: &Config) -> Result<(), ServiceError> {
    open_snapshots(config).await.map(|_| ())
}

/// Opens the database with a current schema. Starts nothing else, for use by commands.
pub async fn open_snapshots(config: &Config) -> Result<Arc<dyn Snapshots>, ServiceError> {
    config.validate()?;
    snapshots(config).await
}

/// Opens the database, and migrates its schema.
pub(crate) async fn snapshots(config: &Config) -> Result<Arc<dyn Snapshots>, ServiceError> {
    let section = &config.refresh.snapshots;
    let options = SnapshotsOptions {
        // Only the archive reads the history; without an archive it would grow forever.
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
            Err(ConnectError::Database(error)) => Err(error),
            Err(ConnectError::Permanent(error)) => return Err(error),
        };
        match opened {
            Ok(snapshots) => return Ok(snapshots),
            Err(error) if error.is_retryable() && begun.elapsed() < MAX_WAIT => {
                tracing::debug!(%error, "the database is unavailable; the start waits for it");
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

enum ConnectError {
    /// The error says whether a retry may help.
    Database(SnapshotsError),
    /// A retry does not help.
    Permanent(ServiceError),
}

impl From<SnapshotsError> for ConnectError {
    fn from(error: SnapshotsError) -> Self {
        Self::Database(error)
    }
}

async fn connect(config: &Config, options: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, ConnectError> {
    match config.refresh.snapshots.kind() {
        Some(DatabaseKind::Postgres) => postgres(config, options),
        Some(DatabaseKind::Mysql) => mysql(config, options),
        Some(DatabaseKind::Sqlite) | None => {
            let file = config.snapshots_file();
            folder_of(&file)?;
            let durability = match config.store.durability {
                Durability::Sync => sqlite::Durability::Sync,
                Durability::Buffered => sqlite::Durability::Buffered,
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

/// Creates the folder of the file, because SQLite creates only the file.
fn folder_of(file: &Path) -> Result<(), ConnectError> {
    let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) else {
        return Ok(());
    };
    std::fs::create_dir_all(folder).map_err(|error| {
        let reason = format!("cannot create the folder {}: {error}", folder.display());
        ConnectError::Permanent(ServiceError::Refresh(reason))
    })
}

#[cfg(feature = "postgres")]
fn postgres(config: &Config, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, ConnectError> {
    use tidegate_snapshots::postgres::{self, PostgresOptions};
    let url = config.refresh.snapshots.url.expose().to_owned();
    Ok(Arc::new(postgres::open(PostgresOptions { url, snapshots })?))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &Config, _: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, ConnectError> {
    Err(ConnectError::Permanent(missing(
        "refresh.snapshots.url = \"postgres://…\"",
        "postgres",
    )))
}

#[cfg(feature = "mysql")]
fn mysql(config: &Config, snapshots: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, ConnectError> {
    use tidegate_snapshots::mysql::{self, MySqlOptions};
    let url = config.refresh.snapshots.url.expose().to_owned();
    Ok(Arc::new(mysql::open(MySqlOptions { url, snapshots })?))
}

#[cfg(not(feature = "mysql"))]
fn mysql(_: &Config, _: SnapshotsOptions) -> Result<Arc<dyn Snapshots>, ConnectError> {
    Err(ConnectError::Permanent(missing(
        "refresh.snapshots.url = \"mysql://…\"",
        "mysql",
    )))
}

#[cfg(not(all(feature = "kafka", feature = "postgres", feature = "mysql")))]
fn missing(setting: &str, feature: &str) -> ServiceError {
    match crate::config::need_feature(setting, feature, false) {
        Err(error) => error.into(),
        Ok(()) => unreachable!("the check refuses a missing feature"),
    }
}

/// Opens the Redis store. Its keys have their own prefix, beside those of bulk jobs.
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
