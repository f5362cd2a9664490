//! A model of the naive fair queue: the group with the smallest score goes next, ties go by name.
//!
//! `score = −now + alpha × done / remaining`, computed anew whenever a job is enqueued or taken, with the
//! time of that moment. A job counts as done when its worker acknowledges it, not when it is taken. That
//! moment matters for the literal sign: once it turns to a customer with 100 jobs it takes them in one go,
//! unless acknowledgements that need no time raise the third term in between; the last of these jobs would
//! then wait for 98 s instead of 90 s.

use std::collections::VecDeque;

use tidegate_core::time::{Millis, Timestamp};

use super::Customer;

const ALPHA: f64 = 10_000.0;
const START: Timestamp = Timestamp(0);

/// How time enters the score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sign {
    /// `−now`: the newest goes first.
    Literal,
    /// `+now`: the oldest goes first.
    Corrected,
}

#[derive(Debug)]
struct Group {
    score: f64,
    total: u64,
    taken: u64,
    done: u64,
    finished: Millis,
}

impl Group {
    fn rescore(&mut self, sign: Sign, now: Timestamp) {
        let time = match sign {
            Sign::Literal => -(now.0 as f64),
            Sign::Corrected => now.0 as f64,
        };
        let remaining = (self.total - self.done).max(1);
        self.score = time + ALPHA * (-1.0 + self.total as f64 / remaining as f64);
    }
}

/// How fast jobs are taken, and how long after that each is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Workers {
    pub(super) pace: Millis,
    pub(super) run: Millis,
}

/// When the last job of each customer was taken.
pub(super) fn simulate(customers: &[Customer], workers: Workers, sign: Sign) -> Vec<Millis> {
    let mut groups: Vec<Group> = customers
        .iter()
        .map(|customer| Group {
            score: 0.0,
            total: customer.jobs,
            taken: 0,
            done: 0,
            finished: Millis(0),
        })
        .collect();
    for group in &mut groups {
        group.rescore(sign, START);
    }
    let mut now = START;
    let mut running: VecDeque<(Timestamp, usize)> = VecDeque::new();
    // `min_by` gives the first of equals: customers are listed by name.
    while let Some(next) = (0..groups.len())
        .filter(|&group| groups[group].taken < groups[group].total)
        .min_by(|&a, &b| groups[a].score.total_cmp(&groups[b].score))
    {
        let group = &mut groups[next];
        group.taken += 1;
        group.rescore(sign, now);
        running.push_back((now + workers.run, next));
        now = now + workers.pace;
        group.finished = now.since(START);
        while let Some(&(_, done)) = running.front().filter(|(at, _)| *at <= now) {
            groups[done].done += 1;
            running.pop_front();
        }
    }
    groups.into_iter().map(|group| group.finished).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMMEDIATE: Workers = Workers {
        pace: Millis(1),
        run: Millis(0),
    };

    #[test]
    fn the_literal_sign_goes_on_with_whom_it_has_served() {
        let customers = [Customer::new("A", 3), Customer::new("B", 3)];
        let slow = Workers {
            run: Millis(10),
            ..IMMEDIATE
        };
        assert_eq!(simulate(&customers, slow, Sign::Literal), [Millis(3), Millis(6)]);
    }

    #[test]
    fn immediate_acknowledgement_does_not_save_the_small_customer() {
        let customers = [Customer::new("A", 100_000), Customer::new("B", 100)];
        for sign in [Sign::Literal, Sign::Corrected] {
            let finished = simulate(&customers, IMMEDIATE, sign);
            assert!(finished[1] > Millis::from_secs(90), "{sign:?} {finished:?}");
        }
    }
}
