//! The budget of one target: who may call it, when, and how often a day.
//!
//! ```text
//!              hold ──┐   day ──┐   low cap ──┐      bucket (rate, burst)
//!   take(HIGH) ───────┴─────────┴─────────────│────► level − what LOW is owed
//!   take(LOW)  ───────┴─────────┴─────────────┴────► level − what HIGH was denied, or what LOW is owed
//! ```
//!
//! A token is for one attempt. It is void if unused within its validity, and never returned. So the calls that
//! arrive in any second come from grants of at most `1 s + validity`, which is at most
//! `rate × (1 s + validity) + burst`.
//!
//! **HIGH first.** The budget reserves tokens that HIGH requested and did not get: LOW takes only what exceeds
//! them. In the same way it reserves from HIGH what the floor owes LOW (one of twenty). A reservation ends when
//! the caller gets its tokens or does not return.
//!
//! **Time** is the store's: it never goes back. If it does all the same, nothing is minted until it has caught
//! up; a jump forward mints at most one burst.
//!
//! **The day** is counted before the call, in the day of the wall clock and in that of a clock that nobody
//! steps. Neither count exceeds the quota: if either clock is right for a whole day of the provider, that day
//! stays within its quota. A clock that is stepped over midnight and back mints nothing. Limit: a restart
//! trusts the wall clock; a count that was ahead of it stays. The durable part changes once per block of calls:
//! [`Budget::take_record`] returns it, and the caller uses a grant only after that record is persisted.
//!
//! Whole numbers below 2^53 only: scripts restate this over one hash.

mod answer;
mod bucket;
mod config;
mod day;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

pub use answer::{asked_hold, asks_for_time};
pub use bucket::{Bucket, BucketConfig, TOKEN};
pub use config::{BudgetConfig, MAX_PER_DAY, MAX_RATE};
pub use day::{DAY_MS, DayCount, DayZone, Moment};

use crate::priority::Priority;
use crate::time::{Millis, Timestamp};

/// How long after its time the budget waits for a denied caller: enough for a timer and a round trip.
pub const PATIENCE: Millis = Millis(100);
/// How long nothing is granted when past grants are unknown: the longest window of the provider.
pub const SETTLING: Millis = Millis(1_000);

/// The outcome of one request for tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeOutcome {
    /// The caller may make `tokens` calls, each no later than `use_by`.
    Granted { tokens: u64, use_by: Timestamp },
    /// Nothing before `until`; then at least one token, if nobody else takes it.
    Limited { until: Timestamp, by: LimitedBy },
}

/// The limit that blocks longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The calls per second, or the other priority's share of them.
    Rate,
    /// The cap on low priority.
    LowCap,
    /// The daily quota, or the part reserved for high priority.
    Day,
    /// The target asked callers to back off.
    Hold,
}

/// Tokens that a priority was denied and will request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ask {
    pub tokens: u64,
    /// The reservation ends at this time.
    pub until: Timestamp,
}

impl Ask {
    fn tokens_at(self, now: Timestamp) -> u64 {
        if now < self.until { self.tokens } else { 0 }
    }
}

/// The whole state of a budget: one hash in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetState {
    /// Tokens of all calls.
    pub all: Bucket,
    /// Tokens under the cap on low priority.
    pub low: Bucket,
    pub high_ask: Ask,
    pub low_ask: Ask,
    /// Credit that low priority earned by waiting: `low_floor_percent` for every token that high got meanwhile.
    /// A token of its own costs the rest to 100.
    pub low_credit: u64,
    pub day: DayCount,
    /// No calls before this time, at the target's request.
    pub hold_until: Timestamp,
}

/// What must survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BudgetRecord {
    /// The day's calls, rounded up to whole blocks.
    pub day: DayCount,
    pub hold_until: Timestamp,
}

/// The values for gauges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetView {
    pub tokens: u64,
    pub low_tokens: u64,
    /// Calls counted in the current day.
    pub day_used: u64,
    /// Calls of each priority left in the day, if nobody else takes them.
    pub day_left_high: u64,
    pub day_left_low: u64,
    /// The current day ends here.
    pub day_ends: Timestamp,
    pub hold_until: Timestamp,
}

/// The budget of one target. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    config: BudgetConfig,
    state: BudgetState,
    /// The same calls as in `state.day`, by the clock that nobody steps.
    steady: DayCount,
    kept: BudgetRecord,
    unkept: bool,
}

/// One of the two counts of a day, at one moment.
#[derive(Debug, Clone, Copy)]
struct Calendar {
    count: DayCount,
    /// How far its clock is ahead of the store's time, in milliseconds.
    ahead: i64,
}

impl Budget {
    /// A budget without history: empty, and closed for the longest window.
    pub fn new(config: BudgetConfig, now: Timestamp) -> Self {
        Self::restored(config, BudgetRecord::default(), now)
    }

    /// Continues after a crash or a loss, from an empty bucket that also waits one second, because recent
    /// grants are unknown. Panics if the config was not validated.
    pub fn restored(config: BudgetConfig, record: BudgetRecord, now: Timestamp) -> Self {
        config.validate("budget").expect("validated where it was read");
        let record = BudgetRecord {
            // A hold persisted under other settings lasts no longer than these allow.
            hold_until: record.hold_until.min(now + config.max_hold_ms),
            ..record
        };
        let state = BudgetState {
            all: Bucket::empty(now + SETTLING),
            low: Bucket::empty(now + SETTLING),
            high_ask: Ask::default(),
            low_ask: Ask::default(),
            low_credit: 0,
            day: record.day,
            hold_until: record.hold_until,
        };
        Self {
            config,
            state,
            steady: record.day,
            kept: record,
            unkept: false,
        }
    }

    /// Continues from a state that was persisted unchanged.
    pub fn resumed(config: BudgetConfig, state: BudgetState) -> Self {
        let kept = BudgetRecord {
            day: state.day,
            hold_until: state.hold_until,
        };
        Self {
            config,
            steady: state.day,
            state,
            kept,
            unkept: false,
        }
    }

    /// Changes the settings; tokens above the burst are lost.
    pub fn configure(&mut self, config: BudgetConfig, now: Timestamp) {
        self.state.all.refill(self.config.bucket(), now);
        self.state.low.refill(self.config.low_bucket(), now);
        self.config = config;
        self.state.all.refill(self.config.bucket(), now);
        self.state.low.refill(self.config.low_bucket(), now);
    }

    pub fn config(&self) -> &BudgetConfig {
        &self.config
    }

    pub fn state(&self) -> &BudgetState {
        &self.state
    }

    /// Takes 1 to `max_tokens` tokens, or returns when to retry. Requesting none is a programmer error.
    pub fn take(&mut self, priority: Priority, max_tokens: u64, at: impl Into<Moment>) -> TakeOutcome {
        assert!(max_tokens > 0, "a take asks for at least one token");
        let at: Moment = at.into();
        let now = at.now;
        self.advance(priority, at);
        let wanted = self.wanted(priority, max_tokens, at);
        let granted = wanted.min(self.within_reach(priority, now));
        if granted == 0 {
            return self.refuse(priority, wanted, at);
        }
        self.spend(priority, granted, now);
        let missing = wanted - granted;
        self.remember(priority, missing, now);
        TakeOutcome::Granted {
            tokens: granted,
            use_by: now + self.config.validity_ms,
        }
    }

    /// Holds all calls for `wait` at the target's request; returns the actual hold. A shorter hold never ends a
    /// longer one.
    pub fn hold(&mut self, wait: Millis, now: Timestamp) -> Millis {
        let wait = self.config.held_for(wait);
        let until = now + wait;
        if until > self.state.hold_until {
            self.state.hold_until = until;
            self.kept.hold_until = until;
            self.unkept = true;
        }
        wait
    }

    /// Ends the hold at an operator's request. Returns false if there was none.
    pub fn lift(&mut self, now: Timestamp) -> bool {
        let held = now < self.state.hold_until;
        if held {
            self.state.hold_until = Timestamp(0);
            self.kept.hold_until = Timestamp(0);
            self.unkept = true;
        }
        held
    }

    /// The record that must be durable before the last grant is used; none if the persisted one still covers
    /// it.
    pub fn take_record(&mut self) -> Option<BudgetRecord> {
        std::mem::take(&mut self.unkept).then_some(self.kept)
    }

    /// The view at one moment.
    pub fn view(&self, at: impl Into<Moment>) -> BudgetView {
        let at: Moment = at.into();
        let mut budget = self.clone();
        budget.advance(Priority::High, at);
        let ends = |calendar: Calendar| {
            let end = self.config.zone.start(calendar.count.day + 1);
            Timestamp(end.0.saturating_add_signed(-calendar.ahead))
        };
        let [wall, steady] = budget.calendars(at).map(ends);
        BudgetView {
            tokens: budget.state.all.tokens(),
            low_tokens: budget.state.low.tokens(),
            day_used: budget.state.day.used.max(budget.steady.used),
            day_left_high: budget.day_left(Priority::High),
            day_left_low: budget.day_left(Priority::Low),
            day_ends: wall.max(steady),
            hold_until: self.state.hold_until,
        }
    }

    fn calendars(&self, at: Moment) -> [Calendar; 2] {
        [(self.state.day, at.wall), (self.steady, at.steady)].map(|(count, clock)| Calendar {
            count,
            ahead: clock.0.wrapping_sub(at.now.0) as i64,
        })
    }

    /// Mints, turns the day, and drops the credit of low priority if it has not returned.
    fn advance(&mut self, priority: Priority, at: Moment) {
        let now = at.now;
        self.state.all.refill(self.config.bucket(), now);
        self.state.low.refill(self.config.low_bucket(), now);
        self.state.day.turn(self.config.zone.day(at.wall));
        self.steady.turn(self.config.zone.day(at.steady));
        if priority == Priority::Low && self.state.low_ask.tokens_at(now) == 0 {
            self.state.low_credit = 0;
        }
    }

    /// What the caller could use if the rate were the only limit.
    fn wanted(&self, priority: Priority, max_tokens: u64, at: Moment) -> u64 {
        if at.now < self.state.hold_until || self.open_day(priority, at, at.now) > at.now {
            return 0;
        }
        let cap = match priority {
            Priority::High => max_tokens,
            Priority::Low => self.state.low.tokens(),
        };
        max_tokens.min(cap).min(self.day_left(priority))
    }

    /// Calls left in the current day for a priority, by the clock that leaves fewer.
    fn day_left(&self, priority: Priority) -> u64 {
        let [wall, steady] = [self.state.day, self.steady].map(|count| self.left_of(count, priority));
        wall.min(steady)
    }

    fn left_of(&self, count: DayCount, priority: Priority) -> u64 {
        let left = self.config.day_quota(Priority::High).saturating_sub(count.used);
        match priority {
            Priority::High => left,
            Priority::Low => {
                let own = self.config.day_quota(Priority::Low).saturating_sub(count.low);
                left.min(own)
            }
        }
    }

    /// The first moment from `from` on, in store time, at which the day allows a call of this priority.
    fn open_day(&self, priority: Priority, at: Moment, from: Timestamp) -> Timestamp {
        let both = |from: Timestamp| {
            let [wall, steady] = self
                .calendars(at)
                .map(|calendar| self.open_by(calendar, priority, from));
            wall.max(steady)
        };
        // A moment that is open by one clock may be the end of a day by the other.
        both(both(from))
    }

    /// The same by one clock.
    ///
    /// Nothing is granted in the last moments of a day, for as long as a token is valid: such a call could
    /// arrive in either day.
    fn open_by(&self, calendar: Calendar, priority: Priority, from: Timestamp) -> Timestamp {
        let zone = self.config.zone;
        let at = Timestamp(from.0.saturating_add_signed(calendar.ahead));
        let today = zone.day(at).max(calendar.count.day);
        let later = zone.day(at + self.config.validity_ms);
        let used_up = today == calendar.count.day && self.left_of(calendar.count, priority) == 0;
        let open = match (later > today, used_up) {
            (true, _) => zone.start(later),
            (false, true) => zone.start(today + 1),
            (false, false) => at,
        };
        from + open.since(at)
    }

    /// Tokens reserved from the other priority.
    fn kept_for(&self, priority: Priority, now: Timestamp) -> u64 {
        match priority {
            Priority::High => self.state.high_ask.tokens_at(now).min(self.config.burst),
            Priority::Low => self.state.low_ask.tokens_at(now).min(self.owed_to_low()),
        }
    }

    /// Whole tokens that low priority earned; bounded, so that it never takes a burst from high.
    fn owed_to_low(&self) -> u64 {
        let owed = self.state.low_credit / (100 - self.config.low_floor_percent);
        owed.min(self.config.burst.div_ceil(2))
    }

    /// Tokens of the bucket that a priority may take.
    fn within_reach(&self, priority: Priority, now: Timestamp) -> u64 {
        let level = self.state.all.tokens();
        match priority {
            Priority::High => level.saturating_sub(self.kept_for(Priority::Low, now)),
            Priority::Low => {
                let above = level.saturating_sub(self.kept_for(Priority::High, now));
                above.max(level.min(self.owed_to_low()))
            }
        }
    }

    fn spend(&mut self, priority: Priority, tokens: u64, now: Timestamp) {
        let (floor, state) = (self.config.low_floor_percent, &mut self.state);
        state.all.spend(tokens);
        state.day.used += tokens;
        self.steady.used += tokens;
        match priority {
            Priority::High if state.low_ask.tokens_at(now) > 0 => {
                let most = (100 - floor) * self.config.burst;
                state.low_credit = most.min(state.low_credit + floor * tokens);
            }
            Priority::High => {}
            Priority::Low => {
                state.low.spend(tokens);
                state.day.low += tokens;
                self.steady.low += tokens;
                state.low_credit = state.low_credit.saturating_sub((100 - floor) * tokens);
            }
        }
        let (day, kept) = (state.day.with(self.steady), self.kept.day);
        let block = self.config.day_block;
        let fell = kept.used >= day.used + block || kept.low >= day.low + block;
        if day.day != kept.day || day.used > kept.used || day.low > kept.low || fell {
            let quota = self.config.day_quota(Priority::High);
            self.kept.day = day.in_blocks(block, quota);
            self.unkept = true;
        }
    }

    fn refuse(&mut self, priority: Priority, wanted: u64, at: Moment) -> TakeOutcome {
        if wanted == 0 {
            // The rate is not what blocks it, so nothing is reserved for it.
            self.remember(priority, 0, at.now);
        }
        let (until, by) = self.next(priority, at);
        if wanted > 0 {
            self.remember(priority, wanted, until);
        }
        TakeOutcome::Limited { until, by }
    }

    /// Reserves what a priority did not get, until it should have returned.
    fn remember(&mut self, priority: Priority, tokens: u64, from: Timestamp) {
        let ask = Ask {
            tokens,
            until: if tokens > 0 { from + PATIENCE } else { Timestamp(0) },
        };
        match priority {
            Priority::High => self.state.high_ask = ask,
            Priority::Low => {
                self.state.low_ask = ask;
                if tokens == 0 {
                    self.state.low_credit = 0;
                }
            }
        }
    }

    /// When one token is available, and the limit that blocks longest.
    fn next(&self, priority: Priority, at: Moment) -> (Timestamp, LimitedBy) {
        let now = at.now;
        let (mut until, mut by) = (self.next_by_rate(priority, now), LimitedBy::Rate);
        if priority == Priority::Low {
            let cap = self.ready(self.state.low, self.config.low_bucket(), 1);
            if cap > until {
                (until, by) = (cap, LimitedBy::LowCap);
            }
        }
        if self.state.hold_until > until {
            (until, by) = (self.state.hold_until, LimitedBy::Hold);
        }
        let until = until.max(now);
        match self.open_day(priority, at, until) {
            open if open > until => (open, LimitedBy::Day),
            _ => (until, by),
        }
    }

    fn next_by_rate(&self, priority: Priority, now: Timestamp) -> Timestamp {
        let one = self.ready(self.state.all, self.config.bucket(), 1);
        let (kept, ask) = match priority {
            Priority::High => (self.kept_for(Priority::Low, now), self.state.low_ask),
            Priority::Low if self.owed_to_low() > 0 => return one,
            Priority::Low => (self.kept_for(Priority::High, now), self.state.high_ask),
        };
        if kept == 0 {
            return one;
        }
        // Either enough for both is minted, or the other one does not return.
        let both = self.ready(self.state.all, self.config.bucket(), kept + 1);
        both.min(one.max(ask.until))
    }

    fn ready(&self, bucket: Bucket, config: BucketConfig, tokens: u64) -> Timestamp {
        bucket.ready_at(config, tokens).unwrap_or(Timestamp(u64::MAX))
    }
}
