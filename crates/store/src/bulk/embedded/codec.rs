//! Records as bytes: postcard, with the payload after the head of a job.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::bulk::record::{BatchSeq, JobProgress, JobRecord, RUNS_KEPT, StoredState};
use tidegate_core::bulk::restore::JobHead;
use tidegate_core::bulk::{Fence, FingerprintKey, JobSeq, LeaseRef, Priority};
use tidegate_core::time::{StoreClock, Timestamp};
use tidegate_durable::DiskError;
use tidegate_durable::codec::{decode, encode};

/// Limit: larger payloads and results become blobs, so that start-up does not read them.
pub(super) const INLINE_BYTES: usize = 1_024;

/// Keys of the meta table.
pub(super) mod meta_key {
    pub(in super::super) const IDENTITY: u64 = 0;
    pub(in super::super) const EPOCH: u64 = 1;
    pub(in super::super) const PROGRESS: u64 = 2;
    pub(in super::super) const LIMITS: u64 = 3;
}

/// Created once per store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    pub(super) fingerprint_key: FingerprintKey,
}

/// Raised at every start: fencing tokens of different epochs never collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Epoch(pub(super) u64);

impl Epoch {
    /// Room for 2^40 leases per start.
    pub(super) fn first_fence(self) -> Fence {
        Fence((self.0 << 40) + 1)
    }
}

/// Written with every synced batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) clock: StoreClock,
    /// Starts before this time may have been used.
    pub(super) spent_until: Timestamp,
    pub(super) next_seq: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredJob<'a> {
    batch: BatchSeq,
    #[serde(borrow)]
    id: &'a str,
    #[serde(borrow)]
    kind: &'a str,
    priority: Priority,
    created_at: Timestamp,
    run_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    cost: u32,
    /// The payload is a blob.
    blob: bool,
}

/// Encodes the job without its payload if that is large; then returns the payload as the blob to write with it.
pub(super) fn encode_job(job: &JobRecord) -> (Vec<u8>, Option<Vec<u8>>) {
    let blob = job.payload.len() > INLINE_BYTES;
    let head = StoredJob {
        batch: job.batch,
        id: job.id.as_str(),
        kind: job.kind.as_str(),
        priority: job.priority,
        created_at: job.created_at,
        run_at: job.run_at,
        expires_at: job.expires_at,
        cost: job.cost,
        blob,
    };
    let room = Vec::with_capacity(64 + job.id.as_str().len() + if blob { 0 } else { job.payload.len() });
    let mut bytes = postcard::to_extend(&head, room).expect("plain data always encodes");
    if blob {
        return (bytes, Some(job.payload.to_vec()));
    }
    bytes.extend_from_slice(&job.payload);
    (bytes, None)
}

/// A job as read, borrowing its names.
pub(super) struct ReadJob<'a> {
    pub(super) head: JobHead<'a>,
    /// None: it is a blob.
    pub(super) payload: Option<&'a [u8]>,
}

pub(super) fn decode_job(seq: u64, bytes: &[u8]) -> Result<ReadJob<'_>, DiskError> {
    let (stored, payload) = postcard::take_from_bytes::<StoredJob<'_>>(bytes)
        .map_err(|error| DiskError(format!("job {seq}: {error}")))?;
    Ok(ReadJob {
        head: JobHead {
            seq: JobSeq(seq),
            batch: stored.batch,
            id: stored.id,
            kind: stored.kind,
            priority: stored.priority,
            created_at: stored.created_at,
            run_at: stored.run_at,
            expires_at: stored.expires_at,
            cost: stored.cost,
        },
        payload: (!stored.blob).then_some(payload),
    })
}

#[derive(Debug, Serialize, Deserialize)]
struct EncodedProgress {
    state: JobProgress,
    /// The result is a blob.
    blob: bool,
}

/// Encodes the state without its result if that is large; then returns the result as the blob to write with it.
pub(super) fn encode_state(mut state: JobProgress) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut blob = None;
    if let StoredState::Completed { result, .. } = &mut state.state
        && result.len() > INLINE_BYTES
    {
        blob = Some(std::mem::take(result).to_vec());
    }
    (
        encode(&EncodedProgress {
            state,
            blob: blob.is_some(),
        }),
        blob,
    )
}

/// The state, and whether its result is a blob.
pub(super) fn decode_state(bytes: &[u8]) -> Result<(JobProgress, bool), DiskError> {
    let stored: EncodedProgress = decode("a job's state", bytes)?;
    Ok((stored.state, stored.blob))
}

pub(super) fn encode_leases(leases: &[LeaseRef]) -> Vec<u8> {
    leases
        .iter()
        .flat_map(|l| [l.job.0.to_be_bytes(), l.fence.0.to_be_bytes()])
        .flatten()
        .collect()
}

pub(super) fn decode_leases(bytes: &[u8]) -> impl Iterator<Item = LeaseRef> + '_ {
    let number = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    bytes.chunks_exact(16).map(move |pair| LeaseRef {
        job: JobSeq(number(&pair[..8])),
        fence: Fence(number(&pair[8..])),
    })
}

pub(super) fn payload_blob(job: JobSeq) -> u64 {
    job.0 * 2
}

pub(super) fn result_blob(job: JobSeq) -> u64 {
    job.0 * 2 + 1
}

/// A run takes the place of the one that is no longer kept.
pub(super) fn run_key(job: JobSeq, number: u32) -> u64 {
    job.0 * 16 + u64::from(number % RUNS_KEPT)
}

/// The numbers of the runs that are kept, if so many were recorded.
pub(super) fn runs_kept(recorded: u32) -> std::ops::RangeInclusive<u32> {
    recorded.saturating_sub(RUNS_KEPT - 1).max(1)..=recorded
}

/// Puts the blob of a result back into its state.
pub(super) fn with_result(state: &mut StoredState, blob: Vec<u8>) {
    if let StoredState::Completed { result, .. } = state {
        *result = Bytes::from(blob);
    }
}
