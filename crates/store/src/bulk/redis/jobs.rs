//! Jobs as scripts show them, the list of all of them over all shards, commands on single jobs, and the backlog of every
//! queue.

use std::collections::BTreeMap;

use bytes::Bytes;
use redis::Value;
use tidegate_core::bulk::listing::MAX_PAGE;
use tidegate_core::bulk::views::{Cursor, JobFilter, JobView, Page, Query, QueueBacklog, RunningView};
use tidegate_core::bulk::{ChangeJobsParams, DeathReason, JobCommand, JobState, Priority, Refusal};
use tidegate_core::ids::{Owner, QueueId};
use tidegate_core::time::Timestamp;
use tidegate_redis::{Args, Items, time};

use super::blob::Blob;
use super::{Shared, decode, run_log, scripts};
use crate::StoreError;
use crate::bulk::job_runs::{LastRun, runs};
use crate::bulk::{FoundJob, JobDetails};

type StoreResult<T> = Result<T, StoreError>;

impl Shared {
    /// One shard after the other; only that of the group if the filter names one.
    pub(super) async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> StoreResult<Page<FoundJob>> {
        let max = max.clamp(1, MAX_PAGE);
        let shard = match (&filter.group, after) {
            (Some(group), _) => self.shard_of(group),
            (None, after) => after.map_or(0, shard_in).min(self.shards - 1),
        };
        let query = Query::Jobs {
            filter: filter.clone(),
            after,
            max,
        };
        let numbers = self.numbers(shard);
        let mut items = self.look(shard, &query).await?;
        let found = items.items()?.each(|one| -> StoreResult<_> {
            Ok(FoundJob {
                group: one.name()?,
                details: details(&mut one.items()?, numbers)?,
            })
        })?;
        let next = match items.maybe()?.zip(items.maybe()?) {
            Some((batch, job)) => Some(cursor(shard, batch, job)),
            None if filter.group.is_none() && shard + 1 < self.shards => Some(cursor(shard + 1, 0, 0)),
            None => None,
        };
        Ok(Page { items: found, next })
    }

    pub(super) async fn change_jobs(
        &self,
        p: &ChangeJobsParams,
    ) -> StoreResult<Vec<Result<JobState, Refusal>>> {
        let mut args = Args::default();
        args.text(p.group.as_str());
        match p.command {
            JobCommand::Cancel => args.text("cancel").text(""),
            JobCommand::RunNow => args.text("run_now").text(""),
            JobCommand::Reschedule { run_at } => args.text("reschedule").big(run_at.0),
            JobCommand::Reprioritise { priority } => args.text("reprioritise").number(priority as i64 + 1),
        };
        for job in &p.jobs {
            args.text(job.as_str());
        }
        let shard = self.shard_of(&p.group);
        let mut items = self.call(shard, &scripts::CHANGE_JOBS, &args).await?;
        if items.text()? != "ok" {
            let unknown = || Err(Refusal::UnknownGroup(p.group.clone()));
            return Ok(p.jobs.iter().map(|_| unknown()).collect());
        }
        let mut answers = items.items()?;
        let mut out = Vec::with_capacity(p.jobs.len());
        for job in &p.jobs {
            out.push(match answers.value()? {
                Value::Int(state) => Ok(decode::state(state)?),
                refused => {
                    let mut refused = Items::of(refused)?;
                    Err(match refused.text()?.as_str() {
                        "state" => Refusal::WrongState {
                            job: job.clone(),
                            state: decode::state(refused.int()?)?,
                            command: p.command.kind(),
                        },
                        "expires" => Refusal::ExpiresBefore {
                            job: job.clone(),
                            expires_at: refused.time()?,
                        },
                        said => decode::refusal(said, &p.group, None, Some(job))?,
                    })
                }
            });
        }
        Ok(out)
    }

    pub(super) async fn backlog(&self) -> StoreResult<Vec<QueueBacklog>> {
        let mut all: BTreeMap<QueueId, QueueBacklog> = BTreeMap::new();
        for shard in 0..self.shards {
            for one in self.look(shard, &Query::Backlog).await?.each(queue)? {
                match all.get_mut(&one.queue) {
                    Some(whole) => add(whole, &one),
                    None => {
                        all.insert(one.queue.clone(), one);
                    }
                }
            }
        }
        Ok(all.into_values().collect())
    }
}

/// The place of a cursor that the state machine uses for a slot names the shard here.
fn cursor(shard: u32, batch: u64, job: u64) -> Cursor {
    Cursor(u128::from(batch) << 80 | u128::from(shard) << 48 | u128::from(job))
}

fn shard_in(cursor: Cursor) -> u32 {
    (cursor.0 >> 48) as u32
}

/// The batch and the job of a cursor.
pub(super) fn place(cursor: Cursor) -> (u64, u64) {
    ((cursor.0 >> 80) as u64, cursor.0 as u64 & ((1 << 48) - 1))
}

fn queue(one: &mut Items) -> StoreResult<QueueBacklog> {
    Ok(QueueBacklog {
        queue: one.name()?,
        waiting: one.unsigned()?,
        delayed: one.unsigned()?,
        running: one.unsigned()?,
        oldest_waiting_since: one.maybe()?.map(time),
    })
}

fn add(whole: &mut QueueBacklog, one: &QueueBacklog) {
    whole.waiting += one.waiting;
    whole.delayed += one.delayed;
    whole.running += one.running;
    let since: Option<Timestamp> = [whole.oldest_waiting_since, one.oldest_waiting_since]
        .into_iter()
        .flatten()
        .min();
    whole.oldest_waiting_since = since;
}

/// One job as its script shows it.
pub(super) fn details(one: &mut Items, numbers: decode::Numbers) -> StoreResult<JobDetails> {
    let seq = numbers.job(one.unsigned()?);
    let priority = decode::one_of("a priority", &Priority::ALL, one.int()? - 1)?;
    let state = decode::state(one.int()?)?;
    let (failures, retries, throttles) = (one.small()?, one.small()?, one.small()?);
    let at = one.time()?;
    let (delay, death) = (
        decode::delay_reason(one.int()?)?,
        decode::death_reason(one.int()?)?,
    );
    let (batch, queue) = (one.name()?, one.name()?);
    let last = match state {
        JobState::Running | JobState::Completed => 1,
        JobState::Dead => u32::from(death == DeathReason::Failed),
        _ => 0,
    };
    let blob = Blob::read(one.bytes()?)?;
    let text: Bytes = one.bytes()?;
    let (started, worker) = (one.unsigned()?, one.text()?);
    let started_at = (started > 0).then_some(Timestamp(started));
    let worker = Owner::new(worker).ok();
    let progress = run_log::read_progress(one.bytes()?);
    let cancelled = one.flag()?;
    let records = run_log::read(one.bytes()?)?;
    let (mut result, mut error, mut completed, mut running) = (None, None, None, None);
    match state {
        JobState::Completed => {
            result = Some(text);
            completed = worker.map(|worker| LastRun { started_at, worker });
        }
        JobState::Running => {
            running = worker.map(|worker| RunningView {
                started_at,
                worker,
                progress,
                cancelled,
            });
        }
        JobState::Dead => error = Some(String::from_utf8_lossy(&text).into_owned()),
        _ => {}
    }
    let view = JobView {
        seq,
        batch,
        kind: blob.kind,
        queue,
        priority,
        state,
        attempts: failures + last,
        max_attempts: retries + 1,
        throttles,
        delayed: (state == JobState::Delayed).then_some((at, delay)),
        running,
        deadline: (state == JobState::Running).then_some(at),
        dead: (state == JobState::Dead).then_some(death),
        finished_at: state.is_finished().then_some(at),
    };
    Ok(JobDetails {
        id: blob.id,
        created_at: blob.created_at,
        runs: runs(records, &view, completed),
        view,
        payload: blob.payload,
        result,
        error,
    })
}
