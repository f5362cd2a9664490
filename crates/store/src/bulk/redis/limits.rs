//! configure_limits, the window that shards share, and queries of limits and queues.
//!
//! With several shards the first one decides: it keeps the history and gives every change a version. The shared
//! counter and the other shards follow it, each only forward, so that concurrent changes end with the same
//! rates everywhere.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures_util::FutureExt;
use futures_util::future::try_join_all;
use redis::Cmd;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::record::LimitsRecord;
use tidegate_core::bulk::views::{LimitsView, Query, QueueView};
use tidegate_core::bulk::{ConfigureLimitsParams, Refusal, Set};
use tidegate_core::ids::QueueId;
use tidegate_core::time::Timestamp;
use tidegate_redis::{Args, Failure, Items, Live, Request};

use super::{GrantCall, Shared, eval, scripts, settings};
use crate::StoreError;

type StoreResult<T> = Result<T, StoreError>;

/// Limit: attempts to change limits that others change, too.
const ATTEMPTS: u32 = 32;

/// What a shard knows of limits.
#[derive(Debug)]
pub(super) struct StoredLimits {
    /// Raised with every change; 0 if no limit was ever set.
    version: u64,
    pub(super) record: LimitsRecord,
    /// The settings of the store; none right after an import.
    config: Option<BulkConfig>,
    now: Timestamp,
}

impl StoredLimits {
    pub(super) fn read(items: &mut Items) -> StoreResult<Self> {
        let corrupt = |error: String| StoreError::Corrupt(format!("the limits of the store: {error}"));
        let version = items.unsigned()?;
        let record = match items.text()?.as_str() {
            "" => LimitsRecord::default(),
            text => serde_json::from_str(text).map_err(|error| corrupt(error.to_string()))?,
        };
        let config = match items.text()?.as_str() {
            "" => None,
            text => Some(settings::stored(text).map_err(corrupt)?),
        };
        Ok(Self {
            version,
            record,
            config,
            now: items.time()?,
        })
    }
}

/// The window that all shards share.
pub(super) struct Limit {
    pub(super) window: u64,
    /// Starts granted to this call.
    pub(super) grant: u64,
    /// Starts granted to all calls in this window.
    pub(super) granted: u64,
    /// The most granted in any window.
    pub(super) most: u64,
    /// The limit of a window.
    pub(super) limit: u64,
    /// The rest of this window.
    pub(super) room: u64,
}

/// Rates arrive as text: a number in a Redis reply loses its decimals.
fn rate(text: &str) -> StoreResult<f64> {
    text.parse()
        .map_err(|_| StoreError::Corrupt(format!("a script answered {text:?} as a rate")))
}

/// A record as text, as shards keep it.
pub(super) fn as_json(record: &LimitsRecord) -> StoreResult<String> {
    serde_json::to_string(record).map_err(|error| StoreError::Corrupt(error.to_string()))
}

impl Shared {
    /// The core decides, by what the first shard knows; the shard takes the new record unless there is another one by now.
    pub(super) async fn configure_limits(
        &self,
        p: &ConfigureLimitsParams,
    ) -> StoreResult<Result<(), Refusal>> {
        let at_once = p
            .queues
            .iter()
            .find(|(_, set)| matches!(set.all.max_running, Set::To(_)));
        if let Some((queue, _)) = at_once
            && self.shards > 1
        {
            return Ok(Err(Refusal::NotWithShards {
                what: format!("max_running of queue {queue:?}"),
                shards: self.shards,
            }));
        }
        for _ in 0..ATTEMPTS {
            let mut stored = self.stored_limits().await?;
            let config = stored.config.take();
            let config = config.unwrap_or_else(|| self.config().as_ref().clone());
            let record = match stored.record.changed(&config, p, stored.now) {
                Ok(record) => record,
                Err(refusal) => return Ok(Err(refusal)),
            };
            if record == stored.record {
                self.share_limits(&stored).await?;
                return Ok(Ok(()));
            }
            let mut args = Args::default();
            args.big(stored.version)
                .text(&as_json(&record)?)
                .text(&settings::overrides(&record));
            let mut items = self.call(0, &scripts::CONFIGURE_LIMITS, &args).await?;
            if items.text()? == "ok" {
                (stored.version, stored.record) = (stored.version + 1, record);
                self.share_limits(&stored).await?;
                return Ok(Ok(()));
            }
        }
        Err(StoreError::Unavailable {
            server: "the record of limits".to_owned(),
            reason: "other processes change it all the time".to_owned(),
        })
    }

    async fn stored_limits(&self) -> StoreResult<StoredLimits> {
        StoredLimits::read(&mut self.look(0, &Query::Limits).await?)
    }

    /// Propagates the first shard's rates to the counter and the other shards. A change that did not reach all
    /// of them is repaired when a process connects.
    pub(super) async fn share_known_limits(&self) -> StoreResult<()> {
        self.share_limits(&self.stored_limits().await?).await
    }

    async fn share_limits(&self, stored: &StoredLimits) -> StoreResult<()> {
        if self.shards == 1 || stored.version == 0 {
            return Ok(());
        }
        // The counter first: a process woken by a shard's signal finds it raised.
        let overrides = settings::overrides(&stored.record);
        let call = RatesCall {
            key: self.keys.rate_limit(),
            version: stored.version,
            overrides: overrides.clone(),
        };
        self.servers.run(&call.key, &call).await?;
        let mut args = Args::default();
        args.big(stored.version)
            .text(&as_json(&stored.record)?)
            .text(&overrides);
        let others = (1..self.shards).map(|shard| self.call(shard, &scripts::ADOPT_LIMITS, &args).boxed());
        try_join_all(others.collect::<Vec<_>>()).await.map(drop)
    }

    /// Takes starts from the window that all shards share; a negative number returns them.
    pub(super) async fn ask_limit(&self, starts: i64, window: u64, queue: &str) -> StoreResult<Limit> {
        let call = GrantCall {
            shared: self,
            key: self.keys.rate_limit(),
            starts,
            window,
            queue,
        };
        let mut items = Items::of(self.servers.run(&call.key, &call).await?)?;
        let (window, grant, granted) = (items.unsigned()?, items.unsigned()?, items.unsigned()?);
        let most = items.unsigned()?;
        self.known.heard(items.unsigned()?);
        Ok(Limit {
            window,
            grant,
            granted,
            most,
            limit: items.unsigned()?,
            room: items.unsigned()?,
        })
    }

    pub(super) async fn limits(&self) -> StoreResult<LimitsView> {
        let stored = self.stored_limits().await?;
        let config = stored.config.unwrap_or_else(|| self.config().as_ref().clone());
        Ok(stored.record.view(&config))
    }

    /// In order of name. Each shard finds out what the downstream sustains of its own calls.
    pub(super) async fn queues(&self) -> StoreResult<Vec<QueueView>> {
        let mut all: BTreeMap<QueueId, QueueView> = BTreeMap::new();
        for shard in 0..self.shards {
            let mut items = self.look(shard, &Query::Queues).await?;
            for one in items.items()?.each(queue)? {
                match all.get_mut(&one.id) {
                    Some(whole) => add(whole, &one),
                    None => {
                        all.insert(one.id.clone(), one);
                    }
                }
            }
        }
        Ok(all.into_values().collect())
    }
}

fn queue(one: &mut Items) -> StoreResult<QueueView> {
    let id = one.name()?;
    let configured_rps = rate(&one.text()?)?;
    let sustained = match one.text()?.as_str() {
        "" => configured_rps,
        text => rate(text)?,
    };
    Ok(QueueView {
        id,
        configured_rps,
        rps: sustained.min(configured_rps),
        started: one.unsigned()?,
        ready: one.unsigned()?,
        groups_waiting: one.unsigned()?,
        last_cut_at: one.maybe()?.map(Timestamp),
        held_until: one.maybe()?.map(Timestamp),
        running: one.unsigned()?,
        max_running: one.maybe()?.map(|most| most as u32),
    })
}

fn add(whole: &mut QueueView, one: &QueueView) {
    whole.rps = (whole.rps + one.rps).min(whole.configured_rps);
    whole.started += one.started;
    whole.ready += one.ready;
    whole.running += one.running;
    whole.groups_waiting += one.groups_waiting;
    whole.last_cut_at = whole.last_cut_at.max(one.last_cut_at);
    whole.held_until = whole.held_until.max(one.held_until);
}

/// Rates for the counter that all shards share.
struct RatesCall {
    key: String,
    version: u64,
    overrides: String,
}

#[async_trait]
impl Request for RatesCall {
    fn command(&self, _: &Live, _: bool) -> Cmd {
        let mut command = eval(&scripts::ADOPT_RATES, &self.key);
        command.arg(self.version).arg(&self.overrides);
        command
    }

    async fn prepare(&self, _: &Live) -> Result<(), Failure> {
        Ok(())
    }
}
