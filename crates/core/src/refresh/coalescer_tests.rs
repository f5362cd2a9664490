//! The transitions of one record, one by one and in any order.

use proptest::prelude::*;

use super::*;

const START: Timestamp = Timestamp(1_790_000_000_000);

/// One record with its clock, as a store would hold it.
#[derive(Debug, Clone)]
struct Record {
    config: CoalescerConfig,
    state: Option<RecordState>,
    now: Timestamp,
}

fn owner(name: &str) -> Owner {
    Owner::new(name).unwrap()
}

impl Record {
    fn new() -> Self {
        Self {
            config: CoalescerConfig::default(),
            state: None,
            now: START,
        }
    }

    fn after(mut self, ms: u64) -> Self {
        self.wait(ms);
        self
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Millis(ms);
    }

    /// Every outcome leaves a state, or none if there was none.
    fn put<T>(&mut self, (state, outcome): (Option<RecordState>, T)) -> T {
        self.state = state;
        outcome
    }

    fn request_read_at(&mut self, priority: Priority, read_at: Timestamp) -> RequestOutcome {
        let params = RequestParams {
            priority,
            snapshot_version: None,
            read_at,
        };
        let next = request(self.state.take(), &self.config, params, self.now);
        self.put(next)
    }

    fn request(&mut self, priority: Priority) -> RequestOutcome {
        self.request_read_at(priority, self.now)
    }

    /// Requests, and the log confirms.
    fn publish(&mut self, priority: Priority) -> Version {
        let version = self.request(priority).to_send().expect("something to send");
        assert!(self.confirm(version));
        version
    }

    fn confirm(&mut self, version: Version) -> bool {
        let next = confirm_sent(self.state.take(), &self.config, version, self.now);
        self.put(next)
    }

    fn send_failed(&mut self, version: Version) -> bool {
        let next = send_failed(self.state.take(), &self.config, version, self.now);
        self.put(next)
    }

    fn abandon(&mut self, version: Version, worker: &str) -> bool {
        let next = abandon(self.state.take(), &self.config, version, &owner(worker), self.now);
        self.put(next)
    }

    fn begin(&mut self, version: Version, priority: Priority, worker: &str) -> BeginOutcome {
        let params = BeginParams {
            version,
            priority,
            owner: owner(worker),
            claim_for: Millis(5_000),
        };
        let next = begin(self.state.take(), &self.config, &params, self.now);
        self.put(next)
    }

    fn settle(&mut self, version: Version, priority: Priority) -> SettleOutcome {
        let params = SettleParams {
            version,
            priority,
            settlement: Settlement::Done,
        };
        let next = settle(self.state.take(), &self.config, params, self.now);
        self.put(next)
    }

    fn forget_if_idle(&mut self) {
        self.state.take_if(|state| state.is_idle(&self.config, self.now));
    }
}

use Priority::{High, Low};

#[test]
fn published_once_then_already_processing() {
    let mut record = Record::new();
    let first = record.request(Low);
    assert_eq!(first.as_str(), "PUBLISHED");
    let version = first.to_send().unwrap();
    assert_eq!(record.request(Low), RequestOutcome::AlreadyProcessing { version });
    let upgrade = record.request(High);
    assert_eq!(upgrade.as_str(), "UPGRADED");
    assert!(upgrade.to_send().unwrap() > version);
    for priority in Priority::ALL {
        assert_eq!(record.request(priority).as_str(), "ALREADY_PROCESSING");
    }
}

#[test]
fn a_confirmed_upgrade_makes_the_queued_low_obsolete() {
    let mut record = Record::new();
    let low = record.publish(Low);
    let high = record.request(High).to_send().unwrap();
    assert!(record.confirm(high));
    assert_eq!(record.begin(low, Low, "a"), BeginOutcome::Obsolete);
    assert_eq!(record.begin(high, High, "a"), BeginOutcome::Go);
}

#[test]
fn an_upgrade_that_was_not_sent_leaves_the_low_valid() {
    let mut record = Record::new();
    let low = record.publish(Low);
    let high = record.request(High).to_send().unwrap();
    let mut before_confirm = record.clone();
    assert_eq!(
        before_confirm.begin(low, Low, "a"),
        BeginOutcome::Go,
        "merely issued"
    );

    assert!(record.send_failed(high));
    assert!(!record.send_failed(high));
    assert!(!record.confirm(high), "it is not waited for any more");
    let again = record.request(High);
    assert_eq!(again.as_str(), "UPGRADED");
    assert!(again.to_send().unwrap() > high);
    assert!(record.send_failed(again.to_send().unwrap()));
    assert_eq!(record.begin(low, Low, "a"), BeginOutcome::Go);
}

#[test]
fn a_sender_that_died_holds_up_nobody_for_longer_than_the_send_timeout() {
    let mut record = Record::new();
    let lost = record.request(High).to_send().unwrap();
    record.wait(9_999);
    assert_eq!(
        record.request(High),
        RequestOutcome::AlreadyProcessing { version: lost }
    );
    record.wait(1);
    let version = record.publish(High);
    assert!(version > lost);
    // It was sent after all: one extra call, and nothing is blocked.
    assert_eq!(record.begin(lost, High, "a"), BeginOutcome::Go);
    assert_eq!(record.settle(lost, High), SettleOutcome::Settled);
    assert_eq!(record.begin(version, High, "a"), BeginOutcome::Go);
}

#[test]
fn an_event_that_a_worker_has_seen_is_in_the_log() {
    let mut record = Record::new();
    let low = record.publish(Low);
    let high = record.request(High).to_send().unwrap();
    assert_eq!(record.begin(high, High, "a"), BeginOutcome::Go);
    assert!(!record.send_failed(high), "the sender is mistaken");
    assert_eq!(record.begin(low, Low, "b"), BeginOutcome::Obsolete);
}

#[test]
fn high_does_not_ask_again_while_a_worker_fetches() {
    let mut record = Record::new();
    let low = record.publish(Low);
    assert_eq!(record.begin(low, Low, "a"), BeginOutcome::Go);
    assert_eq!(
        record.request(High),
        RequestOutcome::AlreadyProcessing { version: low }
    );
    let until = record.now + Millis(5_000);
    assert_eq!(record.begin(low, Low, "b"), BeginOutcome::Busy { until });
    assert_eq!(
        record.begin(low, Low, "a"),
        BeginOutcome::Go,
        "the same call, sent twice"
    );
    record.wait(5_000);
    assert_eq!(record.request(High).as_str(), "UPGRADED", "the worker is gone");
}

#[test]
fn a_claim_can_be_extended_by_its_owner_and_given_back() {
    let mut record = Record::new();
    let version = record.publish(High);
    assert_eq!(record.begin(version, High, "a"), BeginOutcome::Go);
    record.wait(4_000);
    let mut params = BeginParams {
        version,
        priority: High,
        owner: owner("b"),
        claim_for: Millis(5_000),
    };
    let next = extend(record.state.take(), &record.config, &params, record.now);
    assert!(!record.put(next), "not its own");
    params.owner = owner("a");
    let next = extend(record.state.take(), &record.config, &params, record.now);
    assert!(record.put(next));
    record.wait(4_999);
    assert!(matches!(
        record.begin(version, High, "b"),
        BeginOutcome::Busy { .. }
    ));
    assert!(record.abandon(version, "a"));
    assert_eq!(record.begin(version, High, "b"), BeginOutcome::Go);
}

#[test]
fn what_was_completed_is_not_fetched_again() {
    let mut record = Record::new();
    let version = record.publish(High);
    assert_eq!(record.begin(version, High, "a"), BeginOutcome::Go);
    assert_eq!(record.settle(version, High), SettleOutcome::Settled);
    assert_eq!(record.settle(version, High), SettleOutcome::AlreadySettled);
    record.wait(44 * 60_000);
    record.forget_if_idle();
    assert_eq!(record.begin(version, High, "b"), BeginOutcome::Obsolete);
}

#[test]
fn a_forgotten_record_is_fetched() {
    let mut record = Record::new();
    assert_eq!(record.begin(Version(5), Low, "a"), BeginOutcome::Go);
    assert_eq!(record.settle(Version(5), Low), SettleOutcome::Settled);
}

#[test]
fn late_readers_are_absorbed_for_thirty_and_sixty_seconds() {
    for (priority, mark) in [(High, 30_000), (Low, 60_000)] {
        let mut record = Record::new();
        let looked = record.now;
        let version = record.publish(priority);
        record.wait(100);
        record.begin(version, priority, "a");
        record.settle(version, priority);
        let done = record.now;
        for late in [0, mark - 1] {
            let outcome = record.clone().after(late).request_read_at(High, looked);
            let settlement = Settlement::Done;
            assert_eq!(outcome, RequestOutcome::JustRefreshed { at: done, settlement });
            assert!(!outcome.is_queued());
        }
        assert_eq!(
            record.clone().after(mark).request_read_at(High, looked).as_str(),
            "PUBLISHED"
        );
        assert_eq!(
            record.clone().after(1).request(High).as_str(),
            "PUBLISHED",
            "it saw the answer"
        );
    }
}

#[test]
fn a_reader_that_saw_an_older_snapshot_is_absorbed_whatever_its_clock_says() {
    let mut record = Record::new();
    let version = record.publish(High);
    record.settle(version, High);
    let params = RequestParams {
        priority: High,
        snapshot_version: Some(Version(version.0 - 1)),
        read_at: record.now + Millis(3_600_000),
    };
    let (_, outcome) = request(record.state.clone(), &record.config, params, record.now);
    assert_eq!(outcome.as_str(), "JUST_REFRESHED");
    let params = RequestParams {
        snapshot_version: Some(version),
        ..params
    };
    let (_, outcome) = request(record.state.clone(), &record.config, params, record.now);
    assert_eq!(outcome.as_str(), "PUBLISHED");
}

#[test]
fn a_low_that_ends_first_does_not_end_the_high_that_waits() {
    let mut record = Record::new();
    let low = record.publish(Low);
    let high = record.request(High).to_send().unwrap();
    assert_eq!(record.begin(low, Low, "a"), BeginOutcome::Go);
    assert!(record.confirm(high));
    assert_eq!(record.settle(low, Low), SettleOutcome::Settled);
    assert_eq!(
        record.request(High),
        RequestOutcome::AlreadyProcessing { version: high }
    );
    assert_eq!(record.begin(high, High, "b"), BeginOutcome::Go);
}

/// A transition that ends an event compares before it deletes: a late worker frees nothing of a later version.
#[test]
fn a_stale_version_ends_nothing_that_came_after_it() {
    let mut record = Record::new();
    let old = record.publish(High);
    record.wait(record.config.high_pending_ms.0);
    let new = record.publish(High);
    assert_eq!(record.begin(new, High, "a"), BeginOutcome::Go);
    assert!(!record.abandon(old, "a"));
    assert_eq!(record.settle(old, High), SettleOutcome::Settled);
    let state = record.state.clone().unwrap();
    assert_eq!(state.high.map(|high| high.version), Some(new));
    assert_eq!(state.claim.map(|claim| claim.version), Some(new));
    assert_eq!(
        record.request(High),
        RequestOutcome::AlreadyProcessing { version: new }
    );
    let settled = (0..10).filter(|_| record.settle(new, High) == SettleOutcome::Settled);
    assert_eq!(settled.count(), 1);
    let state = record.state.clone().unwrap();
    assert_eq!((state.high, state.claim), (None, None));
}

#[test]
fn an_event_is_waited_for_as_long_as_the_log_keeps_it() {
    let mut record = Record::new();
    let low = record.publish(Low);
    record.wait(72 * 3_600_000 - 1);
    record.forget_if_idle();
    assert_eq!(
        record.request(Low),
        RequestOutcome::AlreadyProcessing { version: low }
    );
    record.wait(1);
    assert!(record.state.as_ref().unwrap().is_idle(&record.config, record.now));
    record.forget_if_idle();
    assert_eq!(record.request(Low).as_str(), "PUBLISHED");
}

#[test]
fn versions_grow_through_forgetting() {
    let mut record = Record::new();
    let mut last = Version(0);
    for step in 0..2_000 {
        let version = record.request(High).to_send().unwrap();
        assert!(version > last, "step {step}");
        last = version;
        assert!(record.send_failed(version));
        record.forget_if_idle();
        record.wait(step % 3 / 2);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Request(Priority, u64),
    Confirm,
    SendFailed,
    Begin(usize, u8),
    Settle(usize),
    Abandon(usize, u8),
    Forget,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let priority = prop_oneof![Just(High), Just(Low)];
    let step = prop_oneof![
        4 => (priority, 0u64..50_000).prop_map(|(priority, ago)| Step::Request(priority, ago)),
        3 => Just(Step::Confirm),
        1 => Just(Step::SendFailed),
        4 => (any::<usize>(), 0u8..3).prop_map(|(event, worker)| Step::Begin(event, worker)),
        3 => any::<usize>().prop_map(Step::Settle),
        1 => (any::<usize>(), 0u8..3).prop_map(|(event, worker)| Step::Abandon(event, worker)),
        1 => Just(Step::Forget),
        3 => prop_oneof![0u64..3, 0u64..7_000, 0u64..90_000_000].prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    /// Whatever happens in whatever order: versions grow; an event in the log is obsolete only when it is
    /// settled or a LOW that a HIGH in the log certainly follows; and every pending version was issued.
    #[test]
    fn any_history_keeps_the_promises(steps in steps()) {
        let mut record = Record::new();
        let mut last = Version(0);
        // Events in the log, and whether each was sent.
        let mut log: Vec<(Version, Priority)> = Vec::new();
        let mut unsent: Option<(Version, Priority)> = None;
        let mut settled = Version(0);
        for step in steps {
            match step {
                Step::Request(priority, ago) => {
                    let outcome = record.request_read_at(priority, record.now - Millis(ago));
                    if let Some(version) = outcome.to_send() {
                        prop_assert!(version > last && version <= Version::MAX);
                        last = version;
                        unsent = Some((version, priority));
                    }
                }
                Step::Confirm => if let Some((version, priority)) = unsent.take() {
                    log.push((version, priority));
                    record.confirm(version);
                },
                Step::SendFailed => if let Some((version, _)) = unsent.take() {
                    record.send_failed(version);
                },
                Step::Begin(event, worker) if !log.is_empty() => {
                    let (version, priority) = log[event % log.len()];
                    let outcome = record.begin(version, priority, &format!("w{worker}"));
                    if outcome == BeginOutcome::Obsolete {
                        let followed = log.iter().any(|(later, priority)| *later > version && *priority == High);
                        let replaced = priority == Low && followed;
                        prop_assert!(version <= settled || replaced, "{version} was dropped");
                    }
                }
                Step::Settle(event) if !log.is_empty() => {
                    let (version, priority) = log[event % log.len()];
                    settled = settled.max(version);
                    record.settle(version, priority);
                    let again = record.begin(version, priority, "w9");
                    prop_assert_eq!(again, BeginOutcome::Obsolete);
                }
                Step::Abandon(event, worker) if !log.is_empty() => {
                    let (version, worker) = (log[event % log.len()].0, format!("w{worker}"));
                    record.abandon(version, &worker);
                    prop_assert!(!record.abandon(version, &worker), "once");
                }
                Step::Forget => record.forget_if_idle(),
                Step::Wait(ms) => record.wait(ms),
                Step::Begin(..) | Step::Settle(_) | Step::Abandon(..) => {}
            }
        }
    }
}

#[test]
fn what_failed_is_made_good_by_another_try_or_a_refresh_alone() {
    let failed = Version(7);
    let on_its_way = |version| RequestOutcome::AlreadyProcessing {
        version: Version(version),
    };
    let settled = |settlement| RequestOutcome::JustRefreshed {
        at: Timestamp(1),
        settlement,
    };
    let made_good = |outcome: RequestOutcome| outcome.makes_good(failed);
    assert!(made_good(RequestOutcome::Published { version: Version(8) }));
    assert!(made_good(RequestOutcome::Upgraded { version: Version(8) }));
    assert!(made_good(on_its_way(8)) && !made_good(on_its_way(7)));
    assert!(made_good(settled(Settlement::Done)));
    assert!(!made_good(settled(Settlement::Failed)) && !made_good(settled(Settlement::Parked)));
}
