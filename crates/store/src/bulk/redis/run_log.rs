//! The recorded runs of a job on Redis, in one value.
//!
//! ```text
//!   for each: number 4, began 7 (or 0), ended 7, how it ended 1, length of worker 2, of error 2, worker, error
//! ```

use bytes::{Buf, Bytes};
use tidegate_core::bulk::Progress;
use tidegate_core::bulk::record::{RunOutcome, RunRecord};
use tidegate_core::ids::Owner;
use tidegate_redis::{pack_time, time};

use crate::StoreError;

const HEAD: usize = 23;

fn broken() -> StoreError {
    StoreError::Corrupt("the runs of a job are cut off, or have a bad name".into())
}

/// In the order of their numbers in the scripts.
const OUTCOMES: [RunOutcome; 5] = [
    RunOutcome::Completed,
    RunOutcome::Failed,
    RunOutcome::Retry,
    RunOutcome::Throttled,
    RunOutcome::LeaseExpired,
];

pub(super) fn read(mut bytes: Bytes) -> Result<Vec<RunRecord>, StoreError> {
    let mut runs = Vec::new();
    while bytes.has_remaining() {
        if bytes.remaining() < HEAD {
            return Err(broken());
        }
        let number = bytes.get_u32();
        let (began, ended) = (bytes.get_uint(7), bytes.get_uint(7));
        let outcome = usize::from(bytes.get_u8());
        let (worker, error) = (usize::from(bytes.get_u16()), usize::from(bytes.get_u16()));
        if bytes.remaining() < worker + error {
            return Err(broken());
        }
        let worker = String::from_utf8_lossy(&bytes.split_to(worker)).into_owned();
        let error = String::from_utf8_lossy(&bytes.split_to(error)).into_owned();
        runs.push(RunRecord {
            number,
            started_at: (began > 0).then(|| time(began)),
            ended_at: time(ended),
            worker: Owner::new(worker).map_err(|_| broken())?,
            outcome: *OUTCOMES.get(outcome).ok_or_else(broken)?,
            error: Some(error).filter(|error| !error.is_empty()),
        });
    }
    Ok(runs)
}

pub(super) fn pack(runs: &[RunRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    for run in runs {
        let error = run.error.as_deref().unwrap_or_default();
        out.extend_from_slice(&run.number.to_be_bytes());
        out.extend_from_slice(&pack_time(run.started_at.unwrap_or_default()));
        out.extend_from_slice(&pack_time(run.ended_at));
        out.push(run.outcome as u8);
        out.extend_from_slice(&(run.worker.as_str().len() as u16).to_be_bytes());
        out.extend_from_slice(&(error.len() as u16).to_be_bytes());
        out.extend_from_slice(run.worker.as_str().as_bytes());
        out.extend_from_slice(error.as_bytes());
    }
    out
}

/// Percent, then the text; empty if there is none.
pub(super) fn read_progress(mut bytes: Bytes) -> Option<Progress> {
    bytes.has_remaining().then(|| Progress {
        percent: bytes.get_u8(),
        text: String::from_utf8_lossy(&bytes).into_owned(),
    })
}

pub(super) fn pack_progress(progress: &Progress) -> Vec<u8> {
    let progress = progress.clone().bounded();
    let mut out = vec![progress.percent];
    out.extend_from_slice(progress.text.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use tidegate_core::time::Timestamp;

    use super::*;

    #[test]
    fn what_is_packed_is_read_back() {
        let run = |number, error: Option<&str>| RunRecord {
            number,
            started_at: (number > 1).then_some(Timestamp(5)),
            ended_at: Timestamp(1_706_000_000_000),
            worker: Owner::new("worker").unwrap(),
            outcome: RunOutcome::LeaseExpired,
            error: error.map(str::to_owned),
        };
        let runs = vec![run(1, None), run(2, Some("Connection reset"))];
        assert_eq!(read(pack(&runs).into()).unwrap(), runs);
        assert!(read(Bytes::from_static(b"short")).is_err());
    }
}
