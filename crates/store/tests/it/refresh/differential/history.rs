//! Random histories of the refresh part on two stores side by side: same commands, same times, same outcomes, same
//! states. The reference is the pure state machine.
//!
//! Time only advances here: a backward step is an offset, which one store has for everything and another per key.

use std::fmt::Debug;
use std::sync::Arc;

use tidegate_core::budget::{BudgetConfig, DayZone, LimitedBy};
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{Owner, RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RequestOutcome, RequestParams, SettleOutcome, SettleParams, Settlement,
};
use tidegate_core::refresh::config::CoalescerConfig;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::refresh::{RefreshSettings, RefreshStore, TakeOutcome};
use tidegate_testkit::Seen;
use tidegate_testkit::differential::same;

/// When every history begins.
pub(super) const START: Timestamp = Timestamp(1_706_000_000_000);

/// Steps between two comparisons of everything.
const LOOK_EVERY: u64 = 10;
/// Versions of a record that later commands choose from.
const VERSIONS: usize = 6;

/// Settings of one history: chosen by its seed, some of them close to each other so that limits meet.
pub(super) fn settings(seed: u64) -> RefreshSettings {
    let mut rng = Rng::new(seed ^ 0x5e77_1465);
    let small = BudgetConfig {
        per_day: rng.between(50, 300),
        day_reserve: rng.between(0, 40),
        low_floor_percent: rng.between(0, 50),
        zone: DayZone {
            utc_offset_minutes: *rng.pick(&[-480, 0, 540]),
            day_starts_at_minutes: *rng.pick(&[0, 60]),
        },
        ..BudgetConfig::default()
    };
    let slow = BudgetConfig {
        hard_limit: 20,
        rate: rng.between(1, 10),
        burst: rng.between(1, 9),
        low_cap: 15,
        low_burst: rng.between(1, 5),
        validity_ms: Millis(rng.between(1, 80)),
        per_day: 0,
        ..BudgetConfig::default()
    };
    let budgets = [("a", BudgetConfig::default()), ("small", small), ("slow", slow)];
    let coalescer = match rng.percent(50) {
        true => CoalescerConfig::default(),
        false => CoalescerConfig {
            high_mark_ms: Millis(300),
            low_mark_ms: Millis(700),
            high_pending_ms: Millis(5_000),
            low_pending_ms: Millis(9_000),
            send_timeout_ms: Millis(1_000),
            remember_ms: Millis(2_000),
        },
    };
    RefreshSettings {
        budgets: budgets
            .into_iter()
            .map(|(name, config)| (TargetId::new(name).expect("a short name"), config))
            .collect(),
        coalescer,
    }
}

struct History {
    seed: u64,
    step: u64,
    rng: Rng,
    clock: Arc<ManualClock>,
    reference: Arc<dyn RefreshStore>,
    other: Arc<dyn RefreshStore>,
    records: Vec<(RecordId, Vec<Version>)>,
    targets: Vec<TargetId>,
    seen: Seen,
}

/// Runs one history; panics where the stores differ.
pub(super) async fn run(
    seed: u64,
    steps: u64,
    clock: Arc<ManualClock>,
    reference: Arc<dyn RefreshStore>,
    other: Arc<dyn RefreshStore>,
) -> Result<Seen, StoreError> {
    let record = |key: &str| RecordId {
        source: SourceId::new("character").expect("a short name"),
        key: RecordKey::new(key).expect("a short name"),
    };
    let mut history = History {
        seed,
        step: 0,
        rng: Rng::new(seed),
        clock,
        reference,
        other,
        records: ["a", "b", "{c}", "d/e"]
            .map(|key| (record(key), Vec::new()))
            .to_vec(),
        targets: settings(seed).budgets.into_keys().collect(),
        seen: Seen::default(),
    };
    for step in 0..steps {
        history.step = step;
        history.pass_time();
        history.one().await?;
        if step % LOOK_EVERY == 0 {
            history.look().await?;
        }
    }
    history.look().await?;
    Ok(history.seen)
}

/// Makes the same call to both stores and returns their common answer.
macro_rules! both {
    ($history:ident, $store:ident => $ask:expr) => {{
        let one = {
            let $store = &$history.reference;
            $ask.await?
        };
        let other = {
            let $store = &$history.other;
            $ask.await?
        };
        $history.same(stringify!($ask), one, other)
    }};
}

impl History {
    fn same<T: PartialEq + Debug>(&self, asked: &str, one: T, other: T) -> T {
        let context = (("seed", self.seed), ("step", self.step), self.clock.now());
        same(&context, &asked, one, other)
    }

    fn pass_time(&mut self) {
        let span = match self.rng.below(1_000) {
            0..=499 => 0,
            500..=899 => self.rng.between(1, 12),
            900..=979 => self.rng.between(10, 400),
            980..=995 => self.rng.between(500, 40_000),
            996..=998 => self.rng.between(60_000, 4_000_000),
            _ => self.rng.between(3_600_000, 100_000_000),
        };
        self.clock.advance(Millis(span));
    }

    fn priority(&mut self) -> Priority {
        *self.rng.pick(&Priority::ALL)
    }

    fn record(&mut self) -> (usize, RecordId) {
        let index = self.rng.below(self.records.len() as u64) as usize;
        (index, self.records[index].0.clone())
    }

    /// A version that was issued, or one beside it.
    fn version(&mut self, record: usize) -> Version {
        let fresh = Version::floor(self.clock.now());
        let known = &self.records[record].1;
        let version = match known.last() {
            None => fresh,
            Some(&last) if self.rng.percent(70) => last,
            Some(_) => *self.rng.pick(known),
        };
        match self.rng.below(20) {
            0 => Version(version.0 + 1),
            1 => Version(version.0.saturating_sub(1)),
            2 => fresh,
            _ => version,
        }
    }

    fn batch<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let len = match self.rng.percent(70) {
            true => 1,
            false => self.rng.between(2, 5),
        };
        (0..len).map(|_| make(self)).collect()
    }

    fn versions(&mut self) -> Vec<(RecordId, Version)> {
        self.batch(|history| {
            let (index, record) = history.record();
            (record, history.version(index))
        })
    }

    fn claims(&mut self) -> Vec<(RecordId, BeginParams)> {
        self.batch(|history| {
            let (index, record) = history.record();
            let params = BeginParams {
                version: history.version(index),
                priority: history.priority(),
                owner: history.owner(),
                claim_for: Millis(history.rng.between(1, 3_000)),
            };
            (record, params)
        })
    }

    fn owner(&mut self) -> Owner {
        Owner::new(self.rng.pick(&["one", "two"])).expect("a short name")
    }

    async fn one(&mut self) -> Result<(), StoreError> {
        match self.rng.below(100) {
            0..=24 => self.request().await,
            25..=34 => {
                let sent = self.versions();
                for known in both!(self, store => store.confirm_sent(sent.clone())) {
                    self.seen.count(if known { "confirmed" } else { "not confirmed" });
                }
                Ok(())
            }
            35..=38 => {
                let unsent = self.versions();
                for freed in both!(self, store => store.send_failed(unsent.clone())) {
                    self.seen
                        .count(if freed { "rolled back" } else { "not rolled back" });
                }
                Ok(())
            }
            39..=50 => {
                let begun = self.claims();
                for outcome in both!(self, store => store.begin(begun.clone())) {
                    self.seen.count(match outcome {
                        BeginOutcome::Go => "go",
                        BeginOutcome::Obsolete => "obsolete",
                        BeginOutcome::Busy { .. } => "busy",
                    });
                }
                Ok(())
            }
            51..=54 => {
                let claims = self.claims();
                for held in both!(self, store => store.extend(claims.clone())) {
                    self.seen.count(if held { "extended" } else { "not extended" });
                }
                Ok(())
            }
            55..=57 => self.abandon().await,
            58..=69 => self.settle().await,
            70..=97 => self.take().await,
            _ => {
                let target = self.rng.pick(&self.targets).clone();
                if self.rng.percent(30) {
                    let lifted = both!(self, store => store.lift(&target));
                    self.seen
                        .count(if lifted { "hold lifted" } else { "no hold to lift" });
                    return Ok(());
                }
                let span = Millis(self.rng.between(0, 3_000));
                both!(self, store => store.hold(&target, span));
                Ok(())
            }
        }
    }

    async fn request(&mut self) -> Result<(), StoreError> {
        let now = self.clock.now();
        let asks = self.batch(|history| {
            let (index, record) = history.record();
            let snapshot_version = match history.rng.percent(30) {
                true => Some(history.version(index)),
                false => None,
            };
            let params = RequestParams {
                priority: history.priority(),
                snapshot_version,
                read_at: now - Millis(*history.rng.pick(&[0, 1, 50, 1_000])),
            };
            (record, params)
        });
        let outcomes: Vec<RequestOutcome> = both!(self, store => store.request(asks.clone()));
        for ((record, _), outcome) in asks.iter().zip(outcomes) {
            self.seen.count(outcome.as_str());
            let known = self.records.iter_mut().find(|(known, _)| known == record);
            if let (Some((_, versions)), Some(version)) = (known, outcome.to_send()) {
                versions.push(version);
                if versions.len() > VERSIONS {
                    versions.remove(0);
                }
            }
        }
        Ok(())
    }

    async fn abandon(&mut self) -> Result<(), StoreError> {
        let claims = self.batch(|history| {
            let (index, record) = history.record();
            (record, history.version(index), history.owner())
        });
        for held in both!(self, store => store.abandon(claims.clone())) {
            self.seen.count(if held { "abandoned" } else { "not abandoned" });
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), StoreError> {
        let settled = self.batch(|history| {
            let (index, record) = history.record();
            let settlements = [Settlement::Done, Settlement::Failed, Settlement::Parked];
            let params = SettleParams {
                version: history.version(index),
                priority: history.priority(),
                settlement: *history.rng.pick(&settlements),
            };
            (record, params)
        });
        for outcome in both!(self, store => store.settle(settled.clone())) {
            self.seen.count(match outcome {
                SettleOutcome::Settled => "settled",
                SettleOutcome::AlreadySettled => "already settled",
            });
        }
        Ok(())
    }

    async fn take(&mut self) -> Result<(), StoreError> {
        let (target, priority) = (self.rng.pick(&self.targets).clone(), self.priority());
        let max = self.rng.between(1, 30);
        match both!(self, store => store.take(&target, priority, max)) {
            TakeOutcome::Taken { .. } => self.seen.count("taken"),
            TakeOutcome::Limited { by, .. } => self.seen.count(match by {
                LimitedBy::Rate => "limited by rate",
                LimitedBy::LowCap => "limited by the low cap",
                LimitedBy::Day => "limited by the day",
                LimitedBy::Hold => "limited by a hold",
            }),
        }
        Ok(())
    }

    /// Compares everything that can be read.
    async fn look(&mut self) -> Result<(), StoreError> {
        let records: Vec<RecordId> = self.records.iter().map(|(record, _)| record.clone()).collect();
        both!(self, store => store.look(records.clone()));
        for target in self.targets.clone() {
            both!(self, store => store.budget(&target));
        }
        both!(self, store => store.now());
        Ok(())
    }
}
