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
use tidegate_core::bulk::record::LimitsRecord;
use tidegate_core::bulk::views::{LimitChange, LimitsView, Query, QueueView};
use tidegate_core::bulk::{
    CHANGES_KEPT, ConfigureLimitsParams, LimitSetting, MAX_QUEUES_SET, QueueLimits, Refusal, Set,
};
use tidegate_core::ids::QueueId;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_redis::{Args, Failure, Items, Live, Request};

use super::{GrantCall, Shared, eval, scripts};
use crate::StoreError;

type StoreResult<T> = Result<T, StoreError>;

/// A shard's knowledge of the limits set at run time.
#[derive(Debug)]
pub(super) struct StoredLimits {
    /// Raised with every change; 0 if no limit was ever set.
    version: u64,
    pub(super) record: LimitsRecord,
    configured_rps: f64,
    /// In effect.
    adaptive: bool,
}

impl StoredLimits {
    pub(super) fn read(items: &mut Items) -> StoreResult<Self> {
        let version = items.unsigned()?;
        let global_rps = number(&items.text()?)?;
        let adaptive = number(&items.text()?)?.map(|on| on > 0.0);
        let queues = items.items()?.each(|one| -> Result<_, StoreError> {
            let queue = one.name::<QueueId>()?;
            let limits = QueueLimits {
                rps: number(&one.text()?)?,
                max_running: number(&one.text()?)?.map(|most| most as u32),
            };
            Ok((queue, limits))
        })?;
        let changes = items.items()?.each(|one| -> Result<_, StoreError> {
            let (at, by, why, queue) = (one.time()?, one.text()?, one.text()?, one.text()?);
            Ok(LimitChange {
                at,
                by,
                why,
                queue: QueueId::new(queue).ok(),
                setting: setting(&one.text()?)?,
                from: number(&one.text()?)?,
                to: number(&one.text()?)?,
            })
        })?;
        Ok(Self {
            version,
            record: LimitsRecord {
                global_rps,
                adaptive,
                queues: queues.into_iter().collect(),
                changes,
            },
            configured_rps: rate(&items.text()?)?,
            adaptive: number(&items.text()?)?.is_some_and(|on| on > 0.0),
        })
    }
}

fn setting(name: &str) -> StoreResult<LimitSetting> {
    match name {
        "rps" => Ok(LimitSetting::Rps),
        "max_running" => Ok(LimitSetting::MaxRunning),
        "adaptive" => Ok(LimitSetting::Adaptive),
        other => Err(StoreError::Corrupt(format!(
            "a script answered {other:?} as a limit"
        ))),
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

fn number(text: &str) -> StoreResult<Option<f64>> {
    match text {
        "" => Ok(None),
        text => rate(text).map(Some),
    }
}

/// A record as the scripts and the stream encode it.
pub(super) fn as_json(record: &LimitsRecord) -> StoreResult<String> {
    serde_json::to_string(record).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn encode(p: &ConfigureLimitsParams) -> Args {
    fn text<T>(set: Set<T>, text: impl Fn(T) -> String) -> String {
        match set {
            Set::Keep => String::new(),
            Set::To(value) => text(value),
            Set::Reset => "reset".to_owned(),
        }
    }
    let rate = |rps: f64| rps.to_string();
    let mut args = Args::default();
    args.big(CHANGES_KEPT as u64).big(MAX_QUEUES_SET as u64);
    args.text(&text(p.global_rps, rate))
        .text(&text(p.adaptive, |on| u8::from(on).to_string()))
        .text(&p.by)
        .text(&p.why);
    for (queue, set) in &p.queues {
        args.text(queue.as_str())
            .text(&text(set.rps, rate))
            .text(&text(set.max_running, |most| most.to_string()));
    }
    args
}

impl Shared {
    pub(super) async fn configure_limits(
        &self,
        p: &ConfigureLimitsParams,
    ) -> StoreResult<Result<(), Refusal>> {
        if let Err(refusal) = p.check(self.config().backpressure.window()) {
            return Ok(Err(refusal));
        }
        let at_once = p
            .queues
            .iter()
            .find(|(_, set)| matches!(set.max_running, Set::To(_)));
        if let Some((queue, _)) = at_once
            && self.shards > 1
        {
            return Ok(Err(Refusal::NotWithShards {
                what: format!("max_running of queue {queue:?}"),
                shards: self.shards,
            }));
        }
        let mut items = self.call(0, &scripts::CONFIGURE_LIMITS, &encode(p)).await?;
        if items.text()? != "ok" {
            return Ok(Err(Refusal::TooManyQueues {
                max: MAX_QUEUES_SET as u64,
            }));
        }
        self.share_limits(&StoredLimits::read(&mut items.items()?)?)
            .await?;
        Ok(Ok(()))
    }

    /// Propagates the first shard's rates to the counter and the other shards. A change that did not reach all
    /// of them is repaired when a process connects.
    pub(super) async fn share_known_limits(&self) -> StoreResult<()> {
        let mut items = self.look(0, &Query::Limits).await?;
        self.share_limits(&StoredLimits::read(&mut items.items()?)?).await
    }

    async fn share_limits(&self, stored: &StoredLimits) -> StoreResult<()> {
        if self.shards == 1 || stored.version == 0 {
            return Ok(());
        }
        // The counter first: a process woken by a shard's signal finds it raised.
        let rates = LimitsRecord {
            changes: Vec::new(),
            ..stored.record.clone()
        };
        let call = RatesCall {
            key: self.keys.rate_limit(),
            version: stored.version,
            record: as_json(&rates)?,
        };
        self.servers.run(&call.key, &call).await?;
        let mut args = Args::default();
        args.big(stored.version).text(&as_json(&stored.record)?);
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
        let mut items = self.look(0, &Query::Limits).await?;
        let stored = StoredLimits::read(&mut items.items()?)?;
        Ok(LimitsView {
            global_rps: stored.record.global_rps.unwrap_or(stored.configured_rps),
            configured_global_rps: stored.configured_rps,
            limit_per_window: items.unsigned()?,
            window_ms: Millis(items.unsigned()?),
            adaptive: stored.adaptive,
            queues: stored.record.queues.into_iter().collect(),
            changes: stored.record.changes,
        })
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
    record: String,
}

#[async_trait]
impl Request for RatesCall {
    fn command(&self, _: &Live, _: bool) -> Cmd {
        let mut command = eval(&scripts::ADOPT_RATES, &self.key);
        command.arg(self.version).arg(&self.record);
        command
    }

    async fn prepare(&self, _: &Live) -> Result<(), Failure> {
        Ok(())
    }
}
