//! Coalescer and budgets on Redis: a key per record, a hash per target, a function call per transition.
//!
//! ```text
//!   batch --by server--> one FCALL per record, sent together --> outcomes in the order of the batch
//! ```
//!
//! The scripts (`lua/refresh/`) restate the core; the conformance suite and a differential test hold them equal
//! to it. Every call carries the settings, as numbers.
//!
//! **Time** is that of the server that has the key; a budget's time never goes back. In a Cluster
//! [`RefreshStore::now`] is the time of one master, so their clocks should agree to a fraction of the marks (30
//! s).
//!
//! **What is lost with the server.** A lost record costs one more fetch at worst. A lost budget, or one kept by
//! another run of the server, starts empty and grants nothing for a second. Its day continues from the maximum
//! that any process has seen of it: every call carries that along. Only if all processes restart as well does
//! the day begin at zero; the provider's own rejection then comes back as a hold.

mod decode;
mod encode;
mod keys;
mod scripts;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::budget::{Budget, BudgetView, Moment};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{Owner, RecordId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_redis::keys::check_prefix;
use tidegate_redis::{Args, Call, Caller, Items, Script, Servers, check_schema, run_all};

use self::decode::Seen;
use self::keys::Keys;
use super::{RefreshSettings, RefreshStore, TakeOutcome, counted_all};
use crate::StoreError;

/// Limit: how long a call on a budget is retried. A later grant is useless.
const BUDGET_PATIENCE: Duration = Duration::from_secs(2);

/// The version of the key layout. A store with another version is rejected.
const SCHEMA: u32 = 1;

#[derive(Debug, Clone)]
pub struct RedisRefreshOptions {
    /// One server, or some of a Cluster: `redis://user:password@host:port/number`, `rediss://…`.
    pub urls: Vec<String>,
    /// The prefix of every key.
    pub prefix: String,
    pub settings: RefreshSettings,
    /// The time source, for tests; the server's own clock if absent.
    pub clock: Option<Arc<dyn Clock>>,
}

impl RedisRefreshOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            prefix: "refresh:".to_owned(),
            settings: RefreshSettings::default(),
            clock: None,
        }
    }
}

pub struct RedisRefreshStore {
    servers: Servers,
    keys: Keys,
    settings: RefreshSettings,
    clock: Option<Arc<dyn Clock>>,
    caller: Caller,
    /// The schema is checked, and every budget exists.
    opened: AtomicBool,
    /// The maximum seen of each target's day and hold.
    seen: Mutex<HashMap<TargetId, Seen>>,
}

impl fmt::Debug for RedisRefreshStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRefreshStore").finish_non_exhaustive()
    }
}

impl RedisRefreshStore {
    /// Connects, checks the server's version and the schema, and creates missing budgets.
    pub async fn open(options: RedisRefreshOptions) -> Result<Self, StoreError> {
        let store = Self::open_lazily(options)?;
        store.opened().await?;
        Ok(store)
    }

    /// The same for a server that may be unavailable: the first call that reaches it does all of that.
    pub fn open_lazily(options: RedisRefreshOptions) -> Result<Self, StoreError> {
        let RedisRefreshOptions {
            urls,
            prefix,
            settings,
            clock,
        } = options;
        settings.validate()?;
        check_prefix(&prefix)?;
        Ok(Self {
            servers: Servers::new(&urls, &scripts::LIBRARY)?,
            keys: Keys::new(&prefix),
            settings,
            caller: Caller::new(clock.clone()),
            clock,
            opened: AtomicBool::new(false),
            seen: Mutex::default(),
        })
    }

    /// Runs before everything else. Concurrent calls may repeat it: it is idempotent.
    async fn opened(&self) -> Result<(), StoreError> {
        if self.opened.load(Ordering::Acquire) {
            return Ok(());
        }
        check_schema(&self.servers, &scripts::OPEN, self.keys.schema(), SCHEMA).await?;
        for target in self.settings.budgets.keys() {
            self.call_budget(&scripts::OPEN_BUDGET, target, |_| {}).await?;
        }
        self.opened.store(true, Ordering::Release);
        Ok(())
    }

    fn record_call(&self, script: &'static Script, record: &RecordId, put: impl FnOnce(&mut Args)) -> Call {
        let coalescer = &self.settings.coalescer;
        let mut args = Args::default();
        for span in [
            coalescer.send_timeout_ms,
            coalescer.high_pending_ms,
            coalescer.low_pending_ms,
            coalescer.remember_ms,
        ] {
            args.span(span);
        }
        put(&mut args);
        Call::function(script, self.keys.record(record))
            .arg(self.caller.time())
            .again()
            .arg(self.caller.request_id())
            .args(args)
    }

    /// One call per item, all of them sent together.
    async fn each<P, T>(
        &self,
        script: &'static Script,
        batch: &[(RecordId, P)],
        put: impl Fn(&mut Args, &P),
        read: impl Fn(&mut Items) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.opened().await?;
        let calls: Vec<Call> = batch
            .iter()
            .map(|(record, params)| self.record_call(script, record, |args| put(args, params)))
            .collect();
        let answers = run_all(&self.servers, &calls).await?;
        answers
            .into_iter()
            .map(|answer| read(&mut Items::of(answer)?))
            .collect()
    }

    async fn on_budget(
        &self,
        script: &'static Script,
        target: &TargetId,
        put: impl FnOnce(&mut Args),
    ) -> Result<Items, StoreError> {
        self.opened().await?;
        self.call_budget(script, target, put).await
    }

    async fn call_budget(
        &self,
        script: &'static Script,
        target: &TargetId,
        put: impl FnOnce(&mut Args),
    ) -> Result<Items, StoreError> {
        let config = self.settings.budget(target)?;
        let seen = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.get(target).copied().unwrap_or_default()
        };
        let mut args = encode::budget_args(config, seen);
        put(&mut args);
        let call = Call::function(script, self.keys.target(target))
            .arg(self.caller.time())
            .again()
            .arg(self.caller.request_id())
            .run_id()
            .args(args)
            .patience(BUDGET_PATIENCE);
        Ok(Items::of(self.servers.run(call.key(), &call).await?)?)
    }

    /// Keeps what a reply reports of the day; the rest of it belongs to the transition.
    fn learn(&self, target: &TargetId, items: &mut Items) -> Result<(), StoreError> {
        let reported = decode::seen(items)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(target.clone()).or_default().learn(reported);
        Ok(())
    }
}

fn slot(priority: Priority) -> &'static str {
    match priority {
        Priority::High => "h",
        Priority::Low => "l",
    }
}

fn flag(items: &mut Items) -> Result<bool, StoreError> {
    Ok(items.flag()?)
}

fn put_version(args: &mut Args, version: &Version) {
    args.text(&version.0.to_string());
}

fn put_claim(args: &mut Args, params: &BeginParams) {
    put_version(args, &params.version);
    args.text(params.owner.as_str()).span(params.claim_for);
}

fn put_begin(args: &mut Args, params: &BeginParams) {
    put_claim(args, params);
    args.text(slot(params.priority));
}

#[async_trait]
impl RefreshStore for RedisRefreshStore {
    async fn request(&self, asks: Vec<(RecordId, RequestParams)>) -> Result<Vec<RequestOutcome>, StoreError> {
        counted_all(asks.iter().filter_map(|(_, params)| params.snapshot_version))?;
        let put = |args: &mut Args, params: &RequestParams| {
            args.text(slot(params.priority))
                .option(params.snapshot_version, |args, version| {
                    put_version(args, &version)
                })
                .big(params.read_at.0);
        };
        self.each(&scripts::REQUEST, &asks, put, decode::requested).await
    }

    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        self.each(&scripts::CONFIRM_SENT, &sent, put_version, flag).await
    }

    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        self.each(&scripts::SEND_FAILED, &unsent, put_version, flag).await
    }

    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> Result<Vec<BeginOutcome>, StoreError> {
        counted_all(begun.iter().map(|(_, params)| params.version))?;
        self.each(&scripts::BEGIN, &begun, put_begin, decode::begun).await
    }

    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> Result<Vec<bool>, StoreError> {
        self.each(&scripts::EXTEND, &claims, put_claim, flag).await
    }

    async fn abandon(&self, claims: Vec<(RecordId, Version, Owner)>) -> Result<Vec<bool>, StoreError> {
        let claims: Vec<_> = claims
            .into_iter()
            .map(|(record, version, owner)| (record, (version, owner)))
            .collect();
        let put = |args: &mut Args, (version, owner): &(Version, Owner)| {
            put_version(args, version);
            args.text(owner.as_str());
        };
        self.each(&scripts::ABANDON, &claims, put, flag).await
    }

    async fn settle(&self, settled: Vec<(RecordId, SettleParams)>) -> Result<Vec<SettleOutcome>, StoreError> {
        counted_all(settled.iter().map(|(_, params)| params.version))?;
        let coalescer = &self.settings.coalescer;
        let put = |args: &mut Args, params: &SettleParams| {
            put_version(args, &params.version);
            args.span(match params.priority {
                Priority::High => coalescer.high_mark_ms,
                Priority::Low => coalescer.low_mark_ms,
            });
            args.text(decode::settlement_name(params.settlement));
        };
        let read = |items: &mut Items| match items.flag()? {
            true => Ok(SettleOutcome::Settled),
            false => Ok(SettleOutcome::AlreadySettled),
        };
        self.each(&scripts::SETTLE, &settled, put, read).await
    }

    async fn look(&self, records: Vec<RecordId>) -> Result<Vec<Option<RecordState>>, StoreError> {
        let batch: Vec<_> = records.into_iter().map(|record| (record, ())).collect();
        let read = |items: &mut Items| {
            let now = items.time()?;
            let Some(mut state) = decode::state(items)? else {
                return Ok(None);
            };
            state.expire(&self.settings.coalescer, now);
            Ok(Some(state))
        };
        self.each(&scripts::LOOK, &batch, |_, ()| {}, read).await
    }

    async fn take(
        &self,
        target: &TargetId,
        priority: Priority,
        max_tokens: u64,
    ) -> Result<TakeOutcome, StoreError> {
        assert!(max_tokens > 0, "a take asks for at least one token");
        let put = |args: &mut Args| {
            args.text(slot(priority)).big(max_tokens);
        };
        let mut items = self.on_budget(&scripts::TAKE, target, put).await?;
        self.learn(target, &mut items)?;
        decode::took(&mut items)
    }

    async fn hold(&self, target: &TargetId, until_in: Millis) -> Result<Millis, StoreError> {
        let wait = self.settings.budget(target)?.held_for(until_in);
        let put = |args: &mut Args| {
            args.span(wait);
        };
        let mut items = self.on_budget(&scripts::HOLD, target, put).await?;
        self.learn(target, &mut items)?;
        Ok(wait)
    }

    async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        let mut items = self.on_budget(&scripts::LIFT, target, |_| {}).await?;
        self.learn(target, &mut items)?;
        flag(&mut items)
    }

    async fn budget(&self, target: &TargetId) -> Result<BudgetView, StoreError> {
        let mut items = self.on_budget(&scripts::LOOK_BUDGET, target, |_| {}).await?;
        let (now, ahead) = (items.time()?, Millis(items.unsigned()?));
        let state = decode::budget(&mut items)?;
        let config = self.settings.budget(target)?.clone();
        // The server has only one clock.
        let wall = now - ahead;
        let at = Moment {
            now,
            wall,
            steady: wall,
        };
        Ok(Budget::resumed(config, state).view(at))
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        if let Some(clock) = &self.clock {
            return Ok(clock.now());
        }
        let call = Call::time(self.keys.schema());
        let mut items = Items::of(self.servers.run(call.key(), &call).await?)?;
        let (secs, micros) = (items.unsigned()?, items.unsigned()?);
        Ok(tidegate_redis::time(secs * 1_000 + micros / 1_000))
    }
}
