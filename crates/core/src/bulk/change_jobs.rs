//! change_jobs: an operator's commands on single jobs of one group: cancel, run now, reschedule, reprioritise.
//!
//! A job that runs now, or has a new priority, goes to the returned jobs of its flow: before fresh ones, still within every limit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Bulk;
use super::command::{DeathReason, DelayReason, Priority};
use super::job::{JobState, Spot};
use super::list::Slot;
use super::refusal::Refusal;
use crate::ids::{GroupId, JobId};
use crate::time::Timestamp;

/// A command on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCommand {
    /// Ends a job that does not run. A running one ends with this run, unless the run completes it.
    Cancel,
    /// A delayed job waits for its turn from now on.
    RunNow,
    /// The job starts no earlier than `run_at`, whatever it waited for until now.
    Reschedule { run_at: Timestamp },
    /// The next start of the job is at this priority.
    Reprioritise { priority: Priority },
}

/// The kind of a [`JobCommand`], for refusals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobCommandKind {
    Cancel,
    RunNow,
    Reschedule,
    Reprioritise,
}

impl JobCommand {
    pub fn kind(&self) -> JobCommandKind {
        match self {
            JobCommand::Cancel => JobCommandKind::Cancel,
            JobCommand::RunNow => JobCommandKind::RunNow,
            JobCommand::Reschedule { .. } => JobCommandKind::Reschedule,
            JobCommand::Reprioritise { .. } => JobCommandKind::Reprioritise,
        }
    }
}

impl JobCommandKind {
    /// Whether a job in this state takes the command.
    pub fn fits(self, state: JobState) -> bool {
        match state {
            JobState::Waiting | JobState::Ready => self != JobCommandKind::RunNow,
            JobState::Delayed => true,
            JobState::Running => matches!(self, JobCommandKind::Cancel | JobCommandKind::Reprioritise),
            JobState::Completed | JobState::Dead => false,
        }
    }

    /// What an operator can do with a job in this state, as a refusal says it.
    pub fn possible(state: JobState) -> &'static str {
        match state {
            JobState::Waiting | JobState::Ready => {
                "it starts when it is its turn; cancel, reschedule or reprioritise it"
            }
            JobState::Delayed => "cancel, run now, reschedule or reprioritise it",
            JobState::Running => "cancel or reprioritise it, which takes effect when this run ends",
            JobState::Completed => "nothing changes it any more",
            JobState::Dead => "replay or purge it",
        }
    }
}

impl fmt::Display for JobCommandKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobCommandKind::Cancel => "cancelled",
            JobCommandKind::RunNow => "run now",
            JobCommandKind::Reschedule => "rescheduled",
            JobCommandKind::Reprioritise => "reprioritised",
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct ChangeJobsParams {
    pub group: GroupId,
    pub jobs: Vec<JobId>,
    pub command: JobCommand,
}

impl Bulk {
    /// The state of each job after the command, in order.
    pub(super) fn change_jobs(
        &mut self,
        p: ChangeJobsParams,
        now: Timestamp,
    ) -> Vec<Result<JobState, Refusal>> {
        p.jobs
            .iter()
            .map(|job| self.change_job(&p.group, job, p.command, now))
            .collect()
    }

    fn change_job(
        &mut self,
        group: &GroupId,
        job: &JobId,
        command: JobCommand,
        now: Timestamp,
    ) -> Result<JobState, Refusal> {
        let slot = self.find_job_of(group, job)?;
        let state = self.jobs[slot as usize].state;
        if !command.kind().fits(state) {
            return Err(Refusal::WrongState {
                job: job.clone(),
                state,
                command: command.kind(),
            });
        }
        match command {
            JobCommand::Cancel if state == JobState::Running => {
                self.cancelled_jobs.insert(slot);
                self.put_state(slot, None);
            }
            JobCommand::Cancel => {
                self.detach(slot);
                self.die(slot, DeathReason::Cancelled, String::new(), now);
            }
            JobCommand::RunNow => self.wait_again(slot, now),
            JobCommand::Reschedule { run_at } if run_at <= now => self.wait_again(slot, now),
            JobCommand::Reschedule { run_at } => {
                if let Some(&expires_at) = self.expiry.get(&slot)
                    && expires_at <= run_at
                {
                    return Err(Refusal::ExpiresBefore {
                        job: job.clone(),
                        expires_at,
                    });
                }
                self.schedule(slot, run_at, now);
            }
            JobCommand::Reprioritise { priority } => self.reprioritise(slot, priority, now),
        }
        Ok(self.jobs[slot as usize].state)
    }

    fn wait_again(&mut self, slot: Slot, now: Timestamp) {
        self.detach(slot);
        self.set_waiting(slot, now);
        self.push_returned(slot, now);
        self.put_state(slot, None);
    }

    fn schedule(&mut self, slot: Slot, run_at: Timestamp, now: Timestamp) {
        self.detach(slot);
        self.set_waiting(slot, now);
        let job = &mut self.jobs[slot as usize];
        job.state = JobState::Delayed;
        job.delay = DelayReason::Scheduled;
        job.at = run_at;
        let (seq, flow) = (job.seq, job.flow);
        self.delayed.insert((run_at, seq, slot));
        self.flows[flow as usize].due.add(run_at);
        let (group, queue) = (self.flows[flow as usize].group, self.flows[flow as usize].queue);
        self.queues[usize::from(queue)].delayed += 1;
        self.shift(group, Some(JobState::Waiting), Some(JobState::Delayed), now);
        self.signals.timer = true;
        self.put_state(slot, None);
    }

    fn reprioritise(&mut self, slot: Slot, priority: Priority, now: Timestamp) {
        let job = &self.jobs[slot as usize];
        if job.priority == priority {
            return;
        }
        // A delayed job that is in no flow, and a running one, come to the new flow later.
        let elsewhere = job.spot == Spot::Nowhere;
        let (old, batch) = (job.flow, job.batch);
        if !elsewhere {
            self.detach(slot);
            self.set_waiting(slot, now);
        }
        let (group, queue) = (self.batches[batch as usize].group, self.flows[old as usize].queue);
        let new = self.flow(group, queue, priority);
        self.flow_gains(new);
        let job = &mut self.jobs[slot as usize];
        job.priority = priority;
        job.flow = new;
        if elsewhere && job.state == JobState::Delayed {
            self.flows[old as usize].due.remove(job.at);
            self.flows[new as usize].due.add(job.at);
        }
        self.flow_loses(old);
        if !elsewhere {
            self.push_returned(slot, now);
        }
        self.put_state(slot, None);
    }
}
