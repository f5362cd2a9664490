//! Converts lines of a stream to steps of the import script. Numbers are reassigned, in the order of the
//! stream.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::BufRead;

use tidegate_core::bulk::NewJob;
use tidegate_core::bulk::record::{
    BatchRecord, GroupRecord, JobProgress, JobRecord, LimitsRecord, RunRecord, StoredState,
};
use tidegate_redis::{Args, Items};

use super::{Place, StoreResult, without_facts};
use crate::StoreError;
use crate::bulk::redis::limits::as_json;
use crate::bulk::redis::{Shared, blob, encode, run_log, scripts, settings};
use crate::bulk::transfer::{Counts, ExportReader, Line};

/// Limit: records and bytes per call.
const RECORDS: u32 = 500;
const BYTES: usize = 1 << 20;
/// Limit: jobs reference their batch in five bytes.
const MAX_BATCH: u64 = 1 << 40;

/// Clears an import that did not finish; if that fails too, the marks stay and show it.
pub(super) async fn import<R: BufRead>(
    place: &Place<'_>,
    shared: &Shared,
    reader: ExportReader<R>,
) -> StoreResult<Counts> {
    let who = format!("{:016x}", RandomState::new().build_hasher().finish());
    let parts = (0..place.shards).map(|_| Part::default()).collect();
    let mut import = Import {
        place,
        shared,
        who,
        parts,
        groups: HashMap::new(),
        batches: HashMap::new(),
    };
    let imported = import.run(reader).await;
    if let Err(error) = &imported
        && let Err(left) = place.clear(&import.who).await
    {
        tracing::warn!(%error, %left, "failed to clear what was imported");
    }
    imported
}

struct Import<'a> {
    place: &'a Place<'a>,
    shared: &'a Shared,
    who: String,
    parts: Vec<Part>,
    /// Numbers in the stream → the shard and the number there.
    groups: HashMap<u64, (u32, u64)>,
    batches: HashMap<u64, (u32, u64)>,
}

/// Data to write to a shard.
#[derive(Default)]
struct Part {
    args: Option<Args>,
    records: u32,
    bytes: usize,
    step: u64,
    next_seq: u64,
}

impl Import<'_> {
    async fn run<R: BufRead>(&mut self, mut reader: ExportReader<R>) -> StoreResult<Counts> {
        for shard in 0..self.place.shards {
            let args = self.step(shard, "begin");
            self.parts[shard as usize].next_seq = self.call(shard, &args).await?.unsigned()?;
        }
        while let Some(line) = reader.next_line()? {
            let shard = match line {
                Line::Group(group) => self.group(&group)?,
                Line::Batch(batch) => self.batch(&batch)?,
                Line::Job { job, state, runs } => self.job(job, state, &runs)?,
                Line::Limits(limits) => {
                    self.limits(&limits).await?;
                    continue;
                }
                Line::Header { .. } | Line::End(_) => continue,
            };
            let part = &self.parts[shard as usize];
            if part.records >= RECORDS || part.bytes >= BYTES {
                self.write(shard).await?;
            }
        }
        for shard in 0..self.place.shards {
            self.write(shard).await?;
            self.drain(shard, "finished").await?;
            self.drain(shard, "flows").await?;
            self.settle_batches(shard).await?;
        }
        for shard in (0..self.place.shards).rev() {
            let args = self.step(shard, "end");
            self.call(shard, &args).await?;
        }
        Ok(reader.counts())
    }

    /// Every shard gets the rates set at run time.
    async fn limits(&mut self, limits: &LimitsRecord) -> StoreResult<()> {
        let (record, overrides) = (as_json(limits)?, settings::overrides(limits));
        for shard in 0..self.place.shards {
            let mut args = self.step(shard, "limits");
            self.call(shard, args.text(&record).text(&overrides)).await?;
        }
        Ok(())
    }

    /// The first arguments of a step.
    fn step(&mut self, shard: u32, what: &str) -> Args {
        let part = &mut self.parts[shard as usize];
        part.step += 1;
        let mut args = Args::default();
        args.text(&self.who).big(part.step).text(what);
        args
    }

    async fn call(&self, shard: u32, args: &Args) -> StoreResult<Items> {
        let items = self.place.call(shard, &scripts::IMPORT, &self.who, args).await?;
        let mut items = without_facts(items)?;
        match items.text()?.as_str() {
            "ok" => Ok(items),
            "full" => Err(self.place.unsuitable(
                shard,
                "somebody has begun to use it; import makes a new store: use another key prefix",
            )),
            "bad" => Err(StoreError::Import(items.text()?)),
            _ => Err(self.place.unsuitable(shard, "another import has taken over")),
        }
    }

    /// The pending arguments of the shard, for one more record.
    fn record(&mut self, shard: u32, bytes: usize) -> &mut Args {
        if self.parts[shard as usize].args.is_none() {
            let args = self.step(shard, "records");
            self.parts[shard as usize].args = Some(args);
        }
        let part = &mut self.parts[shard as usize];
        part.records += 1;
        part.bytes += bytes;
        part.args.get_or_insert_default()
    }

    async fn write(&mut self, shard: u32) -> StoreResult<()> {
        let part = &mut self.parts[shard as usize];
        (part.records, part.bytes) = (0, 0);
        let Some(args) = part.args.take() else {
            return Ok(());
        };
        self.call(shard, &args).await.map(drop)
    }

    async fn drain(&mut self, shard: u32, what: &str) -> StoreResult<()> {
        loop {
            let args = self.step(shard, what);
            if !self.call(shard, &args).await?.flag()? {
                return Ok(());
            }
        }
    }

    async fn settle_batches(&mut self, shard: u32) -> StoreResult<()> {
        let of_shard = self.batches.values().filter(|(of, _)| *of == shard);
        let mut numbers: Vec<u64> = of_shard.map(|(_, number)| *number).collect();
        numbers.sort_unstable();
        for some in numbers.chunks(RECORDS as usize) {
            let mut args = self.step(shard, "batches");
            for &number in some {
                args.big(number);
            }
            self.call(shard, &args).await?;
        }
        Ok(())
    }

    fn give_seq(&mut self, shard: u32) -> u64 {
        let next = &mut self.parts[shard as usize].next_seq;
        *next += 1;
        *next - 1
    }

    fn group(&mut self, group: &GroupRecord) -> StoreResult<u32> {
        let shard = self.shared.shard_of(&group.id);
        let number = self.give_seq(shard);
        if self.groups.insert(group.seq.0, (shard, number)).is_some() {
            return Err(twice("group", group.seq.0));
        }
        let args = self.record(shard, 0);
        args.text("g").big(number).text(group.id.as_str());
        args.number(group.base_priority)
            .big(settings::step(group.base_priority));
        args.flag(group.paused);
        encode::group_limits(args, &group.limits);
        args.big(group.created_at.0);
        Ok(shard)
    }

    fn batch(&mut self, batch: &BatchRecord) -> StoreResult<u32> {
        let Some(&(shard, group)) = self.groups.get(&batch.group.0) else {
            return Err(StoreError::Import(format!(
                "batch {:?} refers to group {:?}, which is missing",
                batch.seq, batch.group
            )));
        };
        // A batch without a name gets one from its number: never that of an existing one.
        let named_after = batch.id.as_str().strip_prefix("auto-");
        let named_after: Option<u64> = named_after.and_then(|number| number.parse().ok());
        if let Some(number) = named_after.filter(|&number| batch.implicit && number < MAX_BATCH / 2) {
            let next = &mut self.parts[shard as usize].next_seq;
            *next = number.max(*next);
        }
        let number = self.give_seq(shard);
        if number >= MAX_BATCH {
            return Err(StoreError::Import(format!(
                "number {number} is beyond {MAX_BATCH}"
            )));
        }
        if self.batches.insert(batch.seq.0, (shard, number)).is_some() {
            return Err(twice("batch", batch.seq.0));
        }
        let summary = batch.summary.as_deref();
        let args = self.record(shard, summary.map_or(0, <[u8]>::len));
        args.text("a").big(number).big(group).text(batch.id.as_str());
        args.number(batch.options.failure_threshold_percent)
            .flag(batch.options.keep_results)
            .text(batch.options.callback.as_deref().unwrap_or_default())
            .flag(batch.implicit)
            .number(batch.status as i64);
        args.flag(batch.sealed)
            .flag(batch.paused)
            .flag(batch.cancelled)
            .big(batch.cancel_fence.0)
            .flag(batch.confirmed);
        args.big(batch.created_at.0)
            .option(batch.finished_at, |args, at| {
                args.big(at.0);
            });
        let counts = batch.counts;
        args.big(counts.total).big(counts.success).big(counts.failed);
        args.number(batch.errors.len() as i64);
        for error in &batch.errors {
            args.text(error);
        }
        args.flag(summary.is_some()).bytes(summary.unwrap_or_default());
        Ok(shard)
    }

    fn job(&mut self, job: JobRecord, progress: Option<JobProgress>, runs: &[RunRecord]) -> StoreResult<u32> {
        let Some(&(shard, batch)) = self.batches.get(&job.batch.0) else {
            return Err(StoreError::Import(format!(
                "job {:?} refers to batch {:?}, which is missing",
                job.seq, job.batch
            )));
        };
        if job.cost != 1 && self.place.shards > 1 {
            return Err(StoreError::Import(format!(
                "job {:?} costs {}, and a store with {} shards takes only jobs that cost 1",
                job.id, job.cost, self.place.shards
            )));
        }
        let number = self.give_seq(shard);
        let created_at = job.created_at;
        let job = NewJob {
            id: job.id,
            kind: job.kind,
            // The record keeps the priority here.
            priority: progress
                .as_ref()
                .map_or(job.priority, |progress| progress.priority),
            payload: job.payload,
            run_at: job.run_at,
            expires_at: job.expires_at,
            cost: job.cost,
        };
        let mut packed = Vec::new();
        blob::pack(&job, &job.payload, &mut packed);
        let args = self.record(shard, packed.len());
        args.text("j").big(number).big(batch).big(created_at.0);
        args.text(job.kind.as_str()).bytes(&packed);
        let Some(progress) = progress else {
            args.text("").big(0).big(0).big(0).flag(true);
            args.option(job.run_at, |args, at| {
                args.big(at.0);
            });
            args.text("").text("");
            args.big(0).text("").flag(false).text("");
            return Ok(shard);
        };
        let (state, at, reason, text): (_, _, _, &[u8]) = match &progress.state {
            StoredState::Waiting => ("w", None, 0, b""),
            StoredState::Delayed { due, reason } => ("l", Some(due), *reason as i64, b""),
            StoredState::Completed { at, result, .. } => ("d", Some(at), 0, result),
            StoredState::Dead { at, reason, error } => ("x", Some(at), *reason as i64, error.as_bytes()),
        };
        args.text(state)
            .number(progress.attempts)
            .number(progress.throttles);
        // A job with a state has been leased before.
        args.big(progress.fence.0.max(1)).flag(progress.expires);
        args.option(at, |args, at| {
            args.big(at.0);
        });
        args.number(reason).bytes(text);
        let (started, worker) = match &progress.state {
            StoredState::Completed {
                started_at, worker, ..
            } => (started_at.unwrap_or_default().0, worker.as_str()),
            _ => (0, ""),
        };
        let runs = run_log::pack(runs);
        args.big(started)
            .text(worker)
            .flag(progress.cancelled)
            .bytes(&runs);
        self.parts[shard as usize].bytes += text.len() + runs.len();
        Ok(shard)
    }
}

fn twice(what: &str, number: u64) -> StoreError {
    StoreError::Import(format!("the number {number} of a {what} occurs twice"))
}
