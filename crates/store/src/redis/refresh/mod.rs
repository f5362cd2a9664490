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

mod batch;
mod call;
mod decode;

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use tidegate_core::budget::{Budget, BudgetView, Moment};
use tidegate_core::ids::{Owner, RecordId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
};
use tidegate_core::time::{Millis, Timestamp};

use self::call::Call;
use self::decode::Seen;
use super::keys::RefreshKeys;
use super::reply::Items;
use super::scripts::{self, Script};
use super::servers::Servers;
use super::{Args, reply};
use crate::refresh::{RefreshSettings, RefreshStore, TakeOutcome, counted_all};
use crate::{Clock, StoreError};

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
    keys: RefreshKeys,
    settings: RefreshSettings,
    clock: Option<Arc<dyn Clock>>,
    /// Distinguishes this process's calls from those of others.
    name: String,
    calls: AtomicU64,
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
        if prefix.contains(['{', '}']) {
            return Err(StoreError::Config(format!(
                "the key prefix {prefix:?} has a brace, which would change where a Cluster keeps the keys"
            )));
        }
        Ok(Self {
            servers: Servers::new(&urls)?,
            keys: RefreshKeys::new(&prefix),
            settings,
            clock,
            name: format!("{:016x}", RandomState::new().build_hasher().finish()),
            calls: AtomicU64::new(0),
            opened: AtomicBool::new(false),
            seen: Mutex::default(),
        })
    }

    /// Runs before everything else. Concurrent calls may repeat it: it is idempotent.
    async fn opened(&self) -> Result<(), StoreError> {
        if self.opened.load(Ordering::Acquire) {
            return Ok(());
        }
        self.check_schema().await?;
        for target in self.settings.budgets.keys() {
            self.call_budget(&scripts::REFRESH_OPEN_BUDGET, target, |_| {})
                .await?;
        }
        self.opened.store(true, Ordering::Release);
        Ok(())
    }

    async fn check_schema(&self) -> Result<(), StoreError> {
        let mut args = Args::default();
        args.number(SCHEMA);
        let call = Call::bare(&scripts::REFRESH_OPEN, self.keys.schema(), args);
        let mut items = Items::of(self.servers.run(call.key(), &call).await?)?;
        let found = items.text()?;
        match found == SCHEMA.to_string() {
            true => Ok(()),
            false => Err(StoreError::Unsuitable {
                server: format!("the store under {:?}", self.keys.schema()),
                reason: format!(
                    "it has schema {found}, this program knows schema {SCHEMA}; use the version of Tidegate that wrote \
                     it, or another prefix"
                ),
            }),
        }
    }

    fn time(&self) -> String {
        let clock = self.clock.as_ref();
        clock.map_or_else(String::new, |clock| clock.now().0.to_string())
    }

    /// The same for every attempt of one call.
    fn request_id(&self) -> String {
        format!("{}{:x}", self.name, self.calls.fetch_add(1, Ordering::Relaxed))
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
        Call::of_record(
            script,
            self.keys.record(record),
            self.time(),
            self.request_id(),
            args,
        )
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
        let answers = batch::run(&self.servers, &calls).await?;
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
        let mut args = call::budget_args(config, seen);
        put(&mut args);
        let call = Call::of_budget(
            script,
            self.keys.target(target),
            self.time(),
            self.request_id(),
            args,
        );
        Items::of(self.servers.run(call.key(), &call).await?)
    }

    /// Keeps what a reply reports of the day; the rest of it belongs to the transition.
    fn learn(&self, target: &TargetId, items: &mut Items) -> Result<(), StoreError> {
        let told = decode::seen(items)?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.entry(target.clone()).or_default().learn(told);
        Ok(())
    }
}

fn slot(priority: Priority) -> &'static str {
    match priority {
        Priority::High => "h",
        Priority::Low => "l",
    }
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
        self.each(&scripts::REFRESH_REQUEST, &asks, put, decode::requested)
            .await
    }

    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        self.each(&scripts::REFRESH_CONFIRM_SENT, &sent, put_version, Items::flag)
            .await
    }

    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        self.each(&scripts::REFRESH_SEND_FAILED, &unsent, put_version, Items::flag)
            .await
    }

    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> Result<Vec<BeginOutcome>, StoreError> {
        counted_all(begun.iter().map(|(_, params)| params.version))?;
        self.each(&scripts::REFRESH_BEGIN, &begun, put_begin, decode::begun)
            .await
    }

    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> Result<Vec<bool>, StoreError> {
        self.each(&scripts::REFRESH_EXTEND, &claims, put_claim, Items::flag)
            .await
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
        self.each(&scripts::REFRESH_ABANDON, &claims, put, Items::flag)
            .await
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
        self.each(&scripts::REFRESH_SETTLE, &settled, put, read).await
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
        self.each(&scripts::REFRESH_LOOK, &batch, |_, ()| {}, read).await
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
        let mut items = self.on_budget(&scripts::REFRESH_TAKE, target, put).await?;
        self.learn(target, &mut items)?;
        decode::took(&mut items)
    }

    async fn hold(&self, target: &TargetId, until_in: Millis) -> Result<Millis, StoreError> {
        let wait = self.settings.budget(target)?.held_for(until_in);
        let put = |args: &mut Args| {
            args.span(wait);
        };
        let mut items = self.on_budget(&scripts::REFRESH_HOLD, target, put).await?;
        self.learn(target, &mut items)?;
        Ok(wait)
    }

    async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        let mut items = self.on_budget(&scripts::REFRESH_LIFT, target, |_| {}).await?;
        self.learn(target, &mut items)?;
        items.flag()
    }

    async fn budget(&self, target: &TargetId) -> Result<BudgetView, StoreError> {
        let mut items = self
            .on_budget(&scripts::REFRESH_LOOK_BUDGET, target, |_| {})
            .await?;
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
        Ok(reply::time(secs * 1_000 + micros / 1_000))
    }
}
