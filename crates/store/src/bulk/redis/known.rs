//! What this process knows of each shard, and how it distributes starts among them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_core::ids::QueueId;

use super::decode::{Facts, InQueue};

/// Limit: calls after which an idle shard is polled again without a signal.
const ASK_IDLE_EVERY: u64 = 16;

/// How long a shard that did not reply gets no more requests for work.
const DOWN_FOR: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Known {
    shards: Mutex<State>,
}

#[derive(Debug)]
struct State {
    facts: Vec<Facts>,
    /// Starts owed to a shard; negative if it got more than its share.
    owed: Vec<f64>,
    calls: u64,
    /// The latest time reported by any server.
    now: u64,
    /// Per queue and shard; none before the first report of the shard on the queue.
    queues: HashMap<QueueId, Vec<Option<InQueue>>>,
    /// Finished batches and idle groups that each shard keeps.
    kept: Vec<(u64, u64)>,
    /// Shards that did not reply, and when to try them again.
    down_until: Vec<Option<Instant>>,
}

impl State {
    /// Ready jobs of one queue; never more than the shard has in all.
    fn ready_in(&self, queue: &str, shard: usize) -> u64 {
        let known = self.queues.get(queue).and_then(|of_queue| of_queue[shard]);
        known.map_or(0, |known| known.ready).min(self.facts[shard].ready)
    }

    /// The weight of the groups that wait in a queue, including ready jobs.
    fn weight_in(&self, queue: &QueueId, shard: usize) -> u64 {
        let known = self.queues.get(queue).and_then(|of_queue| of_queue[shard]);
        match known {
            Some(known) if known.ready > 0 => known.weight.max(1_000),
            Some(known) => known.weight,
            None => self.facts[shard].weight,
        }
    }
}

impl Known {
    pub(super) fn new(shards: u32) -> Self {
        Self {
            shards: Mutex::new(State {
                facts: vec![Facts::default(); shards as usize],
                owed: vec![0.0; shards as usize],
                calls: 0,
                now: 0,
                queues: HashMap::new(),
                kept: vec![(0, 0); shards as usize],
                down_until: vec![None; shards as usize],
            }),
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn learn(&self, shard: u32, facts: Facts) {
        let mut state = self.state();
        state.now = state.now.max(facts.now);
        state.facts[shard as usize] = facts;
    }

    /// Records the time reported by the shared counter.
    pub(super) fn heard(&self, now: u64) {
        let mut state = self.state();
        state.now = state.now.max(now);
    }

    /// With several servers, they all follow the clock that is ahead.
    pub(super) fn now(&self) -> Option<u64> {
        let state = self.state();
        (state.facts.len() > 1).then_some(state.now)
    }

    pub(super) fn learn_queue(&self, queue: &QueueId, shard: u32, known: InQueue) {
        let mut state = self.state();
        let shards = state.facts.len();
        let of_queue = state
            .queues
            .entry(queue.clone())
            .or_insert_with(|| vec![None; shards]);
        of_queue[shard as usize] = Some(known);
    }

    /// Ready jobs of a queue in all other shards.
    pub(super) fn ready_elsewhere(&self, queue: &QueueId, shard: u32) -> u64 {
        let state = self.state();
        let others = (0..state.facts.len()).filter(|&other| other != shard as usize);
        others.map(|other| state.ready_in(queue.as_str(), other)).sum()
    }

    pub(super) fn ready_in_other_queues(&self, queue: &str) -> u64 {
        let state = self.state();
        let others = |shard: usize| state.facts[shard].ready - state.ready_in(queue, shard);
        (0..state.facts.len()).map(others).sum()
    }

    /// Finished jobs that other shards keep.
    pub(super) fn finished_elsewhere(&self, shard: u32) -> u64 {
        let state = self.state();
        let all: u64 = state.facts.iter().map(|facts| facts.finished).sum();
        all - state.facts[shard as usize].finished
    }

    pub(super) fn learn_kept(&self, shard: u32, batches: u64, groups: u64) {
        self.state().kept[shard as usize] = (batches, groups);
    }

    /// Finished batches and idle groups that other shards keep, as of the last sweep.
    pub(super) fn kept_elsewhere(&self, shard: u32) -> (u64, u64) {
        let state = self.state();
        let others = state.kept.iter().enumerate();
        others
            .filter(|(other, _)| *other != shard as usize)
            .fold((0, 0), |(batches, groups), (_, kept)| {
                (batches + kept.0, groups + kept.1)
            })
    }

    pub(super) fn ready(&self) -> u64 {
        self.state().facts.iter().map(|facts| facts.ready).sum()
    }

    /// Marks a shard that did not reply as down for a moment.
    pub(super) fn went_down(&self, shard: u32) {
        self.state().down_until[shard as usize] = Some(Instant::now() + DOWN_FOR);
    }

    /// The shards to call; all of them if every one seems down.
    pub(super) fn up(&self, shards: u32) -> Vec<u32> {
        let state = self.state();
        let now = Instant::now();
        let up = |shard: &u32| state.down_until[*shard as usize].is_none_or(|until| until <= now);
        let there: Vec<u32> = (0..shards).filter(up).collect();
        if there.is_empty() {
            (0..shards).collect()
        } else {
            there
        }
    }

    /// Another process signalled: there may be work.
    pub(super) fn notified(&self, shard: u32) {
        let mut state = self.state();
        let facts = &mut state.facts[shard as usize];
        facts.weight = facts.weight.max(1_000);
        for of_queue in state.queues.values_mut() {
            if let Some(queue) = &mut of_queue[shard as usize] {
                queue.weight = queue.weight.max(1_000);
            }
        }
    }

    /// Active groups and unfinished jobs of all other shards.
    pub(super) fn others(&self, shard: u32) -> (u64, u64) {
        let state = self.state();
        let others = state.facts.iter().enumerate();
        others
            .filter(|(other, _)| *other != shard as usize)
            .fold((0, 0), |(active, unfinished), (_, facts)| {
                (active + facts.active, unfinished + facts.unfinished)
            })
    }

    /// Whether it is time to poll idle shards, too.
    pub(super) fn ask_idle(&self) -> bool {
        let mut state = self.state();
        state.calls += 1;
        state.calls % ASK_IDLE_EVERY == 1
    }

    /// Distributes `starts` among some shards by the weight of their active groups. The remainder is carried
    /// over, so that over many calls each shard gets its share to within one start.
    pub(super) fn parts(&self, queue: &QueueId, shards: &[u32], starts: u64, idle_too: bool) -> Vec<u64> {
        let mut state = self.state();
        let weight = |&shard: &u32| match state.weight_in(queue, shard as usize) {
            0 if idle_too => 1_000,
            weight => weight,
        };
        let weights: Vec<u64> = shards.iter().map(weight).collect();
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

    fn queue() -> QueueId {
        tidegate_core::bulk::default_queue()
    }

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
            let parts = known.parts(&queue(), &[0, 1], 1, false);
            assert_eq!(parts.iter().sum::<u64>(), 1);
            got[0] += parts[0];
            got[1] += parts[1];
        }
        assert_eq!(got, [100, 300]);
    }

    #[test]
    fn a_shard_without_work_gets_nothing_until_it_is_asked_or_signals() {
        let known = known(&[1_000, 0]);
        assert_eq!(known.parts(&queue(), &[0, 1], 10, false), [10, 0]);
        assert_eq!(known.parts(&queue(), &[0, 1], 10, true), [5, 5]);
        known.notified(1);
        assert_eq!(known.parts(&queue(), &[0, 1], 10, false), [5, 5]);
    }
}
