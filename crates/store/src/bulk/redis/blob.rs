//! The immutable part of a job on Redis, in one value.
//!
//! ```text
//!   by the script      batch 5, created 6, queue 2
//!   by this program    flags 1, length of id 2, of type 2, [run_at 7], [expires_at 7], [cost 4], id, type, payload
//! ```

use bytes::{Buf, Bytes};
use tidegate_core::bulk::{NewJob, Priority};
use tidegate_core::ids::{JobId, JobType};
use tidegate_core::time::Timestamp;
use tidegate_redis::pack_time;

use crate::StoreError;

pub(super) const RUN_AT: u8 = 4;
pub(super) const EXPIRES_AT: u8 = 8;
/// Jobs that cost one do not say so.
const COST: u8 = 16;

pub(super) fn flags(job: &NewJob) -> u8 {
    let run = job.run_at.map_or(0, |_| RUN_AT);
    let expires = job.expires_at.map_or(0, |_| EXPIRES_AT);
    let cost = if job.cost == 1 { 0 } else { COST };
    job.priority as u8 | run | expires | cost
}

/// The part that this program packs.
pub(super) fn pack(job: &NewJob, payload: &[u8], out: &mut Vec<u8>) {
    let (id, kind) = (job.id.as_str(), job.kind.as_str());
    out.push(flags(job));
    out.extend_from_slice(&(id.len() as u16).to_be_bytes());
    out.extend_from_slice(&(kind.len() as u16).to_be_bytes());
    for time in [job.run_at, job.expires_at].into_iter().flatten() {
        out.extend_from_slice(&pack_time(time));
    }
    if job.cost != 1 {
        out.extend_from_slice(&job.cost.to_be_bytes());
    }
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(payload);
}

/// A job read back.
#[derive(Debug)]
pub(super) struct Blob {
    pub(super) batch: u64,
    pub(super) created_at: Timestamp,
    pub(super) priority: Priority,
    pub(super) run_at: Option<Timestamp>,
    pub(super) expires_at: Option<Timestamp>,
    pub(super) cost: u32,
    pub(super) id: JobId,
    pub(super) kind: JobType,
    pub(super) payload: Bytes,
}

impl Blob {
    pub(super) fn read(mut bytes: Bytes) -> Result<Self, StoreError> {
        let broken = || StoreError::Corrupt("a job's record is too short or has a bad name".into());
        let take = |bytes: &mut Bytes, len: usize| -> Result<Bytes, StoreError> {
            if bytes.remaining() < len {
                return Err(broken());
            }
            Ok(bytes.split_to(len))
        };
        let number = |bytes: &mut Bytes, len: usize| -> Result<u64, StoreError> {
            Ok(take(bytes, len)?.get_uint(len))
        };
        let batch = number(&mut bytes, 5)?;
        let created_at = Timestamp(number(&mut bytes, 6)?);
        number(&mut bytes, 2)?;
        let flags = number(&mut bytes, 1)? as u8;
        let (id_len, kind_len) = (number(&mut bytes, 2)? as usize, number(&mut bytes, 2)? as usize);
        let mut time = |flag: u8| -> Result<Option<Timestamp>, StoreError> {
            Ok(if flags & flag == 0 {
                None
            } else {
                Some(Timestamp(number(&mut bytes, 7)?))
            })
        };
        let (run_at, expires_at) = (time(RUN_AT)?, time(EXPIRES_AT)?);
        let cost = match flags & COST {
            0 => 1,
            _ => number(&mut bytes, 4)? as u32,
        };
        let text = |bytes: Bytes| String::from_utf8(bytes.into()).map_err(|_| broken());
        let id = text(take(&mut bytes, id_len)?)?;
        let kind = text(take(&mut bytes, kind_len)?)?;
        Ok(Self {
            batch,
            created_at,
            priority: Priority::ALL[usize::from(flags & 3).min(2)],
            run_at,
            expires_at,
            cost,
            id: JobId::new(id).map_err(|_| broken())?,
            kind: JobType::new(kind).map_err(|_| broken())?,
            payload: bytes,
        })
    }
}
