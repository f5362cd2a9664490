//! Whole histories of many records: readers, prefetch, workers that die at any step, lost sends, events
//! delivered twice, clocks that jump. Everything follows from a seed, so a failing history can be replayed.

use std::collections::VecDeque;

use tidegate_testkit::{seeds, simulation};

use super::Version;
use super::coalescer::{
    self, BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleParams, Settlement,
};
use super::config::CoalescerConfig;
use crate::budget::{Budget, BudgetConfig, BudgetRecord, DayZone, TakeOutcome};
use crate::ids::Owner;
use crate::priority::Priority;
use crate::rng::Rng;
use crate::time::{Millis, StoreClock, Timestamp};

const START: Timestamp = Timestamp(1_790_000_000_000);
const CLAIM: Millis = Millis(2_000);

#[derive(Debug, Clone, Copy)]
struct Event {
    record: usize,
    version: Version,
    priority: Priority,
}

#[derive(Debug, Default)]
struct Record {
    state: Option<RecordState>,
    /// The version of the stored snapshot; an older version never overwrites it.
    snapshot: Option<Version>,
    issued: Version,
    /// The latest version that the log certainly got.
    accepted: Version,
    calls: u64,
}

/// What a worker is doing.
#[derive(Debug, Clone, Copy)]
enum Work {
    Idle,
    Started(Event),
    Fetching(Event, Timestamp),
    Written(Event),
}

struct World {
    rng: Rng,
    config: CoalescerConfig,
    records: Vec<Record>,
    log: VecDeque<Event>,
    workers: Vec<Work>,
    budget: Budget,
    kept: BudgetRecord,
    /// Real time, and how far the store's wall clock is from it.
    real: Timestamp,
    step: i64,
    clock: StoreClock,
    /// Real times at which calls arrived upstream, and at which the store's clock jumped ahead.
    arrivals: Vec<Timestamp>,
    jumps: Vec<Timestamp>,
    /// Workers stall: events pile up.
    lagging: bool,
    /// No more faults: workers drain everything that is left.
    calm: bool,
}

impl World {
    fn new(seed: u64, records: usize, budget: BudgetConfig) -> Self {
        Self {
            rng: Rng::new(seed),
            config: CoalescerConfig::default(),
            records: (0..records).map(|_| Record::default()).collect(),
            log: VecDeque::new(),
            workers: vec![Work::Idle; 8],
            budget: Budget::new(budget, START),
            kept: BudgetRecord::default(),
            real: START,
            step: 0,
            clock: StoreClock::default(),
            arrivals: Vec::new(),
            jumps: Vec::new(),
            lagging: false,
            calm: false,
        }
    }

    fn now(&mut self) -> Timestamp {
        let wall = Timestamp(self.real.0.saturating_add_signed(self.step));
        self.clock.observe(wall)
    }

    /// Injects a fault with this chance, unless it is calm.
    fn inject_fault(&mut self, chances: u64) -> bool {
        !self.calm && self.rng.one_in(chances)
    }

    fn request(&mut self, index: usize, priority: Priority) {
        let now = self.now();
        // The reader's clock is off by up to five seconds, and it read up to a second ago.
        let read_at = Timestamp(now.0 + self.rng.below(10_000) - 5_000 - self.rng.below(1_000));
        let record = &mut self.records[index];
        let params = RequestParams {
            priority,
            snapshot_version: record.snapshot,
            read_at,
        };
        let (state, outcome) = coalescer::request(record.state.take(), &self.config, params, now);
        record.state = state;
        if let Some(version) = outcome.to_send() {
            assert!(version > record.issued, "{version} after {}", record.issued);
            assert!(record.snapshot.is_none_or(|stored| version > stored));
            record.issued = version;
            self.send(Event {
                record: index,
                version,
                priority,
            });
        }
    }

    fn send(&mut self, event: Event) {
        let now = self.now();
        // The process dies before sending, the log rejects the event, or all is well; then it may die before
        // confirming.
        if self.inject_fault(20) {
            return;
        }
        let state = self.records[event.record].state.take();
        if self.inject_fault(20) {
            let (state, _) = coalescer::send_failed(state, &self.config, event.version, now);
            self.records[event.record].state = state;
            return;
        }
        self.log.push_back(event);
        let accepted = &mut self.records[event.record].accepted;
        *accepted = event.version.max(*accepted);
        let state = match self.inject_fault(10) {
            true => state,
            false => coalescer::confirm_sent(state, &self.config, event.version, now).0,
        };
        self.records[event.record].state = state;
    }

    fn work(&mut self, worker: usize) {
        let now = self.now();
        let work = self.workers[worker];
        let event = match work {
            Work::Idle => {
                if let Some(event) = self.log.pop_front() {
                    self.begin(worker, event, now);
                }
                return;
            }
            Work::Started(event) | Work::Fetching(event, _) | Work::Written(event) => event,
        };
        if self.inject_fault(40) {
            // The worker died: nothing was committed, so the event is delivered again.
            self.log.push_back(event);
            self.workers[worker] = Work::Idle;
            return;
        }
        self.workers[worker] = match work {
            Work::Started(_) => self.call(event, now),
            Work::Fetching(_, until) if self.real < until => work,
            Work::Fetching(..) => self.write(event),
            Work::Written(_) => self.settle(event, now),
            Work::Idle => Work::Idle,
        };
    }

    fn begin(&mut self, worker: usize, event: Event, now: Timestamp) {
        let params = BeginParams {
            version: event.version,
            priority: event.priority,
            owner: Owner::new(format!("w{worker}")).unwrap(),
            claim_for: CLAIM,
        };
        let record = &mut self.records[event.record];
        let (state, outcome) = coalescer::begin(record.state.take(), &self.config, &params, now);
        record.state = state;
        match outcome {
            BeginOutcome::Go => self.workers[worker] = Work::Started(event),
            BeginOutcome::Busy { .. } => self.log.push_back(event),
            // Committed. Occasionally the commit is lost and the event comes again.
            BeginOutcome::Obsolete if self.inject_fault(20) => self.log.push_back(event),
            BeginOutcome::Obsolete => {}
        }
    }

    fn call(&mut self, event: Event, now: Timestamp) -> Work {
        let outcome = self.budget.take(event.priority, 1, now);
        self.kept = self.budget.take_record().unwrap_or(self.kept);
        let TakeOutcome::Granted { use_by, .. } = outcome else {
            return Work::Started(event);
        };
        let delay = Millis(self.rng.below(use_by.since(now).0 + 1));
        self.arrivals.push(self.real + delay);
        self.records[event.record].calls += 1;
        // Sometimes longer than the claim.
        let takes = if self.inject_fault(30) {
            5_000
        } else {
            self.rng.below(400)
        };
        Work::Fetching(event, self.real + Millis(takes))
    }

    fn write(&mut self, event: Event) -> Work {
        let stored = &mut self.records[event.record].snapshot;
        if stored.is_none_or(|stored| stored <= event.version) {
            *stored = Some(event.version);
        }
        Work::Written(event)
    }

    fn settle(&mut self, event: Event, now: Timestamp) -> Work {
        let params = SettleParams {
            version: event.version,
            priority: event.priority,
            settlement: Settlement::Done,
        };
        let record = &mut self.records[event.record];
        let (state, _) = coalescer::settle(record.state.take(), &self.config, params, now);
        record.state = state;
        if self.inject_fault(30) {
            self.log.push_back(event);
        }
        Work::Idle
    }

    /// Faults outside of the workers.
    fn disturb(&mut self) {
        if self.inject_fault(4_000) {
            self.lagging = !self.lagging;
        }
        if self.inject_fault(3_000) {
            let back = self.rng.one_in(2);
            let by = self.rng.below(40_000) as i64;
            self.step += if back { -by } else { by };
            if !back {
                self.jumps.push(self.real);
            }
        }
        if self.inject_fault(4_000) {
            let now = self.now();
            self.budget = Budget::restored(self.budget.config().clone(), self.kept, now);
        }
        if self.inject_fault(50) {
            let now = self.now();
            let index = self.rng.below(self.records.len() as u64) as usize;
            let lost = self.rng.one_in(10);
            let config = &self.config;
            self.records[index]
                .state
                .take_if(|state| lost && state.issued < Version::floor(now) || state.is_idle(config, now));
        }
    }

    fn tick(&mut self, requests: u64) {
        self.real = self.real + Millis(1 + self.rng.below(4));
        self.disturb();
        for _ in 0..requests {
            let index = self.rng.below(self.records.len() as u64) as usize;
            let priority = if self.rng.one_in(3) {
                Priority::High
            } else {
                Priority::Low
            };
            self.request(index, priority);
        }
        if !self.lagging {
            for worker in 0..self.workers.len() {
                self.work(worker);
            }
        }
    }

    fn is_worked_off(&self) -> bool {
        self.log.is_empty() && self.workers.iter().all(|work| matches!(work, Work::Idle))
    }

    /// No second exceeds the limit; a jump of the store's clock may add one burst to the seconds around it.
    fn check_calls(&mut self) {
        self.arrivals.sort();
        let config = self.budget.config();
        let mut first = 0;
        for (index, arrival) in self.arrivals.iter().enumerate() {
            while self.arrivals[first] + Millis(1_000) <= *arrival {
                first += 1;
            }
            let window = self.arrivals[first] - config.validity_ms..=*arrival;
            let jumps = self.jumps.iter().filter(|jump| window.contains(jump)).count() as u64;
            let most = config.hard_limit + jumps * config.burst;
            assert!(
                (index + 1 - first) as u64 <= most,
                "{} calls in a second",
                index + 1 - first
            );
        }
        if self.jumps.is_empty() {
            assert!(self.arrivals.len() as u64 <= config.per_day);
        }
    }
}

fn small_budget() -> BudgetConfig {
    BudgetConfig {
        hard_limit: 60,
        rate: 50,
        burst: 7,
        low_cap: 40,
        low_burst: 2,
        day_block: 100,
        ..BudgetConfig::default()
    }
}

impl simulation::World for World {
    /// Calls that arrived upstream.
    type Report = usize;

    fn step(&mut self) -> Result<(), String> {
        let requests = self.rng.below(3) / 2;
        self.tick(requests);
        Ok(())
    }

    fn finish(&mut self) -> Result<usize, String> {
        // Workers run, and there are no more faults.
        (self.calm, self.lagging) = (true, false);
        let mut ticks = 0;
        while !self.is_worked_off() {
            self.tick(0);
            ticks += 1;
            if ticks == 1_000_000 {
                return Err(format!("{} events never end", self.log.len()));
            }
        }
        for (index, record) in self.records.iter().enumerate() {
            if record.snapshot.unwrap_or_default() < record.accepted {
                let (accepted, snapshot) = (record.accepted, record.snapshot);
                return Err(format!(
                    "record {index} was promised {accepted} and has {snapshot:?}"
                ));
            }
        }
        self.check_calls();
        Ok(self.arrivals.len())
    }
}

#[test]
fn nothing_is_lost_and_nothing_goes_back_whatever_goes_wrong() {
    let mut calls = 0;
    for seed in seeds::fixed(60) {
        calls += simulation::holds(seed, 20_000, |seed| World::new(seed, 40, small_budget()));
    }
    assert!(
        seeds::again().is_some() || calls > 60_000,
        "{calls} calls are too few to prove anything"
    );
}

#[test]
fn the_day_is_never_over_through_crashes() {
    let zone = DayZone::default();
    for seed in 0..20 {
        let config = BudgetConfig {
            per_day: 700,
            day_reserve: 100,
            day_block: 50,
            ..small_budget()
        };
        let mut budget = Budget::new(config.clone(), START);
        let (mut kept, mut rng, mut calls) = (BudgetRecord::default(), Rng::new(seed), Vec::new());
        let mut now = zone.start(zone.day(START) + 1) - Millis(25_000);
        for _ in 0..20_000 {
            now = now + Millis(rng.below(6));
            if rng.one_in(2_000) {
                budget = Budget::restored(config.clone(), kept, now);
            }
            let priority = Priority::ALL[rng.below(2) as usize];
            if let TakeOutcome::Granted { tokens, use_by } = budget.take(priority, 3, now) {
                let at = now + Millis(rng.below(use_by.since(now).0 + 1));
                calls.extend((0..tokens).map(|_| zone.day(at)));
            }
            kept = budget.take_record().unwrap_or(kept);
        }
        for day in [zone.day(START), zone.day(START) + 1] {
            let used = calls.iter().filter(|called| **called == day).count();
            assert!(
                (400..=700).contains(&used),
                "seed {seed}: {used} calls in day {day}"
            );
        }
    }
}

/// Requests every record every five seconds while the log lags ten times the lock time; returns how often each
/// was refreshed.
fn refreshed_under_lag(config: &CoalescerConfig, priority: Priority, mixed: bool) -> Vec<u64> {
    let lag = Millis(10 * config.mark_for(priority).0);
    let mut records: Vec<Record> = (0..1_000).map(|_| Record::default()).collect();
    let mut log: VecDeque<(Timestamp, Event)> = VecDeque::new();
    let passes = 5;
    let mut now = START;
    while now < START + Millis(passes * (lag.0 + 5_000) + 5_000) {
        while let Some((_, event)) = log.pop_front_if(|(due, _)| *due <= now) {
            let params = BeginParams {
                version: event.version,
                priority: event.priority,
                owner: Owner::new("w").unwrap(),
                claim_for: CLAIM,
            };
            let record = &mut records[event.record];
            let (state, outcome) = coalescer::begin(record.state.take(), config, &params, now);
            record.state = state;
            if outcome == BeginOutcome::Go {
                record.calls += 1;
                let params = SettleParams {
                    version: event.version,
                    priority: event.priority,
                    settlement: Settlement::Done,
                };
                record.state = coalescer::settle(record.state.take(), config, params, now).0;
            }
        }
        for (index, record) in records.iter_mut().enumerate() {
            let both = [Priority::Low, Priority::High];
            for priority in if mixed {
                both.as_slice()
            } else {
                std::slice::from_ref(&priority)
            } {
                let params = RequestParams {
                    priority: *priority,
                    snapshot_version: None,
                    read_at: now + Millis(1),
                };
                let (state, outcome) = coalescer::request(record.state.take(), config, params, now);
                record.state = state;
                if let Some(version) = outcome.to_send() {
                    let event = Event {
                        record: index,
                        version,
                        priority: *priority,
                    };
                    log.push_back((now + lag, event));
                    record.state = coalescer::confirm_sent(record.state.take(), config, version, now).0;
                }
            }
        }
        now = now + Millis(5_000);
    }
    assert!(
        records.iter().all(|record| record.calls >= passes),
        "{:?}",
        records[0]
    );
    records.into_iter().map(|record| record.calls).collect()
}

#[test]
fn records_requested_for_ever_are_refreshed_at_every_pass() {
    for (priority, mixed) in [
        (Priority::High, false),
        (Priority::Low, false),
        (Priority::High, true),
    ] {
        let calls = refreshed_under_lag(&CoalescerConfig::default(), priority, mixed);
        assert!(calls.iter().all(|calls| *calls <= 6), "once per pass, not more");
    }
}

/// If an event stays pending for less time than the log lags, it is requested again, and each HIGH would have
/// superseded the one before.
#[test]
fn events_that_are_not_waited_for_are_not_replaced_by_those_that_follow() {
    let config = CoalescerConfig {
        high_pending_ms: Millis(30_000),
        low_pending_ms: Millis(60_000),
        ..CoalescerConfig::default()
    };
    for (priority, mixed) in [
        (Priority::High, false),
        (Priority::Low, false),
        (Priority::High, true),
    ] {
        refreshed_under_lag(&config, priority, mixed);
    }
}

#[test]
fn ten_thousand_readers_of_one_stale_record_cause_one_call() {
    for seed in 0..20 {
        let (config, mut rng) = (CoalescerConfig::default(), Rng::new(seed));
        let mut record = Record::default();
        let (mut log, mut fetching, mut calls) = (VecDeque::new(), None, 0);
        // All read before the snapshot is written; their requests arrive over 25 seconds, before and after it.
        let written = START + Millis(1_500);
        let mut arrivals: Vec<(u64, u64)> = (0..10_000)
            .map(|_| (rng.below(25_000), rng.below(1_000)))
            .collect();
        arrivals.sort();
        for (arrives, looked) in arrivals {
            let now = START + Millis(arrives);
            if now >= START + Millis(700)
                && let Some(version) = log.pop_front()
            {
                let params = BeginParams {
                    version,
                    priority: Priority::High,
                    owner: Owner::new("w").unwrap(),
                    claim_for: Millis(5_000),
                };
                let (state, outcome) = coalescer::begin(record.state.take(), &config, &params, now);
                record.state = state;
                assert_eq!(outcome, BeginOutcome::Go);
                calls += 1;
                fetching = Some(version);
            }
            if now >= written
                && let Some(version) = fetching.take()
            {
                let params = SettleParams {
                    version,
                    priority: Priority::High,
                    settlement: Settlement::Done,
                };
                record.state = coalescer::settle(record.state.take(), &config, params, now).0;
            }
            let params = RequestParams {
                priority: Priority::High,
                snapshot_version: None,
                read_at: START + Millis(looked.min(arrives)),
            };
            let (state, outcome) = coalescer::request(record.state.take(), &config, params, now);
            record.state = state;
            if let RequestOutcome::Published { version } = outcome {
                log.push_back(version);
                record.state = coalescer::confirm_sent(record.state.take(), &config, version, now).0;
            }
        }
        assert_eq!((calls, log.len()), (1, 0), "seed {seed}");
    }
}
