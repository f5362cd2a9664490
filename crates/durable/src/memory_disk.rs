//! A durable layer for tests: loses everything unsynced in a power cut, keeps what was committed if only the
//! process is killed, and fails on command.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskError, Op, Reader, Table, Visit};

type Records = BTreeMap<(Table, u64), Vec<u8>>;

#[derive(Debug, Default)]
struct State {
    committed: Records,
    /// Batches since the last sync, oldest first: a power cut keeps a prefix of them.
    unsynced: Vec<Vec<Op>>,
    synced: Records,
    fail_commit: bool,
    fail_sync: bool,
}

/// Clones share the same disk, as successive processes do.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<State>>);

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk after a power cut: everything unsynced is lost, except the oldest `kept` batches, which the
    /// disk had already written. Holders of the old disk write into the void.
    pub fn after_power_cut(&self, kept: usize) -> Self {
        let state = self.state();
        let mut records = state.synced.clone();
        state
            .unsynced
            .iter()
            .take(kept)
            .flatten()
            .for_each(|op| apply(&mut records, op.clone()));
        Self::holding(records)
    }

    /// The disk after `kill -9` of its process: everything committed is there.
    pub fn after_kill(&self) -> Self {
        Self::holding(self.state().committed.clone())
    }

    fn holding(records: Records) -> Self {
        let state = State {
            committed: records.clone(),
            synced: records,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Writes since the last sync.
    pub fn unsynced_batches(&self) -> usize {
        self.state().unsynced.len()
    }

    /// Whether writes fail from now on.
    pub fn fail_commits(&self, fail: bool) {
        self.state().fail_commit = fail;
    }

    /// Whether syncs fail from now on.
    pub fn fail_syncs(&self, fail: bool) {
        self.state().fail_sync = fail;
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.state().committed.len()
    }
}

fn apply(records: &mut Records, op: Op) {
    match op {
        Op::Put(table, key, value) => records.insert((table, key), value),
        Op::Delete(table, key) => records.remove(&(table, key)),
    };
}

fn scan(
    records: &Records,
    table: Table,
    keys: RangeInclusive<u64>,
    visit: Visit<'_>,
) -> Result<(), DiskError> {
    if keys.is_empty() {
        return Ok(());
    }
    for ((_, key), value) in records.range((table, *keys.start())..=(table, *keys.end())) {
        if visit(*key, value)?.is_break() {
            break;
        }
    }
    Ok(())
}

impl Reader for MemoryDisk {
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(self.state().committed.get(&(table, key)).cloned())
    }

    fn scan(&self, table: Table, keys: RangeInclusive<u64>, visit: Visit<'_>) -> Result<(), DiskError> {
        scan(&self.state().committed, table, keys, visit)
    }
}

impl Disk for MemoryDisk {
    fn commit(&self, ops: Vec<Op>) -> Result<(), DiskError> {
        let mut state = self.state();
        if state.fail_commit {
            return Err(DiskError("no space left on device (injected)".into()));
        }
        ops.iter().cloned().for_each(|op| apply(&mut state.committed, op));
        state.unsynced.push(ops);
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        let mut state = self.state();
        if state.fail_sync {
            return Err(DiskError("input/output error (injected)".into()));
        }
        let batches = std::mem::take(&mut state.unsynced);
        batches
            .into_iter()
            .flatten()
            .for_each(|op| apply(&mut state.synced, op));
        Ok(())
    }

    fn snapshot(&self) -> Box<dyn Reader> {
        Box::new(Moment(self.state().committed.clone()))
    }
}

struct Moment(Records);

impl Reader for Moment {
    fn get(&self, table: Table, key: u64) -> Result<Option<Vec<u8>>, DiskError> {
        Ok(self.0.get(&(table, key)).cloned())
    }

    fn scan(&self, table: Table, keys: RangeInclusive<u64>, visit: Visit<'_>) -> Result<(), DiskError> {
        scan(&self.0, table, keys, visit)
    }
}
