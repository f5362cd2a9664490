//! Converts pages of the store to lines of the stream: all groups, all batches, all jobs, shard after shard.
//!
//! Numbers of several shards become numbers of the whole store: `local × shards + shard`, for jobs, batches and
//! groups alike. Leases are omitted: a running job starts again after the import.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::Write;

use tidegate_core::bulk::record::{
    BatchRecord, BatchSeq, GroupRecord, GroupSeq, JobProgress, JobRecord, RunRecord, StoredState,
};
use tidegate_core::bulk::{BatchCounts, BatchOptions, DelayReason, Fence, JobState};
use tidegate_core::ids::Owner;
use tidegate_core::time::Timestamp;
use tidegate_redis::{Args, Items, time};

use super::{Place, StoreResult};
use crate::StoreError;
use crate::bulk::redis::blob::Blob;
use crate::bulk::redis::decode::{self, Numbers};
use crate::bulk::redis::limits::StoredLimits;
use crate::bulk::redis::{run_log, scripts};
use crate::bulk::transfer::{self, Counts, ExportWriter, Line, unwritten};

/// Limit: records per call.
const GROUPS: u32 = 500;
const BATCHES: u32 = 200;
const JOBS: u64 = 1_000;
/// Limit: runs of job numbers per call.
const RUNS: usize = 500;

pub(super) async fn export(place: &Place<'_>, out: impl Write) -> StoreResult<Counts> {
    for (found, shard) in place.overview_all().await?.iter().zip(0..) {
        if found.as_ref().is_some_and(|found| !found.mark.is_empty()) {
            return Err(place.unsuitable(shard, "an import into it is not finished, so it is half a store"));
        }
    }
    let mut writer = ExportWriter::new(out).map_err(unwritten)?;
    let mut items = place.call(0, &scripts::LIMITS, "", &Args::default()).await?;
    let limits = StoredLimits::read(&mut items)?.record;
    if !limits.is_empty() {
        writer.write(&Line::Limits(limits)).map_err(unwritten)?;
    }
    let mut shards: Vec<Shard<'_>> = (0..place.shards).map(|shard| Shard::new(place, shard)).collect();
    for shard in &mut shards {
        shard.groups(&mut writer).await?;
    }
    for shard in &mut shards {
        shard.batches(&mut writer).await?;
    }
    for shard in &mut shards {
        shard.jobs(&mut writer).await?;
    }
    writer.finish().map_err(unwritten)
}

/// First number and count.
type Run = (u64, u64);

struct Shard<'a> {
    place: &'a Place<'a>,
    shard: u32,
    numbers: Numbers,
    /// Groups already written, by the numbers of the shard.
    groups: HashSet<u64>,
    /// Each with the fence of its cancellation, or 0.
    batches: HashMap<u64, u64>,
    runs: Vec<Run>,
}

impl<'a> Shard<'a> {
    fn new(place: &'a Place<'a>, shard: u32) -> Self {
        Self {
            place,
            shard,
            numbers: Numbers {
                shard: shard.into(),
                shards: place.shards.into(),
            },
            groups: HashSet::new(),
            batches: HashMap::new(),
            runs: Vec::new(),
        }
    }

    async fn page(&self, args: &Args) -> StoreResult<Items> {
        self.place.call(self.shard, &scripts::EXPORT, "", args).await
    }

    fn whole(&self, local: u64) -> u64 {
        self.numbers.job(local).0
    }

    async fn groups<W: Write>(&mut self, writer: &mut ExportWriter<W>) -> StoreResult<()> {
        let mut after = None;
        loop {
            let mut args = Args::default();
            args.text("groups").option(after, |args, after| {
                args.big(after);
            });
            let mut items = self.page(args.number(GROUPS)).await?;
            let groups = items.items()?.each(group)?;
            for (local, mut record) in groups {
                record.seq = GroupSeq(self.whole(local));
                self.groups.insert(local);
                after = Some(local);
                writer.write(&Line::Group(record)).map_err(unwritten)?;
            }
            if !items.flag()? {
                return Ok(());
            }
        }
    }

    async fn batches<W: Write>(&mut self, writer: &mut ExportWriter<W>) -> StoreResult<()> {
        let (mut from, mut after) = (0, None);
        loop {
            let mut args = Args::default();
            args.text("batches").big(from).option(after, |args, after| {
                args.big(after);
            });
            let mut items = self.page(args.number(BATCHES)).await?;
            let batches = items.items()?.each(batch)?;
            for mut batch in batches {
                // Its group was created after the groups were written.
                if !self.groups.contains(&batch.group) {
                    continue;
                }
                batch.record.seq = BatchSeq(self.whole(batch.local));
                batch.record.group = GroupSeq(self.whole(batch.group));
                self.batches.insert(batch.local, batch.cancel_fence);
                writer.write(&Line::Batch(batch.record)).map_err(unwritten)?;
                let mut last = batch.runs.last().copied().filter(|_| batch.more_runs);
                self.runs.append(&mut batch.runs);
                while let Some((first, _)) = last {
                    let mut args = Args::default();
                    let mut items = self.page(args.text("runs").big(batch.local).big(first)).await?;
                    let mut more = runs(items.items()?)?;
                    last = more.last().copied();
                    self.runs.append(&mut more);
                    if !items.flag()? {
                        break;
                    }
                }
            }
            let next = (items.maybe()?, items.maybe()?);
            let (Some(group), batch) = next else {
                return Ok(());
            };
            (from, after) = (group, batch);
        }
    }

    async fn jobs<W: Write>(&mut self, writer: &mut ExportWriter<W>) -> StoreResult<()> {
        let mut left = joined(std::mem::take(&mut self.runs));
        loop {
            let asked = some(&mut left);
            if asked.is_empty() {
                return Ok(());
            }
            let mut args = Args::default();
            args.text("jobs");
            for &(first, count) in &asked {
                args.big(first).big(count);
            }
            let mut items = self.page(&args).await?;
            for one in items.items()?.each(|one| job(one, self.numbers))? {
                let Job {
                    batch,
                    record,
                    fence,
                    mut state,
                    runs,
                } = one;
                // Its batch was created after the batches were written.
                let Some(&cancel_fence) = self.batches.get(&batch) else {
                    continue;
                };
                if let Some(state) = &mut state {
                    state.fence = transfer::exported_fence(Fence(fence), Fence(cancel_fence));
                }
                let job = JobRecord {
                    batch: BatchSeq(self.whole(batch)),
                    ..record
                };
                writer.write(&Line::Job { job, state, runs }).map_err(unwritten)?;
            }
            if let Some(next) = items.maybe()? {
                give_back(&mut left, &asked, next);
            }
        }
    }
}

/// Sorted, with adjacent runs merged.
fn joined(mut runs: Vec<Run>) -> VecDeque<Run> {
    runs.sort_unstable();
    let mut out: VecDeque<Run> = VecDeque::new();
    for (first, count) in runs {
        match out.back_mut() {
            Some(last) if last.0 + last.1 == first => last.1 += count,
            _ => out.push_back((first, count)),
        }
    }
    out
}

/// As many as one call may request.
fn some(left: &mut VecDeque<Run>) -> Vec<Run> {
    let (mut asked, mut room) = (Vec::new(), JOBS);
    while room > 0
        && asked.len() < RUNS
        && let Some((first, count)) = left.pop_front()
    {
        let now = count.min(room);
        asked.push((first, now));
        if now < count {
            left.push_front((first + now, count - now));
        }
        room -= now;
    }
    asked
}

/// Returns what a call did not reach: numbers from `next` on.
fn give_back(left: &mut VecDeque<Run>, asked: &[Run], next: u64) {
    for &(first, count) in asked.iter().rev() {
        let from = first.max(next);
        if from < first + count {
            left.push_front((from, first + count - from));
        }
    }
}

fn runs(mut items: Items) -> StoreResult<Vec<Run>> {
    let mut out = Vec::with_capacity(items.len() / 2);
    while !items.is_empty() {
        out.push((items.unsigned()?, items.unsigned()?));
    }
    Ok(out)
}

/// With the shard's number of the group; the caller converts it to the number in the whole store.
fn group(one: &mut Items) -> StoreResult<(u64, GroupRecord)> {
    let local = one.unsigned()?;
    let id = one.name()?;
    let base_priority =
        i32::try_from(one.int()?).map_err(|_| StoreError::Corrupt("a base priority is too large".into()))?;
    let paused = one.flag()?;
    let limits = decode::group_limits(&one.text()?)?;
    let record = GroupRecord {
        seq: GroupSeq(local),
        id,
        base_priority,
        paused,
        limits,
        created_at: one.time()?,
    };
    Ok((local, record))
}

struct Batch {
    local: u64,
    group: u64,
    record: BatchRecord,
    cancel_fence: u64,
    runs: Vec<Run>,
    more_runs: bool,
}

fn batch(one: &mut Items) -> StoreResult<Batch> {
    let (local, group) = (one.unsigned()?, one.unsigned()?);
    let id = one.name()?;
    let options = BatchOptions {
        failure_threshold_percent: one.small()?,
        keep_results: one.flag()?,
        callback: one.maybe_text()?,
    };
    let status = decode::batch_status(one.int()?)?;
    let (sealed, paused, cancelled) = (one.flag()?, one.flag()?, one.flag()?);
    let cancel_fence = one.unsigned()?;
    let (implicit, confirmed) = (one.flag()?, one.flag()?);
    let (created_at, finished_at) = (one.time()?, one.maybe()?.map(Timestamp));
    let mut counts = one.items()?;
    let counts = BatchCounts {
        total: counts.unsigned()?,
        success: counts.unsigned()?,
        failed: counts.unsigned()?,
    };
    let mut texts = one.items()?;
    let errors = (0..texts.len()).map(|_| texts.text()).collect::<Result<_, _>>()?;
    let record = BatchRecord {
        seq: BatchSeq(local),
        group: GroupSeq(group),
        id,
        options,
        status,
        sealed,
        paused,
        cancelled,
        cancel_fence: transfer::exported_cancel_fence(cancelled),
        implicit,
        created_at,
        finished_at,
        counts,
        errors,
        summary: one.maybe_bytes()?,
        confirmed,
    };
    Ok(Batch {
        local,
        group,
        record,
        cancel_fence: if cancelled { cancel_fence } else { 0 },
        runs: runs(one.items()?)?,
        more_runs: one.flag()?,
    })
}

/// A job with the shard's number of its batch, and its fence.
struct Job {
    batch: u64,
    record: JobRecord,
    fence: u64,
    state: Option<JobProgress>,
    runs: Vec<RunRecord>,
}

fn job(one: &mut Items, numbers: Numbers) -> StoreResult<Job> {
    let seq = numbers.job(one.unsigned()?);
    let state = decode::state(one.int()?)?;
    let in_flow = one.int()? != 0;
    let attempts = one.small()?.min(u16::MAX.into()) as u16;
    let throttles = one.small()?.min(u16::MAX.into()) as u16;
    let fence = one.unsigned()?;
    let at = one.time()?;
    let (delay, death) = (
        decode::delay_reason(one.int()?)?,
        decode::death_reason(one.int()?)?,
    );
    let lifted = one.flag()?;
    let blob = Blob::read(one.bytes()?)?;
    let text = one.bytes()?;
    let started = one.unsigned()?;
    let worker = one.text()?;
    let cancelled = one.flag()?;
    let runs = run_log::read(one.bytes()?)?;
    let recorded = runs.last().map_or(0, |run| run.number);
    let run_at = blob.run_at.map(|at| time(at.0));
    let expires_at = blob.expires_at.map(|at| time(at.0));
    let never_started =
        attempts == 0 && throttles == 0 && fence == 0 && !lifted && !cancelled && recorded == 0;
    let state = match state {
        JobState::Completed => StoredState::Completed {
            at,
            started_at: (started > 0).then(|| time(started)),
            worker: Owner::new(worker)
                .map_err(|_| StoreError::Corrupt("a completed job has no worker".into()))?,
            result: text,
        },
        JobState::Dead => StoredState::Dead {
            at,
            reason: death,
            error: String::from_utf8_lossy(&text).into_owned(),
        },
        // Denied by a window: it is in its flow.
        JobState::Delayed if !in_flow => StoredState::Delayed {
            due: at,
            reason: delay,
        },
        _ => StoredState::Waiting,
    };
    let follows_from_record = match &state {
        // One with a time may have been started early.
        StoredState::Waiting => never_started && run_at.is_none(),
        StoredState::Delayed { due, reason } => {
            never_started && *reason == DelayReason::Scheduled && run_at == Some(*due)
        }
        StoredState::Completed { .. } | StoredState::Dead { .. } => false,
    };
    let state = JobProgress {
        attempts,
        throttles,
        runs: recorded,
        fence: Fence::default(),
        priority: blob.priority,
        cancelled,
        expires: expires_at.is_some() && !lifted,
        state,
    };
    let record = JobRecord {
        seq,
        batch: BatchSeq(blob.batch),
        id: blob.id,
        kind: blob.kind,
        priority: blob.priority,
        created_at: blob.created_at,
        run_at,
        expires_at,
        cost: blob.cost,
        payload: blob.payload,
    };
    Ok(Job {
        batch: blob.batch,
        record,
        fence,
        state: (!follows_from_record).then_some(state),
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_asked_for_in_order_and_what_was_not_reached_again() {
        let mut left = joined(vec![(5_000, 10), (1, 4), (5, 2_000)]);
        assert_eq!(left, [(1, 2_004), (5_000, 10)]);
        let asked = some(&mut left);
        assert_eq!(asked, [(1, 1_000)]);
        give_back(&mut left, &asked, 951);
        assert_eq!(left, [(951, 50), (1_001, 1_004), (5_000, 10)]);
        assert_eq!(some(&mut left), [(951, 50), (1_001, 950)]);
        assert_eq!(some(&mut left), [(1_951, 54), (5_000, 10)]);
        assert!(some(&mut left).is_empty());
    }
}
