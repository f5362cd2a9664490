//! Dead jobs: listed, replayed and purged.

use tidegate_core::bulk::views::DeadFilter;
use tidegate_core::bulk::{PurgeParams, Refusal, ReplayParams};
use tidegate_core::ids::JobId;
use tidegate_store::bulk::FoundJob;

use super::Simulation;

impl Simulation {
    /// The dead jobs that match, over pages of random size; no page repeats a job.
    fn dead(&mut self, filter: &DeadFilter) -> Vec<FoundJob> {
        let max = self.rng.between(1, 20) as u32;
        let (mut all, mut after) = (Vec::<FoundJob>::new(), None);
        loop {
            let answer = self.runtime.block_on(self.store.dead(filter, after, max));
            self.trace
                .add(self.wall.0, &format!("dead {filter:?} {after:?} {max}"), &answer);
            let page = answer.unwrap_or_else(|error| panic!("the store failed: {error}"));
            assert!(page.items.len() <= max as usize);
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let death = |dead: &FoundJob| (dead.details.view.finished_at, dead.details.view.seq);
        let deaths: Vec<_> = all.iter().map(death).collect();
        assert!(deaths.is_sorted_by(|one, next| one > next), "{deaths:?}");
        for dead in &all {
            self.oracle.listed_as_dead(self.group_index(&dead.group), dead);
        }
        all
    }

    /// A dead job of the group if there is one, or any job.
    fn dead_or_any(&mut self, index: u64) -> Option<(JobId, bool)> {
        if self.rng.percent(70) {
            let filter = DeadFilter {
                group: Some(self.group(index)),
                ..DeadFilter::default()
            };
            let dead = self.dead(&filter);
            if !dead.is_empty() {
                return Some((self.rng.pick(&dead).details.id.clone(), true));
            }
        }
        let number = (self.next_job > 0).then(|| self.rng.below(self.next_job))?;
        Some((JobId::new(format!("job-{number}")).expect("a short name"), false))
    }

    pub(super) fn replay(&mut self, index: u64) {
        let Some((job, _)) = self.dead_or_any(index) else {
            return;
        };
        let params = ReplayParams {
            group: self.group(index),
            job,
        };
        match self.risky(params) {
            Some(Ok(seq)) => self.oracle.replayed(seq),
            Some(Err(_)) => {}
            // The replay may have happened: the oracle must expect that the dead job runs.
            None => {
                let seqs: Vec<_> = self.oracle.jobs.keys().copied().collect();
                seqs.into_iter().for_each(|seq| self.oracle.perhaps_replayed(seq));
            }
        }
    }

    pub(super) fn bury(&mut self) {
        let all = self.dead(&DeadFilter::default());
        assert_eq!(
            all.len() as u64,
            self.stats().counts.dead,
            "all of them are listed"
        );
        let index = self.rng.below(self.profile.groups);
        let Some((job, dead)) = self.dead_or_any(index) else {
            return;
        };
        let params = PurgeParams {
            group: self.group(index),
            job: job.clone(),
        };
        match self.risky(params) {
            None | Some(Ok(())) => self.oracle.purged(index, &job),
            Some(Err(Refusal::ResultsKept(_))) => {}
            Some(Err(refusal)) => assert!(!dead, "{job:?} was listed as dead: {refusal}"),
        }
    }
}
