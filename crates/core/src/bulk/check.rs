//! Proves the invariants of the state machine by recounting everything. For tests and simulations.

use std::collections::HashMap;

use super::Bulk;
use super::command::Priority;
use super::estimate::Due;
use super::flow::Flow;
use super::group::Held;
use super::job::{JobState, Spot};
use super::list::{List, NIL, QUEUE, Slot};
use super::pair::PairHeld;

impl Bulk {
    /// Panics with a description of the violation. Visits every job: not for production.
    pub fn check(&self) {
        self.check_limits();
        let mut spots: HashMap<Slot, Spot> = HashMap::new();
        let mut visit = |list: &List<QUEUE>, spot: Spot| {
            let (mut slot, mut len, mut prev) = (list.head, 0, NIL);
            while slot != NIL {
                assert_eq!(self.jobs[slot as usize].links[QUEUE].prev, prev, "links meet");
                assert!(spots.insert(slot, spot).is_none(), "job {slot} is in two lists");
                len += 1;
                (prev, slot) = (slot, self.jobs[slot as usize].links[QUEUE].next);
            }
            assert_eq!(len, list.len, "length of a {spot:?} list");
        };
        for (_, flow) in &self.flows {
            visit(&flow.returned, Spot::Returned);
            visit(&flow.throttled, Spot::Throttled);
            visit(&flow.fresh, Spot::Fresh);
        }
        for queue in &self.queues {
            visit(&queue.ready, Spot::Ready);
        }
        for (_, batch) in &self.batches {
            for (_, list) in &batch.parked {
                visit(list, Spot::Parked);
            }
        }
        let mut finished = 0;
        for (slot, group) in &self.groups {
            visit(&group.finished, Spot::Finished);
            finished += u64::from(group.finished.len);
            if let Some(first) = group.finished.front() {
                let at = self.jobs[first as usize].at;
                assert!(
                    self.finished.contains(&(at, group.seq, slot as Slot)),
                    "{:?}",
                    group.id
                );
            }
            let crowded = u64::from(group.finished.len) > self.config.retention.finished_jobs_max_per_group;
            assert_eq!(
                self.crowded.contains(&(group.seq, slot as Slot)),
                crowded,
                "{:?}",
                group.id
            );
            for &batch in &group.remembering {
                assert!(
                    !self.batches[batch as usize].remembered.is_empty(),
                    "{:?}",
                    group.id
                );
            }
        }
        assert_eq!(finished, self.finished_jobs, "finished jobs over all groups");
        let with_finished = self.groups.iter().filter(|(_, group)| !group.finished.is_empty());
        assert_eq!(
            with_finished.count(),
            self.finished.len(),
            "no ghosts among the finished"
        );
        self.check_jobs(&spots);
        self.check_flows();
        self.check_pairs();
    }

    fn check_limits(&self) {
        // Ready may hold more promises from a time when the limit was larger, and a promise is one unit, whatever the job
        // costs.
        assert!(
            self.limiter.started() <= self.limiter.widest() && self.ready <= self.limiter.widest(),
            "{} started and {} ready exceed the limit of {}",
            self.limiter.started(),
            self.ready,
            self.limiter.widest()
        );
        let ready: u64 = self.queues.iter().map(|queue| u64::from(queue.ready.len)).sum();
        assert_eq!(ready, self.ready, "ready over all queues");
    }

    fn check_jobs(&self, spots: &HashMap<Slot, Spot>) {
        let mut counts: HashMap<Slot, [u32; 6]> = HashMap::new();
        let mut congested: HashMap<Slot, u32> = HashMap::new();
        let mut unfinished: HashMap<Slot, u32> = HashMap::new();
        let mut of_flow: HashMap<Slot, u32> = HashMap::new();
        for (slot, job) in &self.jobs {
            let slot = slot as Slot;
            let spot = spots.get(&slot).copied().unwrap_or(Spot::Nowhere);
            assert_eq!(job.spot, spot, "{:?} {:?} knows where it is", job.seq, job.state);
            let expected = match job.state {
                JobState::Waiting => matches!(spot, Spot::Returned | Spot::Fresh | Spot::Parked),
                JobState::Ready => spot == Spot::Ready,
                JobState::Running => spot == Spot::Nowhere && self.leases.contains_key(&job.seq),
                JobState::Delayed => {
                    spot == Spot::Throttled || self.delayed.contains(&(job.at, job.seq, slot))
                }
                JobState::Completed | JobState::Dead => matches!(spot, Spot::Finished | Spot::Nowhere),
            };
            assert!(expected, "{:?} is {:?} but is at {spot:?}", job.seq, job.state);
            let group = self.batches[job.batch as usize].group;
            counts.entry(group).or_default()[job.state as usize] += 1;
            if !job.state.is_finished() {
                *unfinished.entry(job.batch).or_default() += 1;
                *of_flow.entry(job.flow).or_default() += 1;
            }
            if job.state == JobState::Delayed && job.delay != super::DelayReason::Scheduled {
                *congested.entry(group).or_default() += 1;
            }
            assert_eq!(
                self.dead_jobs.get(&(job.at, job.seq)) == Some(&slot),
                job.state == JobState::Dead,
                "{:?} is {:?} and listed as dead, or the other way round",
                job.seq,
                job.state
            );
            assert_eq!(
                self.find_job(job.fingerprint),
                Some(slot),
                "every job is found by its id"
            );
        }
        assert_eq!(self.by_id.len(), self.jobs.len(), "the index has no ghosts");
        let dead = self.totals.counts[JobState::Dead as usize];
        assert_eq!(
            self.dead_jobs.len() as u64,
            dead,
            "the list of the dead has no ghosts"
        );
        for (slot, group) in &self.groups {
            let slot = slot as Slot;
            assert_eq!(
                group.counts,
                counts.get(&slot).copied().unwrap_or_default(),
                "counts of {:?}",
                group.id
            );
            assert_eq!(group.congested, congested.get(&slot).copied().unwrap_or(0));
            let idle = self.idle_groups.contains(&(group.idle_since, group.seq, slot));
            assert_eq!(idle, !group.is_active(), "{:?} is idle or active", group.id);
        }
        for (slot, batch) in &self.batches {
            assert_eq!(
                batch.unfinished,
                unfinished.get(&(slot as Slot)).copied().unwrap_or(0)
            );
            let counts = batch.counts;
            assert!(
                counts.success + counts.failed <= counts.total,
                "{:?} counts twice",
                batch.id
            );
        }
        let mut due: HashMap<Slot, Due> = HashMap::new();
        for &(at, _, slot) in &self.delayed {
            due.entry(self.jobs[slot as usize].flow).or_default().add(at);
        }
        for (slot, flow) in &self.flows {
            let due = due.get(&(slot as Slot)).copied().unwrap_or_default();
            assert_eq!((flow.due.jobs, flow.due.seconds), (due.jobs, due.seconds));
            assert_eq!(
                flow.unfinished,
                of_flow.get(&(slot as Slot)).copied().unwrap_or(0)
            );
        }
        for (index, queue) in self.queues.iter().enumerate() {
            let of_queue =
                |job: &&super::job::Job| usize::from(self.kinds[usize::from(job.kind)].queue) == index;
            let jobs = || self.jobs.iter().map(|(_, job)| job).filter(of_queue);
            let in_state = |state: JobState| jobs().filter(|job| job.state == state).count() as u64;
            let unfinished = jobs().filter(|job| !job.state.is_finished()).count() as u64;
            assert_eq!(queue.unfinished, unfinished, "unfinished in {:?}", queue.name);
            assert_eq!(
                queue.delayed,
                in_state(JobState::Delayed),
                "delayed in {:?}",
                queue.name
            );
            assert_eq!(
                queue.running,
                in_state(JobState::Running),
                "running in {:?}",
                queue.name
            );
        }
        for &slot in self.runs.keys().chain(&self.cancelled_jobs) {
            assert!(
                self.jobs.contains(slot as usize),
                "no ghosts among runs and cancelled jobs"
            );
        }
        assert_eq!(
            self.batches_by_seq.len(),
            self.batches.len(),
            "every batch is listed"
        );
        let active = self.groups.iter().filter(|(_, group)| group.is_active()).count();
        assert_eq!(active as u64, self.active_groups, "active groups");
        assert_eq!(
            self.leases.len(),
            self.deadlines.len(),
            "every lease has its deadline"
        );
    }

    /// What each group runs and has in ready, in each queue.
    fn check_pairs(&self) {
        let mut counts: HashMap<(Slot, u16), (u32, u32)> = HashMap::new();
        for (_, job) in &self.jobs {
            let of = (
                self.batches[job.batch as usize].group,
                self.kinds[usize::from(job.kind)].queue,
            );
            match job.state {
                JobState::Running => counts.entry(of).or_default().0 += 1,
                JobState::Ready => counts.entry(of).or_default().1 += 1,
                _ => {}
            }
        }
        let (mut held_groups, mut held_pairs) = (0, 0);
        for (slot, group) in &self.groups {
            let slot = slot as Slot;
            for pair in &group.pairs {
                let expected = counts.remove(&(slot, pair.queue)).unwrap_or_default();
                assert_eq!(
                    (pair.running, pair.ready),
                    expected,
                    "running and ready of {:?} in queue {}",
                    group.id,
                    pair.queue
                );
                if let Some(PairHeld::Until(until)) = pair.held {
                    let of = (until, group.seq, slot, pair.queue);
                    assert!(self.held_pairs.contains(&of), "{:?} is held in a queue", group.id);
                    held_pairs += 1;
                }
            }
            if let Some(Held::Until(until)) = group.held {
                let of = (until, group.seq, slot);
                assert!(self.held_groups.contains(&of), "{:?} is held", group.id);
                held_groups += 1;
            }
        }
        assert!(
            counts.is_empty(),
            "every running or ready job has its pair: {counts:?}"
        );
        assert_eq!(
            held_groups,
            self.held_groups.len(),
            "no ghosts among the held groups"
        );
        assert_eq!(
            held_pairs,
            self.held_pairs.len(),
            "no ghosts among the held pairs"
        );
    }

    fn check_flows(&self) {
        for (index, queue) in self.queues.iter().enumerate() {
            for priority in Priority::ALL {
                let of_order = |flow: &&Flow| usize::from(flow.queue) == index && flow.priority == priority;
                let flows = self.flows.iter().map(|(_, flow)| flow).filter(of_order);
                let weight: u64 = flows
                    .filter(|flow| flow.place.is_some())
                    .map(|flow| flow.weight)
                    .sum();
                assert_eq!(
                    queue.orders[priority as usize].weight(),
                    weight,
                    "of {:?}",
                    queue.name
                );
            }
        }
        for (_, flow) in &self.flows {
            let group = &self.groups[flow.group as usize];
            let is_there = flow.place.is_some();
            let should = flow.len() > 0 && group.held.is_none() && !group.pair_held(flow.queue);
            assert_eq!(
                is_there, should,
                "a flow of {:?} in the order: {flow:?}",
                group.id
            );
        }
    }
}
