//! What this process knows of each shard, and how it shares starts out among them.

use std::sync::{Mutex, PoisonError};

use super::decode::Facts;

/// Limit: calls after which a shard that had no work is asked again without a bell.
const ASK_IDLE_EVERY: u64 = 16;

#[derive(Debug)]
pub(super) struct Known {
    shards: Mutex<State>,
}

#[derive(Debug)]
struct State {
    facts: Vec<Facts>,
    /// Starts that a shard is owed; below zero when it got more than its share.
    owed: Vec<f64>,
    calls: u64,
}

impl Known {
    pub(super) fn new(shards: u32) -> Self {
        Self {
            shards: Mutex::new(State {
                facts: vec![Facts::default(); shards as usize],
                owed: vec![0.0; shards as usize],
                calls: 0,
            }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn learn(&self, shard: u32, facts: Facts) {
        self.state().facts[shard as usize] = facts;
    }

    /// Another process rang: there may be work.
    pub(super) fn rang(&self, shard: u32) {
        let facts = &mut self.state().facts[shard as usize];
        facts.weight = facts.weight.max(1_000);
    }

    /// Active groups and unfinished jobs of all shards but one.
    pub(super) fn others(&self, shard: u32) -> (u64, u64) {
        let state = self.state();
        let others = state.facts.iter().enumerate();
        others
            .filter(|(other, _)| *other != shard as usize)
            .fold((0, 0), |(active, unfinished), (_, facts)| {
                (active + facts.active, unfinished + facts.unfinished)
            })
    }

    /// Whether it is time to ask shards that had no work, too.
    pub(super) fn ask_idle(&self) -> bool {
        let mut state = self.state();
        state.calls += 1;
        state.calls % ASK_IDLE_EVERY == 1
    }

    /// `most` shared out by weight, rounded up and with nothing owed.
    pub(super) fn shares(&self, shards: &[u32], most: u64, idle_too: bool) -> Vec<u64> {
        let state = self.state();
        let weight = |&shard: &u32| match state.facts[shard as usize].weight {
            0 if idle_too => 1_000,
            weight => weight,
        };
        let total: u64 = shards.iter().map(weight).sum();
        let share = |shard: &u32| (most * weight(shard)).div_ceil(total.max(1));
        shards.iter().map(share).collect()
    }

    /// `starts` shared out among some shards by the weight of their active groups. What does not divide evenly
    /// is owed, so that over many calls each shard gets its share to within one start.
    pub(super) fn parts(&self, shards: &[u32], starts: u64, idle_too: bool) -> Vec<u64> {
        let mut state = self.state();
        let weight = |facts: &Facts| match facts.weight {
            0 if idle_too => 1_000,
            weight => weight,
        };
        let weights: Vec<u64> = shards
            .iter()
            .map(|&shard| weight(&state.facts[shard as usize]))
            .collect();
        let total: u64 = weights.iter().sum();
        if total == 0 {
            return vec![0; shards.len()];
        }
        let mut parts = vec![0; shards.len()];
        let mut left = starts;
        for (i, &shard) in shards.iter().enumerate() {
            let owed = &mut state.owed[shard as usize];
            if weights[i] == 0 {
                *owed = 0.0;
                continue;
            }
            *owed += starts as f64 * weights[i] as f64 / total as f64;
            parts[i] = (owed.floor().max(0.0) as u64).min(left);
            left -= parts[i];
            *owed -= parts[i] as f64;
        }
        while left > 0 {
            let owed = |&i: &usize| state.owed[shards[i] as usize];
            let most = (0..shards.len())
                .filter(|&i| weights[i] > 0)
                .max_by(|a, b| owed(a).total_cmp(&owed(b)).then(b.cmp(a)));
            let Some(most) = most else { break };
            parts[most] += 1;
            state.owed[shards[most] as usize] -= 1.0;
            left -= 1;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(weights: &[u64]) -> Known {
        let known = Known::new(weights.len() as u32);
        for (shard, &weight) in (0..).zip(weights) {
            let facts = Facts {
                weight,
                ..Facts::default()
            };
            known.learn(shard, facts);
        }
        known
    }

    #[test]
    fn single_starts_go_by_weight() {
        let known = known(&[1_000, 3_000]);
        let mut got = [0; 2];
        for _ in 0..400 {
            let parts = known.parts(&[0, 1], 1, false);
            assert_eq!(parts.iter().sum::<u64>(), 1);
            got[0] += parts[0];
            got[1] += parts[1];
        }
        assert_eq!(got, [100, 300]);
    }

    #[test]
    fn a_shard_without_work_gets_nothing_until_it_is_asked_or_rings() {
        let known = known(&[1_000, 0]);
        assert_eq!(known.parts(&[0, 1], 10, false), [10, 0]);
        assert_eq!(known.parts(&[0, 1], 10, true), [5, 5]);
        known.rang(1);
        assert_eq!(known.parts(&[0, 1], 10, false), [5, 5]);
    }
}
