//! Routes a transition to shards, and merges their replies into one.
//!
//! A call that names a group goes to the group's shard. A call that names leases goes to the shards of their
//! jobs. A call about a queue or the whole store goes to all shards.

use futures_util::FutureExt;
use futures_util::future::join_all;
use redis::Value;
use tidegate_core::bulk::*;
use tidegate_core::ids::{BatchId, GroupId};
use tidegate_core::time::Timestamp;
use tidegate_redis::{Args, Items, Script, time};

use super::decode::{self, ShardLeases};
use super::limits::Limit;
use super::{Shared, encode, run_log, scripts};
use crate::StoreError;
use crate::bulk::LeasedJob;

type StoreResult<T> = Result<T, StoreError>;

impl Shared {
    pub(super) async fn apply(&self, command: Command) -> StoreResult<Outcome> {
        Ok(match command {
            Command::Enqueue(p) => Outcome::Enqueue(self.enqueue(p).await?),
            Command::OpenBatch(p) => Outcome::OpenBatch(self.open_batch(p).await?),
            Command::SealBatch(p) => Outcome::SealBatch(self.seal_batch(p).await?),
            Command::Admit(p) => Outcome::Admit(self.admit(&p).await?),
            Command::Lease(p) => Outcome::Lease({
                let LeaseOutcome { jobs, stop } = self.lease(&p).await?;
                LeaseOutcome {
                    jobs: jobs.into_iter().map(|job| job.leased).collect(),
                    stop,
                }
            }),
            Command::Extend(p) => Outcome::Extend(self.extend(&p).await?),
            Command::Settle(p) => Outcome::Settle(self.settle(&p).await?),
            Command::ReleaseDue(p) => Outcome::ReleaseDue(self.release_due(&p).await?),
            Command::ExpireLeases(p) => Outcome::ExpireLeases(self.expire_leases(&p).await?),
            Command::ClaimAggregation(p) => Outcome::ClaimAggregation(self.claim_aggregation(&p).await?),
            Command::FinishAggregation(p) => Outcome::FinishAggregation(self.finish_aggregation(p).await?),
            Command::ConfirmCompletion(p) => {
                let mut args = Args::default();
                args.text(p.group.as_str()).text(p.batch.as_str());
                let done = self
                    .of_group(&scripts::CONFIRM_COMPLETION, &p.group, &args)
                    .await?;
                Outcome::ConfirmCompletion(plain(done, &p.group, Some(&p.batch))?)
            }
            Command::Pause(p) => Outcome::Pause(self.of_scope(&scripts::PAUSE, &p.scope).await?),
            Command::Resume(p) => Outcome::Resume(self.of_scope(&scripts::RESUME, &p.scope).await?),
            Command::Cancel(p) => Outcome::Cancel(self.cancel(p).await?),
            Command::ConfigureGroup(p) => Outcome::ConfigureGroup(self.configure_group(p).await?),
            Command::Replay(p) => Outcome::Replay(self.replay(p).await?),
            Command::Purge(p) => Outcome::Purge(self.purge(p).await?),
            Command::ChangeJobs(p) => Outcome::ChangeJobs(self.change_jobs(&p).await?),
            Command::ConfigureLimits(p) => Outcome::ConfigureLimits(self.configure_limits(&p).await?),
            Command::DropFinished(p) => Outcome::DropFinished(self.drop_finished(&p).await?),
            Command::SnapshotCongestion(_) => {
                let all = self
                    .on_all(&scripts::SNAPSHOT_CONGESTION, &Args::default())
                    .await?;
                let mut added = 0;
                for mut items in all {
                    added += items.small()?;
                }
                Outcome::SnapshotCongestion(added)
            }
            Command::ResetStats(p) => {
                let mut args = Args::default();
                args.text(p.group.as_str());
                let done = self.of_group(&scripts::RESET_STATS, &p.group, &args).await?;
                Outcome::ResetStats(plain(done, &p.group, None)?)
            }
            Command::Query(query) => Outcome::Query(self.query(query).await?),
        })
    }

    async fn of_group(&self, script: &Script, group: &GroupId, args: &Args) -> StoreResult<Items> {
        self.call(self.shard_of(group), script, args).await
    }

    /// Calls every shard. An unavailable one delays nobody: its part is done when it is back.
    async fn on_all(&self, script: &Script, args: &Args) -> StoreResult<Vec<Items>> {
        let shards: Vec<u32> = self.known.up(self.shards);
        let calls = shards.iter().map(|&shard| self.call(shard, script, args).boxed());
        let answers = join_all(calls.collect::<Vec<_>>()).await;
        self.those_there(shards, answers)
    }

    /// The replies of the shards that replied; an error only if none did.
    fn those_there<T>(&self, shards: Vec<u32>, answers: Vec<StoreResult<T>>) -> StoreResult<Vec<T>> {
        let mut there = Vec::with_capacity(answers.len());
        let mut failed = None;
        for (shard, answer) in shards.into_iter().zip(answers) {
            match answer {
                Ok(answer) => there.push(answer),
                Err(error) if error.is_retryable() && self.shards > 1 => {
                    self.known.went_down(shard);
                    failed = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match failed {
            Some(error) if there.is_empty() => Err(error),
            _ => Ok(there),
        }
    }

    async fn enqueue(&self, p: EnqueueParams) -> StoreResult<Result<EnqueueOutcome, Refusal>> {
        let config = self.config();
        let limits = &config.limits;
        let (len, max) = (p.jobs.len() as u64, limits.max_enqueue_batch);
        if len > max {
            return Ok(Err(Refusal::TooManyJobs { len, max }));
        }
        if let Some(Err(refusal)) = p.base_priority.map(checked_base_priority) {
            return Ok(Err(refusal));
        }
        if let Some(job) = p.jobs.iter().find(|job| job.cost != 1)
            && self.shards > 1
        {
            return Ok(Err(Refusal::NotWithShards {
                what: format!("the cost {} of job {:?}", job.cost, job.id),
                shards: self.shards,
            }));
        }
        let shard = self.shard_of(&p.group);
        let args = encode::enqueue(&p, limits.max_payload_bytes);
        let items = self.call(shard, &scripts::ENQUEUE, &args).await?;
        decode::enqueue(items, &p, self.numbers(shard), limits)
    }

    async fn open_batch(&self, p: OpenBatchParams) -> StoreResult<Result<Opened, Refusal>> {
        if let Err(refusal) = p.options.check() {
            return Ok(Err(refusal));
        }
        if let Some(Err(refusal)) = p.base_priority.map(checked_base_priority) {
            return Ok(Err(refusal));
        }
        let args = encode::open_batch(&p);
        let mut items = self.of_group(&scripts::OPEN_BATCH, &p.group, &args).await?;
        Ok(match items.text()?.as_str() {
            "new" => Ok(Opened::New),
            "already" => Ok(Opened::Already),
            said => Err(decode::refusal(said, &p.group, Some(&p.batch), None)?),
        })
    }

    async fn seal_batch(&self, p: SealBatchParams) -> StoreResult<Result<Sealed, Refusal>> {
        let mut args = Args::default();
        args.text(p.group.as_str());
        args.text(p.batch.as_ref().map_or("", |batch| batch.as_str()));
        let mut items = self.of_group(&scripts::SEAL_BATCH, &p.group, &args).await?;
        let said = items.text()?;
        if said != "ok" {
            return Ok(Err(decode::refusal(&said, &p.group, p.batch.as_ref(), None)?));
        }
        Ok(Ok(Sealed {
            batch: items.name()?,
            total_jobs: items.unsigned()?,
            batch_complete: items.flag()?,
        }))
    }

    async fn admit(&self, p: &AdmitParams) -> StoreResult<AdmitOutcome> {
        let mut whole = AdmitOutcome {
            admitted: Vec::new(),
            denied: Vec::new(),
            stop: Stop::Empty,
        };
        if self.shards == 1 {
            return self.admit_on(0, p, p.max.into(), None).await;
        }
        // The shards share the rest of the window, so that ready never holds more promises.
        let limit = self.ask_limit(0, 0, p.queue.as_str()).await?;
        let most = limit.limit;
        let promised = limit.granted + self.known.ready();
        let mut left = most.saturating_sub(promised).min(p.max.into());
        let mut asked: Vec<u32> = self.known.up(self.shards);
        let mut idle_too = self.known.ask_idle();
        while left > 0 && !asked.is_empty() {
            let parts = self.known.parts(&p.queue, &asked, left, idle_too);
            if parts.iter().all(|&part| part == 0) {
                idle_too = true;
                continue;
            }
            for (shard, part) in asked.clone().into_iter().zip(parts) {
                if part == 0 {
                    continue;
                }
                let one = self.admit_on(shard, p, part, Some((part, limit.window))).await?;
                left -= one.admitted.len() as u64;
                if !matches!(one.stop, Stop::Enough) {
                    asked.retain(|&other| other != shard);
                    whole.stop = both(whole.stop, one.stop);
                }
                whole.admitted.extend(one.admitted);
            }
        }
        if whole.admitted.len() as u32 >= p.max {
            whole.stop = Stop::Enough;
        } else if left == 0 {
            // Shards deny the jobs they reach now (`hold = "job"`).
            let promised = limit.granted + self.known.ready();
            let parts = self.known.parts(&p.queue, &asked, p.max.into(), false);
            for (&shard, &part) in asked.iter().zip(&parts).filter(|&(_, &part)| part > 0) {
                let one = self.admit_on(shard, p, part, Some((0, limit.window))).await?;
                whole.denied.extend(one.denied.into_iter().map(|mut denied| {
                    denied.global = (promised, most);
                    denied
                }));
                whole.stop = both(whole.stop, one.stop);
            }
        }
        Ok(whole)
    }

    async fn admit_on(
        &self,
        shard: u32,
        p: &AdmitParams,
        max: u64,
        grant: Option<(u64, u64)>,
    ) -> StoreResult<AdmitOutcome> {
        let elsewhere = self.known.ready_elsewhere(&p.queue, shard);
        let cap = u64::from(p.ready_cap.min(self.config().backpressure.ready_queue_max_size));
        let mut args = Args::default();
        args.text(p.queue.as_str())
            .big(max)
            .big(cap.saturating_sub(elsewhere));
        let items = self.call_with(shard, &scripts::ADMIT, &args, grant).await?;
        let (outcome, queue) = decode::admit(items, self.numbers(shard))?;
        self.known.learn_queue(&p.queue, shard, queue);
        Ok(outcome)
    }

    pub(super) async fn lease(&self, p: &LeaseParams) -> StoreResult<LeaseOutcome<LeasedJob>> {
        if self.shards == 1 {
            let leases = self.lease_on(0, p, p.max, None).await?;
            return Ok(LeaseOutcome {
                jobs: leases.jobs,
                stop: leases.stop,
            });
        }
        let Limit { window, grant, .. } = self.ask_limit(p.max.into(), 0, p.queue.as_str()).await?;
        let until = Timestamp((window + 1).saturating_mul(self.config().backpressure.window().0));
        let mut left = grant;
        let mut jobs: Vec<Vec<LeasedJob>> = vec![Vec::new(); self.shards as usize];
        let mut stop = Stop::Empty;
        let mut failed = None;
        let mut asked: Vec<u32> = self.known.up(self.shards);
        let mut idle_too = self.known.ask_idle();
        // What one shard does not use goes to the others; in the end also to idle ones.
        while left > 0 && !asked.is_empty() {
            let parts = self.known.parts(&p.queue, &asked, left, idle_too);
            let mut calls = Vec::new();
            let mut called = Vec::new();
            for (&shard, &part) in asked.iter().zip(&parts).filter(|&(_, &part)| part > 0) {
                left -= part;
                called.push(shard);
                let part = part.min(u64::from(u32::MAX));
                calls.push(self.lease_on(shard, p, part as u32, Some((part, window))).boxed());
            }
            if calls.is_empty() {
                idle_too = true;
                continue;
            }
            for (shard, answer) in called.into_iter().zip(join_all(calls).await) {
                // If a shard does not reply, its use of the grant is unknown, so the grant stays used.
                let one = match answer {
                    Ok(one) => one,
                    Err(error) if error.is_retryable() => {
                        self.known.went_down(shard);
                        asked.retain(|&other| other != shard);
                        failed = Some(error);
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                left += one.unused;
                if !matches!(one.stop, Stop::Enough) {
                    asked.retain(|&other| other != shard);
                    stop = both(stop, one.stop);
                }
                jobs[shard as usize].extend(one.jobs);
            }
        }
        if left > 0 {
            self.ask_limit(-(left as i64), window, p.queue.as_str()).await?;
        }
        let jobs = in_turn(jobs);
        if let Some(error) = failed
            && jobs.is_empty()
        {
            return Err(error);
        }
        if jobs.len() as u32 >= p.max {
            stop = Stop::Enough;
        } else if left == 0 {
            stop = Stop::Limited { until };
        }
        Ok(LeaseOutcome { jobs, stop })
    }

    async fn lease_on(
        &self,
        shard: u32,
        p: &LeaseParams,
        max: u32,
        grant: Option<(u64, u64)>,
    ) -> StoreResult<ShardLeases> {
        let mut args = Args::default();
        args.text(p.queue.as_str()).number(max).text(p.owner.as_str());
        let items = self.call_with(shard, &scripts::LEASE, &args, grant).await?;
        let leases = decode::lease(items, self.numbers(shard))?;
        self.known.learn_queue(&p.queue, shard, leases.queue);
        Ok(leases)
    }

    async fn extend(&self, p: &ExtendParams) -> StoreResult<Vec<Extended>> {
        let answers = self
            .by_shard(
                &scripts::EXTEND,
                &p.leases,
                |extension| extension.lease.job,
                |extensions, shards| {
                    let mut args = Args::default();
                    args.span(p.by);
                    for extension in extensions {
                        encode::lease(&mut args, extension.lease, shards);
                        let progress = extension.progress.as_ref().map(run_log::pack_progress);
                        args.bytes(&progress.unwrap_or_default());
                    }
                    args
                },
            )
            .await?;
        answers
            .into_iter()
            .map(|value| match value {
                Value::Int(until) if until >= 0 => Ok(Extended::Until(time(until as u64))),
                _ => Ok(Extended::Stale),
            })
            .collect()
    }

    async fn settle(&self, p: &SettleParams) -> StoreResult<Vec<Settled>> {
        let max_result = self.config().limits.max_result_bytes;
        let answers = self
            .by_shard(
                &scripts::SETTLE,
                &p.answers,
                |answer| answer.lease.job,
                |answers, shards| encode::settle(answers.iter().copied(), max_result, shards),
            )
            .await?;
        answers
            .into_iter()
            .map(|value| decode::settled(&mut Items::of(value)?))
            .collect()
    }

    /// Sends each item to the shard of its job; returns the results in the order of the items.
    async fn by_shard<T: Sync>(
        &self,
        script: &Script,
        items: &[T],
        job: impl Fn(&T) -> JobSeq,
        encode: impl Fn(&[&T], u64) -> Args,
    ) -> StoreResult<Vec<Value>> {
        let shards = u64::from(self.shards);
        let mut parts: Vec<Vec<usize>> = vec![Vec::new(); self.shards as usize];
        for (index, item) in items.iter().enumerate() {
            parts[(job(item).0 % shards) as usize].push(index);
        }
        let mut calls = Vec::new();
        for (shard, part) in parts.iter().enumerate().filter(|(_, part)| !part.is_empty()) {
            let of_shard: Vec<&T> = part.iter().map(|&index| &items[index]).collect();
            let args = encode(&of_shard, shards);
            calls.push(self.answers_of(shard as u32, script, args, part.len()).boxed());
        }
        let mut out = vec![Value::Nil; items.len()];
        let parts = parts.iter().filter(|part| !part.is_empty());
        // Wait for all: one unavailable server must not cancel calls in flight to the others.
        for (part, answers) in parts.zip(join_all(calls).await) {
            for (&index, answer) in part.iter().zip(answers?) {
                out[index] = answer;
            }
        }
        Ok(out)
    }

    async fn answers_of(
        &self,
        shard: u32,
        script: &Script,
        args: Args,
        count: usize,
    ) -> StoreResult<Vec<Value>> {
        let mut answers = self.call(shard, script, &args).await?.items()?;
        (0..count).map(|_| Ok(answers.value()?)).collect()
    }

    async fn release_due(&self, p: &ReleaseDueParams) -> StoreResult<ReleaseDueOutcome> {
        let mut args = Args::default();
        args.number(p.max);
        let mut whole = ReleaseDueOutcome::default();
        for mut items in self.on_all(&scripts::RELEASE_DUE, &args).await? {
            whole.released += items.small()?;
            whole.expired += items.small()?;
            whole.recalled += items.small()?;
            whole.more |= items.flag()?;
            whole.next_due = earliest(whole.next_due, items.maybe()?);
        }
        Ok(whole)
    }

    async fn expire_leases(&self, p: &ExpireLeasesParams) -> StoreResult<ExpireLeasesOutcome> {
        let mut args = Args::default();
        args.number(p.max);
        let mut whole = ExpireLeasesOutcome::default();
        for mut items in self.on_all(&scripts::EXPIRE_LEASES, &args).await? {
            whole.delayed += items.small()?;
            whole.dead += items.small()?;
            whole.next_deadline = earliest(whole.next_deadline, items.maybe()?);
        }
        Ok(whole)
    }

    async fn claim_aggregation(&self, p: &ClaimAggregationParams) -> StoreResult<Vec<Aggregation>> {
        let mut whole = Vec::new();
        for shard in 0..self.shards {
            let left = p.max - whole.len() as u32;
            if left == 0 {
                break;
            }
            let mut args = Args::default();
            args.number(left).span(p.claim_for);
            let mut items = self.call(shard, &scripts::CLAIM_AGGREGATION, &args).await?;
            whole.extend(items.items()?.each(decode::aggregation)?);
        }
        Ok(whole)
    }

    async fn finish_aggregation(
        &self,
        p: FinishAggregationParams,
    ) -> StoreResult<Result<BatchStatus, Refusal>> {
        let mut args = Args::default();
        args.text(p.group.as_str()).text(p.batch.as_str()).big(p.claim);
        match &p.summary {
            Ok(summary) => args.flag(true).bytes(summary),
            Err(error) => args.flag(false).text(error),
        };
        let mut items = self
            .of_group(&scripts::FINISH_AGGREGATION, &p.group, &args)
            .await?;
        let said = items.text()?;
        Ok(match said.as_str() {
            "ok" => Ok(decode::batch_status(items.int()?)?),
            said => Err(decode::refusal(said, &p.group, Some(&p.batch), None)?),
        })
    }

    async fn of_scope(&self, script: &Script, scope: &Scope) -> StoreResult<Result<(), Refusal>> {
        let (group, batch) = names(scope);
        let items = self.of_group(script, group, &encode::scope(scope)).await?;
        plain(items, group, batch)
    }

    async fn cancel(&self, p: CancelParams) -> StoreResult<Result<CancelOutcome, Refusal>> {
        let (group, batch) = names(&p.scope);
        let mut args = encode::scope(&p.scope);
        args.number(p.max);
        let mut items = self.of_group(&scripts::CANCEL, group, &args).await?;
        let said = items.text()?;
        if said != "ok" {
            return Ok(Err(decode::refusal(&said, group, batch, None)?));
        }
        Ok(Ok(CancelOutcome {
            cancelled: items.small()?,
            running: items.small()?,
            more: items.flag()?,
        }))
    }

    async fn configure_group(&self, mut p: ConfigureGroupParams) -> StoreResult<Result<(), Refusal>> {
        if let Some(Err(refusal)) = p.base_priority.map(checked_base_priority) {
            return Ok(Err(refusal));
        }
        let window = self.config().backpressure.window();
        p.limits = match p.limits.map(|limits| limits.checked(window)).transpose() {
            Ok(limits) => limits,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let args = encode::configure_group(&p);
        let items = self.of_group(&scripts::CONFIGURE_GROUP, &p.group, &args).await?;
        plain(items, &p.group, None)
    }

    async fn replay(&self, p: ReplayParams) -> StoreResult<Result<JobSeq, Refusal>> {
        let mut args = Args::default();
        args.text(p.group.as_str()).text(p.job.as_str());
        let shard = self.shard_of(&p.group);
        let mut items = self.call(shard, &scripts::REPLAY, &args).await?;
        Ok(match items.text()?.as_str() {
            "ok" => Ok(self.numbers(shard).job(items.unsigned()?)),
            said => Err(decode::refusal(said, &p.group, None, Some(&p.job))?),
        })
    }

    async fn drop_finished(&self, p: &DropFinishedParams) -> StoreResult<DropFinishedOutcome> {
        let mut whole = DropFinishedOutcome::default();
        let mut left = p.max;
        for shard in 0..self.shards {
            let (batches, groups) = self.known.kept_elsewhere(shard);
            let mut args = Args::default();
            args.number(left).option(p.older_than, |args, age| {
                args.span(age);
            });
            args.big(self.known.finished_elsewhere(shard));
            args.big(batches).big(groups);
            let mut items = self.call(shard, &scripts::DROP_FINISHED, &args).await?;
            let (jobs, batches, groups) = (items.small()?, items.small()?, items.small()?);
            whole.jobs += jobs;
            whole.batches += batches;
            whole.groups += groups;
            whole.more |= items.flag()?;
            self.known.learn_kept(shard, items.unsigned()?, items.unsigned()?);
            left = left.saturating_sub(jobs + batches + groups);
            if left == 0 {
                whole.more = true;
                break;
            }
        }
        Ok(whole)
    }
}

/// Merges the jobs of several shards into one list, each shard's spread evenly over it.
fn in_turn(jobs: Vec<Vec<LeasedJob>>) -> Vec<LeasedJob> {
    let mut all: Vec<(u64, LeasedJob)> = Vec::new();
    for of_shard in jobs {
        let len = of_shard.len() as u64;
        let place = |i: usize| (2 * i as u64 + 1) * 1_000_000 / (2 * len);
        all.extend(of_shard.into_iter().enumerate().map(|(i, job)| (place(i), job)));
    }
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, job)| job).collect()
}

fn names(scope: &Scope) -> (&GroupId, Option<&BatchId>) {
    match scope {
        Scope::Group(group) => (group, None),
        Scope::Batch(group, batch) => (group, Some(batch)),
    }
}

fn plain(mut items: Items, group: &GroupId, batch: Option<&BatchId>) -> StoreResult<Result<(), Refusal>> {
    let said = items.text()?;
    Ok(match said.as_str() {
        "ok" => Ok(()),
        said => Err(decode::refusal(said, group, batch, None)?),
    })
}

fn earliest(so_far: Option<Timestamp>, other: Option<u64>) -> Option<Timestamp> {
    so_far.into_iter().chain(other.map(time)).min()
}

/// Why a call over several shards stopped: the reason that can end soonest.
fn both(one: Stop, other: Stop) -> Stop {
    let rank = |stop: &Stop| match stop {
        Stop::More => 0,
        Stop::Enough => 1,
        Stop::Limited { .. } => 2,
        Stop::Held { .. } => 3,
        Stop::Busy => 4,
        Stop::Full => 5,
        Stop::Empty => 6,
    };
    if rank(&other) < rank(&one) { other } else { one }
}
