//! All records and budgets in one process: the core's functions over a map. The model and the embedded store
//! run this.
//!
//! Invariant: every remembered record is in the queue of forgettable records exactly once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use async_trait::async_trait;
use hashbrown::HashMap;
use tidegate_core::budget::{self, Budget, BudgetRecord, BudgetView, Moment};
use tidegate_core::ids::{Owner, RecordId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    self, BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
};
use tidegate_core::refresh::config::CoalescerConfig;
use tidegate_core::time::{Millis, StoreClock, Timestamp};
use tidegate_durable::{ReplyAfter, Run};

use super::{RefreshSettings, RefreshStore, TakeOutcome, counted_all};
use crate::StoreError;

/// A record may become idle earlier than predicted: it is checked again after this time at the latest.
const LOOK_AGAIN: Millis = Millis(15 * 60_000);

#[derive(Debug)]
pub struct Machine {
    settings: RefreshSettings,
    clock: StoreClock,
    /// The last value received.
    steady: Timestamp,
    records: HashMap<RecordId, RecordState>,
    budgets: BTreeMap<TargetId, Budget>,
    forgettable: BinaryHeap<Reverse<(Timestamp, RecordId)>>,
    changed: Vec<RecordId>,
    due: Vec<(TargetId, BudgetRecord)>,
    /// How many budget records there were in all.
    mark: u64,
}

impl Machine {
    /// An empty machine. `kept` are the budget records of an earlier run.
    pub(super) fn new(
        settings: RefreshSettings,
        mut clock: StoreClock,
        kept: &BTreeMap<TargetId, BudgetRecord>,
        wall: Timestamp,
    ) -> Self {
        let now = clock.observe(wall);
        let restored = |(target, config): (&TargetId, &budget::BudgetConfig)| {
            let record = kept.get(target).copied().unwrap_or_default();
            (target.clone(), Budget::restored(config.clone(), record, now))
        };
        Self {
            budgets: settings.budgets.iter().map(restored).collect(),
            settings,
            clock,
            steady: wall,
            records: HashMap::new(),
            forgettable: BinaryHeap::new(),
            changed: Vec::new(),
            due: Vec::new(),
            mark: 0,
        }
    }

    /// A record of an earlier run.
    pub(super) fn restore(&mut self, record: RecordId, state: RecordState) {
        let idle_at = state.idle_at(&self.settings.coalescer);
        self.forgettable.push(Reverse((idle_at, record.clone())));
        self.records.insert(record, state);
    }

    /// Sets the time of the clock that nobody steps; called before every command.
    pub(super) fn set_steady(&mut self, steady: Timestamp) {
        self.steady = steady;
    }

    pub(super) fn clock(&self) -> StoreClock {
        self.clock
    }

    pub(super) fn record(&self, record: &RecordId) -> Option<&RecordState> {
        self.records.get(record)
    }

    /// Whether anything changed that no caller has taken yet.
    pub(super) fn changes(&self) -> u64 {
        self.changed.len() as u64
    }

    /// Records that changed or were forgotten; one may occur more than once.
    pub(super) fn take_changed(&mut self) -> Vec<RecordId> {
        std::mem::take(&mut self.changed)
    }

    /// Budget records that must be durable before any later grant is returned.
    pub(super) fn take_due(&mut self) -> Vec<(TargetId, BudgetRecord)> {
        std::mem::take(&mut self.due)
    }

    /// Grows with every budget record: a grant is returned once the records up to its mark are durable.
    pub(super) fn mark(&self) -> u64 {
        self.mark
    }

    /// Forgets idle records; inspects at most `max`.
    pub(super) fn forget(&mut self, max: usize) {
        let (config, now) = (&self.settings.coalescer, self.clock.last());
        for _ in 0..max {
            if self.forgettable.peek().is_none_or(|Reverse((at, _))| *at > now) {
                return;
            }
            let Some(Reverse((_, record))) = self.forgettable.pop() else {
                return;
            };
            let Some(state) = self.records.get(&record) else {
                continue;
            };
            let idle_at = state.idle_at(config);
            if idle_at <= now {
                self.records.remove(&record);
                self.changed.push(record);
            } else {
                let again = idle_at.min(now + LOOK_AGAIN);
                self.forgettable.push(Reverse((again, record)));
            }
        }
    }

    fn each<P, T>(
        &mut self,
        batch: Vec<(RecordId, P)>,
        wall: Timestamp,
        step: impl Fn(Option<RecordState>, &CoalescerConfig, P, Timestamp) -> (Option<RecordState>, T),
    ) -> Vec<T> {
        let now = self.clock.observe(wall);
        let one = |(record, params): (RecordId, P)| {
            let config = &self.settings.coalescer;
            let held = self.records.get(&record);
            let before = held.filter(|state| !state.is_idle(config, now)).cloned();
            let (after, outcome) = step(before.clone(), config, params, now);
            if let Some(after) = after
                && before.as_ref() != Some(&after)
            {
                if held.is_none() {
                    let idle_at = after.idle_at(config).min(now + LOOK_AGAIN);
                    self.forgettable.push(Reverse((idle_at, record.clone())));
                }
                self.records.insert(record.clone(), after);
                self.changed.push(record);
            }
            outcome
        };
        batch.into_iter().map(one).collect()
    }

    fn look(&mut self, records: &[RecordId], wall: Timestamp) -> Vec<Option<RecordState>> {
        let (now, config) = (self.clock.observe(wall), &self.settings.coalescer);
        let seen = |record| {
            let held: Option<&RecordState> = self.records.get(record);
            let mut state = held.filter(|state| !state.is_idle(config, now))?.clone();
            state.expire(config, now);
            Some(state)
        };
        records.iter().map(seen).collect()
    }

    fn with_budget<T>(
        &mut self,
        target: &TargetId,
        wall: Timestamp,
        step: impl FnOnce(&mut Budget, Moment) -> T,
    ) -> Result<T, StoreError> {
        let at = Moment {
            now: self.clock.observe(wall),
            wall,
            steady: self.steady,
        };
        let Some(budget) = self.budgets.get_mut(target) else {
            return Err(self.settings.unknown(target));
        };
        let answer = step(budget, at);
        if let Some(record) = budget.take_record() {
            self.due.push((target.clone(), record));
            self.mark += 1;
        }
        Ok(answer)
    }
}

/// Converts the core's outcome to spans.
pub(super) fn in_spans(outcome: budget::TakeOutcome, now: Timestamp) -> TakeOutcome {
    match outcome {
        budget::TakeOutcome::Granted { tokens, use_by } => TakeOutcome::Taken {
            tokens,
            valid_for: use_by.since(now),
        },
        budget::TakeOutcome::Limited { until, by } => TakeOutcome::Limited {
            wait: until.since(now),
            by,
        },
    }
}

/// What a power cut may lose, and why that is harmless:
/// - `confirm_sent`, `send_failed`: the event counts as never sent after `send_timeout_ms`, as if its sender
///   had died.
/// - `begin`, `extend`, `abandon`: the workers of an embedded store died with it, and so may their claims.
///
/// Versions (`request`), ends (`settle`), holds and days are on disk before the store replies.
#[async_trait]
impl<M: Run<Machine>> RefreshStore for M {
    async fn request(&self, asks: Vec<(RecordId, RequestParams)>) -> Result<Vec<RequestOutcome>, StoreError> {
        counted_all(asks.iter().filter_map(|(_, params)| params.snapshot_version))?;
        let work = |machine: &mut Machine, wall| machine.each(asks, wall, coalescer::request);
        synced(self, work).await
    }

    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        let work = |machine: &mut Machine, wall| machine.each(sent, wall, coalescer::confirm_sent);
        written(self, work).await
    }

    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError> {
        let work = |machine: &mut Machine, wall| machine.each(unsent, wall, coalescer::send_failed);
        written(self, work).await
    }

    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> Result<Vec<BeginOutcome>, StoreError> {
        counted_all(begun.iter().map(|(_, params)| params.version))?;
        let work = |machine: &mut Machine, wall| {
            machine.each(begun, wall, |state, config, params, now| {
                coalescer::begin(state, config, &params, now)
            })
        };
        written(self, work).await
    }

    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> Result<Vec<bool>, StoreError> {
        let work = |machine: &mut Machine, wall| {
            machine.each(claims, wall, |state, config, params, now| {
                coalescer::extend(state, config, &params, now)
            })
        };
        written(self, work).await
    }

    async fn abandon(&self, claims: Vec<(RecordId, Version, Owner)>) -> Result<Vec<bool>, StoreError> {
        let claims = claims
            .into_iter()
            .map(|(record, version, owner)| (record, (version, owner)))
            .collect();
        let work = |machine: &mut Machine, wall| {
            machine.each(claims, wall, |state, config, (version, owner), now| {
                coalescer::abandon(state, config, version, &owner, now)
            })
        };
        written(self, work).await
    }

    async fn settle(&self, settled: Vec<(RecordId, SettleParams)>) -> Result<Vec<SettleOutcome>, StoreError> {
        counted_all(settled.iter().map(|(_, params)| params.version))?;
        let work = |machine: &mut Machine, wall| machine.each(settled, wall, coalescer::settle);
        synced(self, work).await
    }

    async fn look(&self, records: Vec<RecordId>) -> Result<Vec<Option<RecordState>>, StoreError> {
        let work = move |machine: &mut Machine, wall| machine.look(&records, wall);
        written(self, work).await
    }

    async fn take(
        &self,
        target: &TargetId,
        priority: Priority,
        max_tokens: u64,
    ) -> Result<TakeOutcome, StoreError> {
        // Here and not on the machine's thread: a panic must not end what others share.
        assert!(max_tokens > 0, "a take asks for at least one token");
        let target = target.clone();
        let work = move |machine: &mut Machine, wall| {
            machine.with_budget(&target, wall, |budget, at| {
                in_spans(budget.take(priority, max_tokens, at), at.now)
            })
        };
        granted(self, work).await?
    }

    async fn hold(&self, target: &TargetId, until_in: Millis) -> Result<Millis, StoreError> {
        let target = target.clone();
        let work = move |machine: &mut Machine, wall| {
            machine.with_budget(&target, wall, |budget, at| budget.hold(until_in, at.now))
        };
        granted(self, work).await?
    }

    async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        let target = target.clone();
        let work = move |machine: &mut Machine, wall| {
            machine.with_budget(&target, wall, |budget, at| budget.lift(at.now))
        };
        granted(self, work).await?
    }

    async fn budget(&self, target: &TargetId) -> Result<BudgetView, StoreError> {
        let target = target.clone();
        let work = move |machine: &mut Machine, wall| {
            machine.with_budget(&target, wall, |budget, at| budget.view(at))
        };
        written(self, work).await?
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        let work = |machine: &mut Machine, wall| machine.clock.observe(wall);
        granted(self, work).await
    }
}

/// Runs work that replies after the sync.
async fn synced<T: Send + 'static>(
    on: &impl Run<Machine>,
    work: impl FnOnce(&mut Machine, Timestamp) -> T + Send + 'static,
) -> Result<T, StoreError> {
    let work = |machine: &mut Machine, wall: Timestamp| (work(machine, wall), ReplyAfter::Sync);
    Ok(on.run(work).await?)
}

/// Runs work that replies after the write.
async fn written<T: Send + 'static>(
    on: &impl Run<Machine>,
    work: impl FnOnce(&mut Machine, Timestamp) -> T + Send + 'static,
) -> Result<T, StoreError> {
    let work = |machine: &mut Machine, wall: Timestamp| (work(machine, wall), ReplyAfter::Write);
    Ok(on.run(work).await?)
}

/// Runs work that replies once every budget record up to it is durable.
async fn granted<T: Send + 'static>(
    on: &impl Run<Machine>,
    work: impl FnOnce(&mut Machine, Timestamp) -> T + Send + 'static,
) -> Result<T, StoreError> {
    let work = |machine: &mut Machine, wall: Timestamp| {
        let outcome = work(machine, wall);
        (outcome, ReplyAfter::Mark(machine.mark()))
    };
    Ok(on.run(work).await?)
}
