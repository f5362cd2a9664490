//! The thread that drops expired records: one partition after the other, a bounded number at a time, so that an append
//! waits only briefly.

use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};

use tidegate_core::time::Timestamp;
use tidegate_durable::{DiskError, DurableError, Reader, ReplyAfter};

use super::place::Place;
use super::tables::RECORDS;
use super::{Shared, codec};
use crate::LogError;

/// Limit: records of one partition dropped in one write.
const MAX_DROPPED: u64 = 1_024;

/// Sweeps until the log is gone.
pub(super) fn run(shared: &Weak<Shared>, stop: &Receiver<()>) {
    while let Some(log) = shared.upgrade() {
        let every = log.settings.sweep_every.into();
        let swept = sweep(&log);
        drop(log);
        match swept {
            Ok(()) => {}
            Err(LogError::Closed | LogError::Durable(_)) => return,
            Err(error) => tracing::warn!(%error, "failed to drop expired records"),
        }
        if !matches!(stop.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    }
}

fn sweep(shared: &Arc<Shared>) -> Result<(), LogError> {
    for place in shared.places() {
        loop {
            let start = shared.visible.state().head(place).unwrap_or_default().start;
            let before = expired(shared, place).map_err(DurableError::from)?;
            if before <= start {
                break;
            }
            let work = move |writer: &mut super::Writer, _: Timestamp| {
                (writer.drop_before(place, before), ReplyAfter::Sync)
            };
            shared.runner()?.blocking_run(work)?;
            if before - start < MAX_DROPPED {
                break;
            }
        }
    }
    Ok(())
}

/// The first offset to retain, within the bound: expired records go, records that every group is done with go sooner.
fn expired(shared: &Shared, place: Place) -> Result<u64, DiskError> {
    let settings = shared.settings.topic(place.topic);
    let now = shared.clock.now();
    let (head, done) = {
        let state = shared.visible.state();
        (
            state.head(place).unwrap_or_default(),
            state.done(place).unwrap_or_default(),
        )
    };
    let bound = head.end.min(head.start + MAX_DROPPED);
    let old = older_than(&*shared.disk, place, head.start..bound, now - settings.retention)?;
    let finished = head.start..bound.min(done).max(head.start);
    let done = older_than(
        &*shared.disk,
        place,
        finished,
        now - settings.completed_retention(),
    )?;
    Ok(old.max(done))
}

/// The first of these offsets that is not older. Times never decrease within a partition, so a binary search finds it.
fn older_than(
    disk: &dyn Reader,
    place: Place,
    offsets: Range<u64>,
    horizon: Timestamp,
) -> Result<u64, DiskError> {
    let (mut low, mut high) = (offsets.start, offsets.end);
    while low < high {
        let middle = low + (high - low) / 2;
        let old = match disk.get(RECORDS, codec::record_key(place, middle))? {
            Some(record) => codec::appended_at(&record)? < horizon,
            None => true,
        };
        if old {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
