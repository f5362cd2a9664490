//! The store on Redis: every transition is one function call, and several processes share one queue.
//!
//! ```text
//!   call --encode--> FCALL on the shard's server --decode--> outcome
//!                        |  reads, decides in tables, writes at the end
//!                        +-- PUBLISH signals --> every process
//! ```
//!
//! The scripts (`lua/`) restate the state machine of the core; the conformance suite and a differential test
//! hold them equal to it. Groups are spread over shards by their name; all keys of a shard share a hash tag.
//! With several shards a lease spends starts granted from one counter, so the limit is exact.

mod admin;
mod blob;
mod dead;
mod decode;
mod encode;
mod jobs;
mod keys;
mod known;
mod limits;
mod paces;
mod run_log;
mod scripts;
mod settings;
mod shards;
mod signals;
mod stored_settings;
mod transfer;
mod views;
mod why;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{Cursor, DeadFilter, JobFilter, Page, Query};
use tidegate_core::bulk::{Command, LeaseOutcome, LeaseParams, Outcome, Refusal, Signals};
use tidegate_core::clock::Clock;
use tidegate_core::hash::fnv1a;
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_redis::keys::check_prefix;
use tidegate_redis::{Args, Caller, Failure, Items, Live, PATIENCE, Request, Script, Servers};

use self::decode::Numbers;
use self::keys::Keys;
use self::known::Known;
pub use self::stored_settings::{Difference, OnOtherSettings, SettingsChange, StoredSettings};
use super::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob};
use crate::StoreError;

/// The version of the key layout. A store with another version is rejected.
const SCHEMA: u32 = 4;

/// Limit: shards of one store; each lease calls all of them.
pub const MAX_SHARDS: u32 = 64;

#[derive(Debug, Clone)]
pub struct RedisBulkOptions {
    /// One server, or some of a Cluster: `redis://user:password@host:port/number`, `rediss://…`.
    pub urls: Vec<String>,
    /// The prefix of every key.
    pub prefix: String,
    /// The number of shards that groups are spread over; fixed when the store is created.
    pub shards: u32,
    pub config: BulkConfig,
    /// What happens if the store has other settings.
    pub on_other_settings: OnOtherSettings,
    /// The time source, for tests; the server's own clock if absent.
    pub clock: Option<Arc<dyn Clock>>,
}

impl RedisBulkOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            prefix: "bulk-action:".to_owned(),
            shards: 1,
            config: BulkConfig::default(),
            on_other_settings: OnOtherSettings::default(),
            clock: None,
        }
    }
}

pub struct RedisBulkStore {
    shared: Arc<Shared>,
    signals: tokio::task::JoinHandle<()>,
}

impl fmt::Debug for RedisBulkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBulkStore").finish_non_exhaustive()
    }
}

impl Drop for RedisBulkStore {
    fn drop(&mut self) {
        self.signals.abort();
    }
}

/// What calls and the signal listener share.
struct Shared {
    servers: Servers,
    keys: Keys,
    shards: u32,
    config: RwLock<Arc<BulkConfig>>,
    on_other_settings: OnOtherSettings,
    caller: Caller,
    notifier: Arc<BulkNotifier>,
    /// The run of the server on which each shard was opened; empty if it has to be opened again.
    opened: Mutex<HashMap<u32, String>>,
    /// What is known of each shard.
    known: Known,
}

impl RedisBulkStore {
    /// Connects, checks the server's version and the schema, and sends the settings to the scripts.
    pub async fn open(options: RedisBulkOptions) -> Result<Self, StoreError> {
        let store = Self::open_lazily(options)?;
        store.check().await?;
        Ok(store)
    }

    /// The same for a server that may be unavailable: the first calls do all of that.
    pub fn open_lazily(options: RedisBulkOptions) -> Result<Self, StoreError> {
        let RedisBulkOptions {
            urls,
            prefix,
            shards,
            config,
            on_other_settings,
            clock,
        } = options;
        config
            .validate()
            .map_err(|error| StoreError::Config(error.to_string()))?;
        if shards == 0 || shards > MAX_SHARDS {
            return Err(StoreError::Config(format!(
                "shards = {shards}: it may be from 1 to {MAX_SHARDS}"
            )));
        }
        let limited = config
            .queues
            .iter()
            .find(|(_, queue)| queue.max_running.is_some());
        if let Some((queue, _)) = limited
            && shards > 1
        {
            return Err(StoreError::Config(format!(
                "queues.{queue}.max_running with shards = {shards}: only a store with one shard counts running jobs exactly"
            )));
        }
        check_prefix(&prefix)?;
        let shared = Arc::new(Shared {
            servers: Servers::new(&urls, &scripts::LIBRARY)?,
            keys: Keys::new(&prefix),
            shards,
            config: RwLock::new(Arc::new(config)),
            on_other_settings,
            caller: Caller::new(clock),
            notifier: Arc::default(),
            opened: Mutex::default(),
            known: Known::new(shards),
        });
        let signals = tokio::spawn(signals::listen(shared.clone()));
        Ok(Self { shared, signals })
    }

    /// Checks that the server is available and suitable.
    pub async fn check(&self) -> Result<(), StoreError> {
        for shard in 0..self.shared.shards {
            self.shared.look(shard, &Query::BulkStats).await?;
        }
        match self.shared.shards {
            1 => Ok(()),
            _ => self.shared.share_known_limits().await,
        }
    }
}

impl Shared {
    fn shard_of(&self, group: &GroupId) -> u32 {
        // Not the slot of a key: a name may contain braces.
        let hash = fnv1a(group.as_str().as_bytes());
        ((hash ^ (hash >> 32)) % u64::from(self.shards)) as u32
    }

    fn numbers(&self, shard: u32) -> Numbers {
        Numbers {
            shard: u64::from(shard),
            shards: u64::from(self.shards),
        }
    }

    /// Makes the next use of every shard open it again.
    fn forget_opened(&self) {
        for run in self.opened().values_mut() {
            run.clear();
        }
    }

    fn opened(&self) -> MutexGuard<'_, HashMap<u32, String>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings in use. No code under this lock panics, so a poisoned lock is safe to use.
    fn config(&self) -> Arc<BulkConfig> {
        self.config.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_config(&self, config: BulkConfig) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// The latest time reported by any server, if there are several.
    fn latest(&self) -> String {
        self.known.now().map_or_else(String::new, |now| now.to_string())
    }

    /// One script call on a shard. The signals that it publishes also fire in this process at once.
    async fn call(&self, shard: u32, script: &Script, args: &Args) -> Result<Items, StoreError> {
        self.call_with(shard, script, args, None).await
    }

    async fn call_with(
        &self,
        shard: u32,
        script: &Script,
        args: &Args,
        grant: Option<(u64, u64)>,
    ) -> Result<Items, StoreError> {
        let mut items = self.send(shard, script, args, grant).await?;
        let (bits, facts) = decode::facts(&mut items)?;
        self.known.learn(shard, facts);
        if bits & 1 != 0 {
            self.known.notified(shard);
        }
        self.notifier.notify(signals(bits));
        Ok(items)
    }

    async fn send(
        &self,
        shard: u32,
        script: &Script,
        args: &Args,
        grant: Option<(u64, u64)>,
    ) -> Result<Items, StoreError> {
        let call = ScriptCall {
            shared: self,
            shard,
            key: self.keys.meta(shard),
            script,
            args,
            grant,
            request: self.caller.request_id(),
            patience: self.patience(script),
        };
        Ok(Items::of(self.servers.run(&call.key, &call).await?)?)
    }

    /// With several shards, an unavailable one must not delay what concerns all.
    fn patience(&self, script: &Script) -> Duration {
        let of_all = [
            &*scripts::ADMIT,
            &scripts::LEASE,
            &scripts::RELEASE_DUE,
            &scripts::EXPIRE_LEASES,
            &scripts::CLAIM_AGGREGATION,
            &scripts::DROP_FINISHED,
            &scripts::SNAPSHOT_CONGESTION,
        ];
        match self.shards > 1 && of_all.iter().any(|other| std::ptr::eq(*other, script)) {
            true => Duration::from_secs(1),
            false => PATIENCE,
        }
    }

    /// A query on one shard.
    async fn look(&self, shard: u32, query: &Query) -> Result<Items, StoreError> {
        let script = match query {
            Query::Dead { .. } => &scripts::DEAD,
            Query::Jobs { .. } => &scripts::JOBS,
            Query::Backlog => &scripts::BACKLOG,
            Query::WhyJob(..) | Query::WhyGroup(_) => &scripts::WHY,
            Query::Queues => &scripts::QUEUES,
            Query::Limits => &scripts::LIMITS,
            _ => &scripts::QUERY,
        };
        self.send(shard, script, &encode::query(query), None).await
    }
}

/// One transition on one shard.
struct ScriptCall<'a> {
    shared: &'a Shared,
    shard: u32,
    key: String,
    script: &'a Script,
    args: &'a Args,
    /// Starts, and the window they are for.
    grant: Option<(u64, u64)>,
    /// The same for every attempt.
    request: String,
    patience: Duration,
}

#[async_trait]
impl Request for ScriptCall<'_> {
    fn command(&self, _: &Live, maybe_ran: bool) -> Cmd {
        let mut command = eval(self.script, &self.key);
        command
            .arg(self.shared.caller.time())
            .arg(if maybe_ran { "1" } else { "" });
        let (active, unfinished) = self.shared.known.others(self.shard);
        command.arg(&self.request).arg(active).arg(unfinished);
        match self.grant {
            Some((starts, window)) => command.arg(starts).arg(window),
            None => command.arg("").arg(""),
        };
        command.arg(self.shared.latest());
        for bytes in self.args.each() {
            command.arg(bytes);
        }
        command
    }

    async fn prepare(&self, live: &Live) -> Result<(), Failure> {
        self.shared.open_shard(self.shard, live).await
    }

    fn explain(&self, error: &str) -> Option<String> {
        let importing = error.contains("TIDEGATE-IMPORT");
        importing.then(|| "an import into the store is not finished".to_owned())
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    /// The leases of other shards wait for this reply, and their deadlines run.
    fn persistence(&self) -> Duration {
        match self.shared.shards > 1 && std::ptr::eq(self.script, &*scripts::LEASE) {
            true => Duration::from_millis(250),
            false => self.patience,
        }
    }
}

/// Takes starts from the window that all shards share.
struct GrantCall<'a> {
    shared: &'a Shared,
    key: String,
    starts: i64,
    window: u64,
    queue: &'a str,
}

#[async_trait]
impl Request for GrantCall<'_> {
    fn command(&self, live: &Live, _: bool) -> Cmd {
        let config = self.shared.config();
        let pressure = &config.backpressure;
        let mut command = eval(&scripts::GRANT, &self.key);
        command
            .arg(self.shared.caller.time())
            .arg(self.starts)
            .arg(self.window);
        command
            .arg(pressure.window().0)
            .arg(pressure.global_rps.per_second());
        command
            .arg(&live.run_id)
            .arg(self.shared.latest())
            .arg(self.queue);
        let own = config.queues.get(self.queue).and_then(|queue| queue.rate);
        match own {
            Some(rate) => command.arg(rate.per_second()),
            None => command.arg(""),
        };
        command.arg(self.shared.known.ready_in_other_queues(self.queue));
        command
    }
}

fn eval(script: &Script, key: &str) -> Cmd {
    let mut command = redis::cmd("FCALL");
    command.arg(&script.function).arg(1).arg(key);
    command
}

fn signals(bits: i64) -> Signals {
    Signals {
        work: bits & 1 != 0,
        aggregate: bits & 2 != 0,
        timer: bits & 4 != 0,
    }
}

#[async_trait]
impl BulkStore for RedisBulkStore {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        self.shared.apply(command).await
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        self.shared.lease(&params).await
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        self.shared.job(group, job).await
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        self.shared.jobs_of(group, batch, after, max).await
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.shared.dead(filter, after, max).await
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.shared.jobs(filter, after, max).await
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.shared.notifier.clone()
    }
}
