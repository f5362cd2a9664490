//! The service: starts the stores, the engine and the port, and ends them in the reverse order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_api::StoreBackend;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_engine::bulk::{BulkService, BulkServiceBuilder};
use tidegate_engine::refresh::RefreshHandle;
use tidegate_store::StoreError;
use tidegate_store::bulk::{
    BulkStore, EmbeddedBulkOptions, EmbeddedBulkStore, OnOtherSettings, RedisBulkOptions, RedisBulkStore,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::audit::Audit;
use crate::auth::{Attempts, Keys, Sessions};
use crate::bulk::observed_store::Observed;
use crate::bulk::pull_workers::QueueActivity;
use crate::bulk::push::{self, Callbacks, Targets};
use crate::config::{Config, ConfigError, StoreKind};
use crate::metrics::Metrics;
use crate::net::{self, Net};
use crate::refresh::Refresh;
use crate::room::module::RoomModule;
use crate::sampler::Sampler;
use crate::state::{App, Inner};
use crate::{files, stack};

/// Limit: how long the start of a process that only reads records waits for the store.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a service failed to start or to shut down.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    BulkStore(#[from] StoreError),
    #[error(transparent)]
    BulkService(#[from] tidegate_engine::bulk::EngineError),
    #[error(transparent)]
    Log(#[from] tidegate_log::LogError),
    #[error(transparent)]
    Snapshots(#[from] tidegate_snapshots::SnapshotsError),
    /// An error of the refresh module.
    #[error("{0}")]
    Refresh(String),
    #[error("cannot listen on {address}: {error}")]
    Listen {
        address: SocketAddr,
        error: std::io::Error,
    },
    #[error("{0}")]
    Setting(String),
}

/// A running service. End it with [`Service::shutdown`].
pub struct Service {
    address: SocketAddr,
    tls: bool,
    app: App,
    engine: BulkService,
    refresh: Option<Refresh>,
    rooms: Option<RoomModule>,
    folder: Option<Arc<EmbeddedBulkStore>>,
    stop_net: CancellationToken,
    net: JoinHandle<()>,
    sampler: JoinHandle<()>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Opens the store, starts the engine and listens.
    pub async fn start(config: Config) -> Result<Self, ServiceError> {
        Self::start_with(config, |engine| engine).await
    }

    /// Starts the service with handlers in this process beside the configured targets: `register` adds them to the engine.
    pub async fn start_with(
        mut config: Config,
        register: impl FnOnce(BulkServiceBuilder) -> BulkServiceBuilder,
    ) -> Result<Self, ServiceError> {
        config.validate()?;
        let tls = config
            .server
            .tls
            .as_ref()
            .map(net::tls)
            .transpose()
            .map_err(ServiceError::Setting)?;
        if let Some(problem) = files::too_few(config.server.max_connections) {
            tracing::warn!("{problem}");
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        config.validate_at(clock.now())?;
        let client = push::client().map_err(ServiceError::Setting)?;
        let targets = Targets::new(&config, &client, &clock).map_err(ServiceError::Setting)?;
        let address = config.server.listen;
        // Before the store, so that a port that is in use fails the start before it changes anything.
        let listener = net::listen(address)
            .await
            .map_err(|error| ServiceError::Listen { address, error })?;
        let address = listener
            .local_addr()
            .map_err(|error| ServiceError::Listen { address, error })?;
        let (store, folder) = open(&mut config).await?;
        let refresh = Refresh::start(&config, &clock).await?;
        let rooms = RoomModule::start(&config, &client).await?;
        let metrics = Arc::new(Metrics::new(&config, clock.now()));
        let store: Arc<dyn BulkStore> = Arc::new(Observed::new(store, metrics.clone()));
        let audit = Audit::open(audit_file(&config)).map_err(ServiceError::Setting)?;
        let callbacks = Callbacks::new(&config, &client, store.clone(), clock.clone());
        let callbacks = Arc::new(callbacks.map_err(ServiceError::Setting)?);
        let on_complete = callbacks.clone();
        let engine = BulkServiceBuilder::new(store.clone(), config.bulk())
            .fold_batches(true)
            .on_complete(move |completed| {
                let callbacks = on_complete.clone();
                async move { callbacks.deliver(completed).await }
            });
        let budgets = refresh.as_ref().map(Refresh::for_pushes);
        let engine = register(targets.register(&config, budgets.as_ref(), engine)).start()?;
        let app = App::new(Inner {
            keys: Keys::new(&config.keys),
            sessions: Sessions::default(),
            attempts: Attempts::default(),
            audit,
            targets,
            callbacks,
            refresh: refresh.as_ref().and_then(Refresh::handle),
            budgets: refresh.as_ref().map(Refresh::budgets),
            rooms: rooms.as_ref().map(RoomModule::rooms),
            queues: QueueActivity::default(),
            sampler: Sampler::new(match config.store.kind {
                StoreKind::Embedded => StoreBackend::Embedded,
                StoreKind::Redis => StoreBackend::Redis,
            }),
            metrics,
            event_streams: Arc::new(Semaphore::new(config.server.max_event_streams as usize)),
            stopping: CancellationToken::new(),
            requests: AtomicU64::new(0),
            clock,
            store,
            config,
        });
        let stop_net = CancellationToken::new();
        let net = Net {
            listener,
            tls: tls.clone(),
            router: stack::router(&app),
            config: app.config.server.clone(),
        };
        Ok(Self {
            address,
            tls: tls.is_some(),
            engine,
            refresh,
            rooms,
            folder,
            net: tokio::spawn(net.run(stop_net.clone())),
            sampler: tokio::spawn(Sampler::run(app.clone())),
            stop_net,
            app,
        })
    }

    /// The address that the service listens on. It has the real port if the configuration says 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the dashboard.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The store of the bulk jobs.
    pub fn store(&self) -> &Arc<dyn BulkStore> {
        &self.app.store
    }

    /// The refresh module; `None` without sources.
    pub fn refresh(&self) -> Option<RefreshHandle> {
        self.app.refresh.clone()
    }

    /// Resolves when a store has failed permanently: then this process can do no more work.
    pub async fn failed(&self) {
        let refresh = async {
            match &self.refresh {
                Some(refresh) => refresh.failed().await,
                None => std::future::pending().await,
            }
        };
        let rooms = async {
            match &self.rooms {
                Some(rooms) => rooms.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.engine.failed() => {}
            () = refresh => {}
            () = rooms => {}
        }
    }

    /// Shuts the service down. It accepts no more connections, lets open requests and running jobs finish within their
    /// grace periods, releases the remaining jobs, and closes the store.
    pub async fn shutdown(self) -> Result<(), ServiceError> {
        let Self {
            app,
            engine,
            refresh,
            rooms,
            folder,
            stop_net,
            net,
            sampler,
            ..
        } = self;
        app.stopping.cancel();
        stop_net.cancel();
        let _ = net.await;
        let _ = sampler.await;
        // Before the refresh module, because pushes take their tokens from it.
        let result = engine.shutdown().await;
        drop(app);
        let refreshed = match refresh {
            Some(refresh) => refresh.shutdown().await,
            None => Ok(()),
        };
        let left = match rooms {
            Some(rooms) => rooms.shutdown().await,
            None => Ok(()),
        };
        // If somebody else still holds the store, it closes when they drop it.
        if let Some(store) = folder.and_then(Arc::into_inner) {
            store.close().await?;
        }
        result?;
        left?;
        refreshed
    }
}

/// How the store of this configuration is opened, if it is on Redis.
pub fn redis_options(config: &Config) -> RedisBulkOptions {
    RedisBulkOptions {
        urls: config.redis.urls(),
        prefix: config.redis.key_prefix.clone(),
        shards: config.redis.shards,
        config: config.bulk(),
        on_other_settings: match config.redis.follow_settings {
            true => OnOtherSettings::Follow,
            false => OnOtherSettings::Refuse,
        },
        clock: None,
    }
}

/// Opens the store. The configuration follows its settings, if it is to.
async fn open(
    config: &mut Config,
) -> Result<(Arc<dyn BulkStore>, Option<Arc<EmbeddedBulkStore>>), ServiceError> {
    match config.store.kind {
        StoreKind::Embedded => {
            let store = Arc::new(EmbeddedBulkStore::open(EmbeddedBulkOptions {
                folder: config.store.data.clone(),
                durability: config.store.durability,
                config: config.bulk(),
                clock: Arc::new(SystemClock),
            })?);
            Ok((store.clone(), Some(store)))
        }
        StoreKind::Redis => {
            let store = RedisBulkStore::open_lazily(redis_options(config))?;
            // A server that cannot be used fails the start, not the first request.
            match config.only_queries() {
                true => check_shortly(&store).await?,
                false => store.check().await?,
            }
            config.set_bulk(store.config());
            Ok((Arc::new(store), None))
        }
    }
}

/// Fails if the store cannot be used. An unavailable store is no error, because reading records does not need it.
async fn check_shortly(store: &RedisBulkStore) -> Result<(), StoreError> {
    match tokio::time::timeout(CHECK_TIMEOUT, store.check()).await {
        Ok(Err(error)) if !error.is_retryable() => Err(error),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the store is unavailable; this process serves records without it");
            Ok(())
        }
        Err(_) => {
            tracing::warn!("the store does not answer; this process serves records without it");
            Ok(())
        }
        Ok(Ok(())) => Ok(()),
    }
}

fn audit_file(config: &Config) -> std::path::PathBuf {
    let in_data = || config.store.data.join("audit.jsonl");
    config.audit.file.clone().unwrap_or_else(in_data)
}
