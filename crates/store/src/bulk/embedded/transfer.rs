//! export and import of the embedded store.

use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;

use bytes::Bytes;
use hashbrown::HashMap;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::record::{
    BatchRecord, BatchSeq, GroupRecord, JobProgress, JobRecord, LimitsRecord, RunRecord,
};
use tidegate_core::bulk::{Fence, JobSeq};
use tidegate_core::ids::{JobId, JobType};
use tidegate_core::time::Timestamp;
use tidegate_durable::codec::{decode, encode};
use tidegate_durable::disk::scan_all;
use tidegate_durable::{Disk, DiskError, DurableError, Op, Reader, folder};

use super::super::transfer::{self, Counts, ExportWriter, Line, unwritten};
use super::codec::{self, Progress, meta_key};
use super::tables::{self, BATCHES, BLOBS, GROUPS, JOBS, META, RUNS, STATES};
use super::{EmbeddedBulkStore, FOLDER, recover};
use crate::StoreError;

/// Limit: numbers are exact in a double, for backends that have nothing else.
const MAX_SEQ: u64 = 1 << 53;

/// Records written at once during an import.
const IMPORT_BATCH: usize = 1_000;

impl EmbeddedBulkStore {
    /// Writes everything that was acknowledged before the call, while the store keeps running.
    pub async fn export(&self, out: impl Write) -> Result<Counts, StoreError> {
        export(&*self.snapshot().await?, out)
    }

    /// Creates a data folder from a stream. The folder appears once the import is complete.
    pub fn import(path: &Path, input: impl BufRead) -> Result<Counts, StoreError> {
        let failed = |reason: String| DurableError::Folder {
            path: path.to_owned(),
            reason,
        };
        if path.exists() && !path.is_dir() {
            return Err(failed("it is a file; import makes a new data folder".into()).into());
        }
        if path.exists() && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(failed("it is not empty; import makes a new data folder".into()).into());
        }
        let mut name = path
            .file_name()
            .ok_or_else(|| failed("it has no name".into()))?
            .to_owned();
        name.push(format!(".importing-{}", std::process::id()));
        let beside = path.with_file_name(name);
        if beside.exists() {
            return Err(failed(format!("{} is in the way", beside.display())).into());
        }
        let disk = folder::open(&beside, FOLDER, &tables::ALL)?;
        // The imported store must also open.
        let counts = import(&disk, input).and_then(|counts| {
            recover::recover(&disk, BulkConfig::default(), (0, 0), Timestamp(0)).map(|_| counts)
        });
        drop(disk);
        let counts = counts.inspect_err(|_| {
            // Report the stream's error, not this one.
            let _ = fs::remove_dir_all(&beside);
        })?;
        fs::rename(&beside, path)
            .and_then(|()| fs::File::open(path)?.sync_all())
            .map_err(|error| failed(error.to_string()))?;
        Ok(counts)
    }
}

fn export(from: &dyn Reader, out: impl Write) -> Result<Counts, StoreError> {
    let mut writer = ExportWriter::new(out).map_err(unwritten)?;
    if let Some(bytes) = from.get(META, meta_key::LIMITS).map_err(DurableError::from)? {
        let limits = decode::<LimitsRecord>("the limits", &bytes).map_err(DurableError::from)?;
        writer.write(&Line::Limits(limits)).map_err(unwritten)?;
    }
    // A scan carries only its own errors; an error of the stream waits here.
    let mut failed = None;
    let mut write = |line: &Line| {
        writer.write(line).map_err(|error| {
            let text = DiskError(error.to_string());
            failed = Some(unwritten(error));
            text
        })
    };
    let mut cancelled: HashMap<BatchSeq, Fence> = HashMap::new();
    let scanned = scan_all(from, GROUPS, |_, bytes| {
        write(&Line::Group(decode::<GroupRecord>("a group", bytes)?))
    })
    .and_then(|()| {
        scan_all(from, BATCHES, |_, bytes| {
            let mut batch = decode::<BatchRecord>("a batch", bytes)?;
            if batch.cancelled {
                cancelled.insert(batch.seq, batch.cancel_fence);
            }
            batch.cancel_fence = transfer::exported_cancel_fence(batch.cancelled);
            write(&Line::Batch(batch))
        })
    })
    .and_then(|()| {
        scan_all(from, JOBS, |seq, bytes| {
            let job = whole_job(from, seq, bytes)?;
            let cancel_fence = cancelled.get(&job.batch).copied().unwrap_or_default();
            let state = whole_state(from, seq, cancel_fence)?;
            let runs = runs_of(from, JobSeq(seq), state.as_ref())?;
            write(&Line::Job { job, state, runs })
        })
    });
    scanned.map_err(|error| failed.unwrap_or(DurableError::from(error).into()))?;
    writer.finish().map_err(unwritten)
}

fn whole_job(from: &dyn Reader, seq: u64, bytes: &[u8]) -> Result<JobRecord, DiskError> {
    let job = codec::decode_job(seq, bytes)?;
    let payload = match job.payload {
        Some(inline) => Bytes::copy_from_slice(inline),
        None => from
            .get(BLOBS, codec::payload_blob(JobSeq(seq)))?
            .ok_or_else(|| DiskError(format!("job {seq} lost its payload")))?
            .into(),
    };
    let named = |error: tidegate_core::ids::IdError| DiskError(error.to_string());
    Ok(JobRecord {
        seq: JobSeq(seq),
        batch: job.head.batch,
        id: JobId::new(job.head.id).map_err(named)?,
        kind: JobType::new(job.head.kind).map_err(named)?,
        priority: job.head.priority,
        created_at: job.head.created_at,
        run_at: job.head.run_at,
        expires_at: job.head.expires_at,
        cost: job.head.cost,
        payload,
    })
}

fn whole_state(from: &dyn Reader, seq: u64, cancel_fence: Fence) -> Result<Option<JobProgress>, DiskError> {
    let Some(bytes) = from.get(STATES, seq)? else {
        return Ok(None);
    };
    let (mut state, blob) = codec::decode_state(&bytes)?;
    state.fence = transfer::exported_fence(state.fence, cancel_fence);
    if blob && let Some(result) = from.get(BLOBS, codec::result_blob(JobSeq(seq)))? {
        codec::with_result(&mut state.state, result);
    }
    Ok(Some(state))
}

fn runs_of(from: &dyn Reader, job: JobSeq, state: Option<&JobProgress>) -> Result<Vec<RunRecord>, DiskError> {
    let mut runs = Vec::new();
    for number in codec::runs_kept(state.map_or(0, |state| state.runs)) {
        if let Some(bytes) = from.get(RUNS, codec::run_key(job, number))? {
            runs.push(decode("a run", &bytes)?);
        }
    }
    Ok(runs)
}

fn import(disk: &dyn Disk, input: impl BufRead) -> Result<Counts, StoreError> {
    let mut ops = Vec::new();
    let mut last_seq = 0;
    let poisoned = |error: DiskError| DurableError::Poisoned(error.to_string());
    let counts = transfer::read(input, |line| {
        last_seq = last_seq.max(add(&mut ops, line));
        if last_seq > MAX_SEQ {
            return Err(StoreError::Import(format!(
                "number {last_seq} is beyond {MAX_SEQ}"
            )));
        }
        if ops.len() >= IMPORT_BATCH {
            disk.commit(std::mem::take(&mut ops)).map_err(poisoned)?;
        }
        Ok(())
    })?;
    // Fencing tokens of the imported jobs come from another store: treat them as from an earlier epoch.
    let progress = Progress {
        next_seq: last_seq + 1,
        ..Progress::default()
    };
    ops.push(Op::Put(META, meta_key::PROGRESS, encode(&progress)));
    disk.commit(ops).and_then(|()| disk.sync()).map_err(poisoned)?;
    Ok(counts)
}

fn add(ops: &mut Vec<Op>, line: Line) -> u64 {
    match line {
        Line::Group(group) => {
            ops.push(Op::Put(GROUPS, group.seq.0, encode(&group)));
            group.seq.0
        }
        Line::Batch(batch) => {
            ops.push(Op::Put(BATCHES, batch.seq.0, encode(&batch)));
            batch.seq.0
        }
        Line::Job { job, state, runs } => {
            for run in runs {
                ops.push(Op::Put(RUNS, codec::run_key(job.seq, run.number), encode(&run)));
            }
            let (record, blob) = codec::encode_job(&job);
            ops.push(Op::Put(JOBS, job.seq.0, record));
            ops.extend(blob.map(|blob| Op::Put(BLOBS, codec::payload_blob(job.seq), blob)));
            if let Some(state) = state {
                let (record, blob) = codec::encode_state(state);
                ops.push(Op::Put(STATES, job.seq.0, record));
                ops.extend(blob.map(|blob| Op::Put(BLOBS, codec::result_blob(job.seq), blob)));
            }
            job.seq.0
        }
        Line::Limits(limits) => {
            ops.push(Op::Put(META, meta_key::LIMITS, encode(&limits)));
            0
        }
        Line::Header { .. } | Line::End(_) => 0,
    }
}
