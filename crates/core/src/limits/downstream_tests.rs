//! The rule against modelled downstreams. `tidegate simulate downstream` runs the whole state machine against more of them.

use std::collections::VecDeque;

use super::*;

const START: u64 = 1_000_000;

/// Accepts so many calls in an aligned second, or in any second.
struct Model {
    capacity: usize,
    sliding: bool,
    accepted: VecDeque<u64>,
}

impl Model {
    fn call(&mut self, now: u64) -> bool {
        let from = if self.sliding {
            now - 999
        } else {
            now / 1_000 * 1_000
        };
        while self.accepted.front().is_some_and(|&at| at < from) {
            self.accepted.pop_front();
        }
        let accepted = self.accepted.len() < self.capacity;
        if accepted {
            self.accepted.push_back(now);
        }
        accepted
    }
}

/// Calls and successes of each second. There are always calls to make, each is answered after `answer` ms.
fn run(
    configured: f64,
    capacity: impl Fn(u64) -> usize,
    sliding: bool,
    answer: u64,
    seconds: u64,
) -> Vec<(u64, u64)> {
    let mut downstream = Downstream::default();
    let mut model = Model {
        capacity: 0,
        sliding,
        accepted: VecDeque::new(),
    };
    let mut answers: VecDeque<(u64, u64, bool)> = VecDeque::new();
    let mut counts = vec![(0, 0); seconds as usize];
    for elapsed in 0..seconds * 1_000 {
        let (now, count) = (START + elapsed, &mut counts[(elapsed / 1_000) as usize]);
        model.capacity = capacity(elapsed / 1_000);
        loop {
            while let Some(&(at, started, accepted)) = answers.front()
                && at <= now
            {
                answers.pop_front();
                match accepted {
                    true => downstream.answered(Timestamp(started), Timestamp(at)),
                    false => {
                        downstream.overloaded(Timestamp(started), None, configured, Timestamp(at));
                    }
                }
            }
            downstream.advance(configured, Timestamp(now));
            if downstream
                .room(Timestamp(now))
                .min((configured as u64).saturating_sub(count.0))
                == 0
            {
                break;
            }
            downstream.start(1, Timestamp(now));
            let accepted = model.call(now);
            answers.push_back((now + answer, now, accepted));
            *count = (count.0 + 1, count.1 + u64::from(accepted));
        }
    }
    counts
}

/// Calls per success, and the share of the capacity that was not used.
fn waste(counts: &[(u64, u64)], capacity: usize) -> (f64, f64) {
    let (calls, successes) = counts
        .iter()
        .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let due = (capacity * counts.len()) as f64;
    (calls as f64 / successes as f64, 1.0 - successes as f64 / due)
}

#[test]
fn the_capacity_is_found_and_used() {
    for (configured, capacity) in [
        (100.0, 50),
        (1_000.0, 100),
        (1_000.0, 1_000),
        (10_000.0, 10),
        (10_000.0, 100),
    ] {
        for sliding in [false, true] {
            for answer in [0, 100, 1_000, 5_000] {
                let counts = run(configured, |_| capacity, sliding, answer, 150);
                let (calls, unused) = waste(&counts[30..], capacity);
                let case =
                    format!("{capacity} of {configured}, sliding {sliding}, {answer} ms: {calls} {unused}");
                assert!(calls <= 1.15, "{case}");
                assert!(unused <= 0.075, "{case}");
            }
        }
    }
}

#[test]
fn a_step_down_is_followed_within_two_seconds_and_a_step_up_within_twenty() {
    for (high, low) in [(100, 30), (1_000, 100), (50, 25)] {
        for answer in [0, 100] {
            let down = run(
                10_000.0,
                |second| if second < 60 { high } else { low },
                false,
                answer,
                120,
            );
            let calm = |&(calls, successes): &(u64, u64)| (calls - successes) * 100 <= calls * 15;
            let overloaded = down[60..].iter().position(calm).unwrap();
            assert!(overloaded <= 2, "{high} to {low}: {:?}", &down[58..66]);
            let up = run(
                10_000.0,
                |second| if second < 60 { low } else { high },
                false,
                answer,
                120,
            );
            let used = |&(_, successes): &(u64, u64)| successes * 10 >= high as u64 * 9;
            let recovered = up[60..].iter().position(used).unwrap();
            assert!(recovered <= 20, "{low} to {high}: {:?}", &up[60..82]);
        }
    }
}

#[test]
fn a_downstream_that_delivers_nothing_is_probed_ever_less_often() {
    let counts = run(1_000.0, |_| 0, false, 10, 180);
    let late: u64 = counts[60..].iter().map(|(calls, _)| calls).sum();
    assert!(late <= 5, "{counts:?}");
    // And when it is back, it is used again.
    let back = run(
        1_000.0,
        |second| if second < 60 { 0 } else { 200 },
        false,
        10,
        180,
    );
    assert!(
        back[150..].iter().all(|(_, successes)| *successes >= 150),
        "{:?}",
        &back[140..]
    );
}

#[test]
fn one_rejection_of_a_quiet_queue_does_not_lower_it_to_a_crawl() {
    let mut downstream = Downstream::default();
    for minute in 0..10 {
        let at = Timestamp(START + minute * 60_000);
        downstream.answered(at, at + Millis(50));
    }
    let at = Timestamp(START + 600_000);
    downstream.overloaded(at, None, 1_000.0, at + Millis(50));
    assert!(downstream.rate() >= Some(0.9), "{downstream:?}");
}

#[test]
fn a_long_job_or_a_clock_that_was_set_does_not_stop_growth() {
    let mut downstream = Downstream::default();
    let started = Timestamp(START);
    let now = Timestamp(START + 86_400_000);
    downstream.answered(started, now);
    downstream.overloaded(started, None, 100.0, now);
    let cut = downstream.rate().unwrap();
    for second in 0..300 {
        let now = now + Millis::from_secs(second);
        downstream.advance(100.0, now);
        let room = downstream.room(now);
        downstream.start(room, now);
        downstream.room(now);
    }
    assert!(
        downstream.rate().is_none_or(|rate| rate > 1.5 * cut),
        "{downstream:?}"
    );
}
