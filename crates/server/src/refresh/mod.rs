//! The refresh module of the service. It starts after the bulk store and ends before it.
//!
//! Without sources it only serves the budgets of pushes. Without budgets there is no refresh module.

mod archive;
mod convert;
pub(crate) mod dead_letters;
pub(crate) mod metrics;
mod open;
pub(crate) mod records;
pub(crate) mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::clock::Clock;
use tidegate_core::ids::SourceId;
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::{
    RefreshError, RefreshHandle, RefreshOptions, RefreshService, Roles, SourceOptions, TokenDispenser,
    archive_daily,
};
use tidegate_log::Log;
use tidegate_source::HttpFetcher;
use tidegate_store::refresh::RefreshStore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use archive::archive_settings;
pub use archive::open_archive;
use open::OpenStore;
pub use open::{migrate, open_snapshots};
pub(crate) use tidegate_engine::refresh::{Budgets, SeenBudget};

use crate::config::{Config, RolesConfig};
use crate::service::ServiceError;

/// What pushes need to share the budgets.
#[derive(Clone)]
pub(crate) struct PushBudgets {
    pub(crate) token_dispenser: TokenDispenser,
    pub(crate) store: Arc<dyn RefreshStore>,
}

pub(crate) struct Refresh {
    service: Option<RefreshService>,
    store: OpenStore,
    log: Option<Arc<dyn Log>>,
    token_dispenser: TokenDispenser,
    budgets: Arc<Budgets>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Refresh {
    /// Starts the module; returns `None` without budgets.
    pub(crate) async fn start(config: &Config, clock: &Arc<dyn Clock>) -> Result<Option<Self>, ServiceError> {
        if config.budgets.is_empty() {
            return Ok(None);
        }
        // First, so that invalid settings fail the start before it changes anything.
        let sources = sources(config)?;
        let store = open::store(config, clock).await?;
        let mut log = None;
        let mut service = None;
        let mut tasks = Vec::new();
        let stop = CancellationToken::new();
        if config.refreshes() {
            let opened = open::log(config, clock).await?;
            let snapshots = open::snapshots(config).await?;
            let options = RefreshOptions {
                sources,
                config: config.refresh.core(),
                roles: roles(config.refresh.roles),
                query: config.refresh.query.clone(),
                work: config.refresh.work.clone(),
                watch: config.refresh.watch.clone(),
                clock: clock.clone(),
                ..RefreshOptions::new(store.store(), opened.clone(), snapshots.clone())
            };
            if config.refresh.roles != RolesConfig::Query
                && let Some(archive) = archive::archive(config, snapshots)?
            {
                let zone = archive::daily_run(&config.refresh.archive);
                let daily = archive_daily(archive, zone, clock.clone(), stop.clone());
                tasks.push(tokio::spawn(daily));
            }
            service = Some(RefreshService::start(options).await?);
            log = Some(opened);
        }
        let token_dispenser = match &service {
            Some(service) => service.handle().token_dispenser(),
            None => TokenDispenser::over(store.store(), config.refresh.breaker.clone()),
        };
        let budgets = Arc::new(Budgets::new(token_dispenser.clone(), store.store()));
        let targets = config.budgets.keys().cloned().collect();
        tasks.push(tokio::spawn(budgets.clone().run(
            targets,
            clock.clone(),
            stop.clone(),
        )));
        Ok(Some(Self {
            service,
            store,
            log,
            token_dispenser,
            budgets,
            stop,
            tasks,
        }))
    }

    /// The handle for requests; `None` without sources.
    pub(crate) fn handle(&self) -> Option<RefreshHandle> {
        self.service.as_ref().map(RefreshService::handle)
    }

    pub(crate) fn budgets(&self) -> Arc<Budgets> {
        self.budgets.clone()
    }

    pub(crate) fn for_pushes(&self) -> PushBudgets {
        PushBudgets {
            token_dispenser: self.token_dispenser.clone(),
            store: self.store.store(),
        }
    }

    /// Resolves when the module has failed permanently.
    pub(crate) async fn failed(&self) {
        match &self.service {
            Some(service) => service.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Lets running work finish within its grace period, then closes the log and the store.
    pub(crate) async fn shutdown(self) -> Result<(), ServiceError> {
        self.stop.cancel();
        for task in self.tasks {
            let _ = task.await;
        }
        let result = match self.service {
            Some(service) => service.shutdown().await,
            None => {
                self.token_dispenser.close().await;
                Ok(())
            }
        };
        if let Some(log) = self.log {
            log.close().await;
        }
        self.store.close().await?;
        Ok(result?)
    }
}

fn roles(roles: RolesConfig) -> Roles {
    match roles {
        RolesConfig::All => Roles::ALL,
        RolesConfig::Query => Roles::QUERY,
        RolesConfig::Work => Roles::WORK,
    }
}

fn sources(config: &Config) -> Result<BTreeMap<SourceId, SourceOptions>, ServiceError> {
    let mut sources = BTreeMap::new();
    for (name, settings) in &config.sources {
        let mut settings = settings.clone();
        settings.id = name.as_str().to_owned();
        let target = tidegate_core::ids::TargetId::new(&settings.target)
            .map_err(|error| ServiceError::Setting(format!("sources.{name}.target: {error}")))?;
        let (keys, prefetch, tiers) = (
            settings.key.clone(),
            settings.prefetch,
            config.tiers_of(&settings),
        );
        let fetcher = HttpFetcher::new(settings).map_err(|error| ServiceError::Setting(error.to_string()))?;
        let zone = config
            .budgets
            .get(&target)
            .map(|budget| budget.zone)
            .unwrap_or_default();
        let options = SourceOptions {
            keys,
            tiers,
            prefetch,
            zone,
            ..SourceOptions::new(target, Arc::new(fetcher))
        };
        sources.insert(name.clone(), options);
    }
    Ok(sources)
}

impl From<RefreshError> for ServiceError {
    fn from(error: RefreshError) -> Self {
        match error {
            RefreshError::Config(reason) => ServiceError::Setting(reason),
            other => ServiceError::Refresh(other.to_string()),
        }
    }
}

/// `at`, if it is still ahead. Callers pass the time of this machine, because the store may be unavailable.
pub(crate) fn until(at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    (at > now).then_some(at)
}
