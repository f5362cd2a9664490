//! The budget of one target: who may call it, when, and how often a day.
//!
//! ```text
//!              hold ──┐   day ──┐   low cap ──┐      bucket (rate, burst)
//!   take(HIGH) ───────┴─────────┴─────────────│────► level − what LOW is owed
//!   take(LOW)  ───────┴─────────┴─────────────┴────► level − what HIGH was refused, or what LOW is owed
//! ```
//!
//! A token is for one attempt, and void when it is not used within the validity; none is ever given back. So
//! the calls that arrive in any second come from grants of at most `1 s + validity`, which is at most
//! `rate × (1 s + validity) + burst`.
//!
//! **HIGH first.** What HIGH asked for and did not get is kept aside: LOW takes only what lies above it. What
//! LOW is owed by its floor (one of twenty) is kept aside from HIGH in the same way. Both end when the caller
//! gets what it wanted or does not come back.
//!
//! **Time** is the store's: it never goes back. If it does all the same, nothing is minted until it has caught up;
//! a jump forward mints at most one burst.
//!
//! **The day** is counted before the call, in the day of the wall clock and in that of a clock that nobody steps, and
//! neither count exceeds the quota: if either clock is right for a whole day of the provider, that day is not over. A
//! clock that is stepped over midnight and back mints nothing. Limit: a restart believes the wall clock; a count that
//! was ahead of it stays. What must be durable changes once per block of calls:
//! [`Budget::take_record`] says when, and a grant is used only after that record is kept.
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
pub use bucket::{Bucket, Flow, TOKEN};
pub use config::{BudgetConfig, MAX_PER_DAY, MAX_RATE};
pub use day::{DAY_MS, DayCount, DayZone, Moment};

use crate::priority::Priority;
use crate::time::{Millis, Timestamp};

/// How long after its time a caller that was refused is waited for: a timer and a round trip fit in it.
pub const PATIENCE: Millis = Millis(100);
/// How long nothing is handed out when it is unknown what was: the longest window of the provider.
pub const SETTLING: Millis = Millis(1_000);

/// What one ask came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TakeOutcome {
    /// `tokens` calls may be made, each no later than `use_by`.
    Granted { tokens: u64, use_by: Timestamp },
    /// Nothing before `until`; then something, if nobody else takes it.
    Limited { until: Timestamp, by: LimitedBy },
}

/// Which limit was the last to give way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitedBy {
    /// The calls per second, or the other priority's part of them.
    Rate,
    /// The cap on low priority.
    LowCap,
    /// The daily quota, or the part of it that is left for high priority.
    Day,
    /// The target asked to be left alone.
    Hold,
}

/// Tokens that a priority was refused and will come back for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ask {
    pub tokens: u64,
    /// From here on it is not waited for.
    pub until: Timestamp,
}

impl Ask {
    fn tokens_at(self, now: Timestamp) -> u64 {
        if now < self.until { self.tokens } else { 0 }
    }
}

/// Everything a budget remembers: one hash in a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetState {
    /// Tokens of all calls.
    pub all: Bucket,
    /// Tokens under the cap on low priority.
    pub low: Bucket,
    pub high_ask: Ask,
    pub low_ask: Ask,
    /// What low priority earned by waiting: `low_floor_percent` for every token that high got meanwhile; a token
    /// of its own costs the rest to 100.
    pub low_credit: u64,
    pub day: DayCount,
    /// Nothing before this: the target said so.
    pub hold_until: Timestamp,
}

/// What must survive a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BudgetRecord {
    /// The day's calls, rounded up to whole blocks.
    pub day: DayCount,
    pub hold_until: Timestamp,
}

/// What a gauge shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetView {
    pub tokens: u64,
    pub low_tokens: u64,
    /// Calls counted in the current day.
    pub day_used: u64,
    /// Calls of each priority that the day still has, if nobody else takes them.
    pub day_left_high: u64,
    pub day_left_low: u64,
    /// The current day ends here.
    pub day_ends: Timestamp,
    pub hold_until: Timestamp,
}

/// The budget of one target. See the module's description.
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
    /// A budget of which nothing is known: empty, and silent for the longest window.
    pub fn new(config: BudgetConfig, now: Timestamp) -> Self {
        Self::restored(config, BudgetRecord::default(), now)
    }

    /// Goes on after a crash or a loss: from an empty bucket that also waits one second, because nobody knows
    /// what was handed out just before. Panics if the config was not validated.
    pub fn restored(config: BudgetConfig, record: BudgetRecord, now: Timestamp) -> Self {
        config.validate("budget").expect("validated where it was read");
        let record = BudgetRecord {
            // One that was kept under other settings lasts no longer than these allow.
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

    /// Goes on from a state that was kept as it was.
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

    /// Other settings from here on; what lies ready above the burst is gone.
    pub fn configure(&mut self, config: BudgetConfig, now: Timestamp) {
        self.state.all.refill(self.config.flow(), now);
        self.state.low.refill(self.config.low_flow(), now);
        self.config = config;
        self.state.all.refill(self.config.flow(), now);
        self.state.low.refill(self.config.low_flow(), now);
    }

    pub fn config(&self) -> &BudgetConfig {
        &self.config
    }

    pub fn state(&self) -> &BudgetState {
        &self.state
    }

    /// Takes 1 to `max_tokens` tokens, or says when to ask again. Asking for none is a programmer's error.
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

    /// The target asked to be left alone for `wait`; for how long it is. A shorter hold never ends a longer one.
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

    /// Somebody knows better than the target: calls are made again. False if it was not held.
    pub fn lift(&mut self, now: Timestamp) -> bool {
        let held = now < self.state.hold_until;
        if held {
            self.state.hold_until = Timestamp(0);
            self.kept.hold_until = Timestamp(0);
            self.unkept = true;
        }
        held
    }

    /// The record that must be durable before the last grant is used; none if what is kept still covers it.
    pub fn take_record(&mut self) -> Option<BudgetRecord> {
        std::mem::take(&mut self.unkept).then_some(self.kept)
    }

    /// As it is at a moment.
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

    /// Mints, turns the day, and forgets what low priority earned if it has not come back.
    fn advance(&mut self, priority: Priority, at: Moment) {
        let now = at.now;
        self.state.all.refill(self.config.flow(), now);
        self.state.low.refill(self.config.low_flow(), now);
        self.state.day.turn(self.config.zone.day(at.wall));
        self.steady.turn(self.config.zone.day(at.steady));
        if priority == Priority::Low && self.state.low_ask.tokens_at(now) == 0 {
            self.state.low_credit = 0;
        }
    }

    /// What the caller could use if only the rate stood against it.
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

    /// Calls that the current day has left for a priority, by whichever clock has fewer.
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

    /// The first moment from `from` on, in the store's time, at which the day lets a priority through.
    fn open_day(&self, priority: Priority, at: Moment, from: Timestamp) -> Timestamp {
        let both = |from: Timestamp| {
            let [wall, steady] = self
                .calendars(at)
                .map(|calendar| self.open_by(calendar, priority, from));
            wall.max(steady)
        };
        // What opens by one clock may be the end of a day by the other.
        both(both(from))
    }

    /// The same by one clock.
    ///
    /// The last moments of a day, as long as a token is valid, belong to nobody: a call of theirs could arrive in
    /// either day.
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

    /// Tokens kept aside from the other priority.
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
            // Something else than the rate stands against it: nothing is kept aside for it.
            self.remember(priority, 0, at.now);
        }
        let (until, by) = self.next(priority, at);
        if wanted > 0 {
            self.remember(priority, wanted, until);
        }
        TakeOutcome::Limited { until, by }
    }

    /// Keeps aside what a priority did not get, until it should have come back.
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

    /// When one token can be had, and what stands against it longest.
    fn next(&self, priority: Priority, at: Moment) -> (Timestamp, LimitedBy) {
        let now = at.now;
        let (mut until, mut by) = (self.next_by_rate(priority, now), LimitedBy::Rate);
        if priority == Priority::Low {
            let cap = self.ready(self.state.low, self.config.low_flow(), 1);
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
        let one = self.ready(self.state.all, self.config.flow(), 1);
        let (kept, ask) = match priority {
            Priority::High => (self.kept_for(Priority::Low, now), self.state.low_ask),
            Priority::Low if self.owed_to_low() > 0 => return one,
            Priority::Low => (self.kept_for(Priority::High, now), self.state.high_ask),
        };
        if kept == 0 {
            return one;
        }
        // Either enough for both comes, or the other one does not come back.
        let both = self.ready(self.state.all, self.config.flow(), kept + 1);
        both.min(one.max(ask.until))
    }

    fn ready(&self, bucket: Bucket, flow: Flow, tokens: u64) -> Timestamp {
        bucket.ready_at(flow, tokens).unwrap_or(Timestamp(u64::MAX))
    }
}
