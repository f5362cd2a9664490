//! Start-up: rebuilds the state machine from the tables.

use hashbrown::HashMap;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::record::{BatchRecord, GroupRecord, JobProgress, LimitsRecord, RememberedRecord};
use tidegate_core::bulk::restore::{Restore, RestoreError};
use tidegate_core::bulk::{Bulk, Fence, FingerprintKey, JobSeq};
use tidegate_core::time::Timestamp;
use tidegate_durable::codec::{decode, encode};
use tidegate_durable::disk::scan_all;
use tidegate_durable::{Disk, DiskError, DurableError, Op};

use super::codec::{self, Epoch, Identity, Progress, meta_key};
use super::encoder::ChangeEncoder;
use super::tables::{BATCHES, GROUPS, JOBS, LEASES, META, REMEMBERED, STATES};
use crate::StoreError;

fn unreadable(error: DiskError) -> StoreError {
    DurableError::from(error).into()
}

fn contradiction(error: RestoreError) -> StoreError {
    match error {
        RestoreError::Config(error) => StoreError::Config(error.to_string()),
        error => StoreError::Corrupt(error.to_string()),
    }
}

fn meta<T: serde::de::DeserializeOwned>(disk: &dyn Disk, key: u64) -> Result<Option<T>, StoreError> {
    let bytes = disk.get(META, key).map_err(unreadable)?;
    bytes
        .map(|bytes| decode("meta", &bytes).map_err(unreadable))
        .transpose()
}

/// Returns the restored state machine, and the encoder that continues from there. Raises the epoch durably
/// first, so every later fencing token is larger than any before.
pub(super) fn recover(
    disk: &dyn Disk,
    config: BulkConfig,
    fresh_key: FingerprintKey,
    wall: Timestamp,
) -> Result<(Bulk, ChangeEncoder), StoreError> {
    let identity = meta(disk, meta_key::IDENTITY)?.unwrap_or(Identity {
        fingerprint_key: fresh_key,
    });
    let epoch = Epoch(meta::<Epoch>(disk, meta_key::EPOCH)?.unwrap_or_default().0 + 1);
    let progress: Progress = meta(disk, meta_key::PROGRESS)?.unwrap_or_default();

    let mut restore = Restore::new(
        config,
        identity.fingerprint_key,
        progress.clock,
        epoch.first_fence(),
        wall,
    )
    .map_err(contradiction)?;
    if let Some(limits) = meta::<LimitsRecord>(disk, meta_key::LIMITS)? {
        restore.limits(limits);
    }
    restore.spent_until(progress.spent_until);
    restore.used_seq(progress.next_seq.saturating_sub(1));
    disk.commit(vec![
        Op::Put(META, meta_key::IDENTITY, encode(&identity)),
        Op::Put(META, meta_key::EPOCH, encode(&epoch)),
    ])
    .and_then(|()| disk.sync())
    .map_err(|error| DurableError::Poisoned(error.to_string()))?;

    let mut encoder = ChangeEncoder::new(progress);
    let mut failed = None;
    scan_all(disk, GROUPS, |_, bytes| {
        let result = restore.group(&decode::<GroupRecord>("a group", bytes)?);
        result.map_err(|error| stop(&mut failed, error))
    })
    .map_err(|error| failed.take().unwrap_or(unreadable(error)))?;
    scan_all(disk, BATCHES, |_, bytes| {
        let result = restore.batch(&decode::<BatchRecord>("a batch", bytes)?);
        result.map_err(|error| stop(&mut failed, error))
    })
    .map_err(|error| failed.take().unwrap_or(unreadable(error)))?;
    let mut obsolete = Vec::new();
    scan_all(disk, REMEMBERED, |first, bytes| {
        if !restore.remembered(&decode::<RememberedRecord>("ids of dropped jobs", bytes)?) {
            obsolete.push(first);
        }
        Ok(())
    })
    .map_err(unreadable)?;
    obsolete
        .into_iter()
        .for_each(|record| encoder.remembered_over(record));
    let (latest, records) = leases(disk)?;
    jobs(disk, &mut restore, &latest, &mut encoder)?;
    records
        .into_iter()
        .for_each(|record| encoder.lease_record_over(record));
    Ok((restore.finish(), encoder))
}

/// Ends a scan; the caller finds the reason in `failed`.
fn stop(failed: &mut Option<StoreError>, error: RestoreError) -> DiskError {
    let text = DiskError(error.to_string());
    *failed = Some(contradiction(error));
    text
}

/// The latest written lease of each job, with the record that contains it.
type Leases = HashMap<JobSeq, (Fence, u64)>;

fn leases(disk: &dyn Disk) -> Result<(Leases, Vec<u64>), StoreError> {
    let (mut latest, mut records) = (Leases::new(), Vec::new());
    scan_all(disk, LEASES, |record, bytes| {
        records.push(record);
        for lease in codec::decode_leases(bytes) {
            let entry = latest.entry(lease.job).or_insert((lease.fence, record));
            *entry = (*entry).max((lease.fence, record));
        }
        Ok(())
    })
    .map_err(unreadable)?;
    Ok((latest, records))
}

/// Jobs by sequence number, each with its state and its open lease, if any.
fn jobs(
    disk: &dyn Disk,
    restore: &mut Restore,
    latest: &Leases,
    encoder: &mut ChangeEncoder,
) -> Result<(), StoreError> {
    // States are small and few while jobs wait; each is dropped once used.
    let mut states: std::collections::VecDeque<(u64, JobProgress, bool)> = Default::default();
    scan_all(disk, STATES, |seq, bytes| {
        let (mut state, blob) = codec::decode_state(bytes)?;
        // Results stay on disk.
        codec::with_result(&mut state.state, Vec::new());
        states.push_back((seq, state, blob));
        Ok(())
    })
    .map_err(unreadable)?;
    let mut failed = None;
    scan_all(disk, JOBS, |seq, bytes| {
        let job = codec::decode_job(seq, bytes)?;
        while states.front().is_some_and(|(of, ..)| *of < seq) {
            states.pop_front();
        }
        let state = states.pop_front_if(|(of, ..)| *of == seq);
        if job.payload.is_none() {
            encoder.blob_kept(codec::payload_blob(JobSeq(seq)));
        }
        if state.as_ref().is_some_and(|(_, _, blob)| *blob) {
            encoder.blob_kept(codec::result_blob(JobSeq(seq)));
        }
        let settled = state.as_ref().map_or(Fence(0), |(_, state, _)| state.fence);
        let lost = latest.get(&JobSeq(seq)).filter(|(fence, _)| *fence > settled);
        if let Some((_, record)) = lost {
            encoder.lease_kept(*record, JobSeq(seq));
        }
        restore
            .job(
                job.head,
                state.as_ref().map(|(_, state, _)| state),
                lost.map(|(fence, _)| *fence),
            )
            .map_err(|error| stop(&mut failed, error))
    })
    .map_err(|error| failed.take().unwrap_or(unreadable(error)))
}
