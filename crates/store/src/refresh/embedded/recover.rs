//! Start-up: reads back the records, and the number of each record on disk.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use tidegate_core::budget::BudgetRecord;
use tidegate_core::ids::{RecordId, TargetId};
use tidegate_core::refresh::coalescer::RecordState;
use tidegate_core::time::{StoreClock, Timestamp};
use tidegate_durable::disk::scan_all;
use tidegate_durable::{Disk, DurableError, codec};

use super::super::{Machine, RefreshSettings};
use super::tables::{BUDGETS, META, RECORDS};

/// Key of the clock in the meta table.
pub(super) const CLOCK: u64 = 0;

/// Table keys are numbers: maps each record and target to its number.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    records: HashMap<RecordId, u64>,
    targets: HashMap<TargetId, u64>,
    next: u64,
}

impl Numbers {
    fn used(&mut self, number: u64) {
        self.next = self.next.max(number + 1);
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn of_record(&mut self, record: &RecordId) -> u64 {
        match self.records.get(record) {
            Some(&number) => number,
            None => {
                let number = self.fresh();
                self.records.insert(record.clone(), number);
                number
            }
        }
    }

    pub(super) fn of_target(&mut self, target: &TargetId) -> u64 {
        match self.targets.get(target) {
            Some(&number) => number,
            None => {
                let number = self.fresh();
                self.targets.insert(target.clone(), number);
                number
            }
        }
    }

    /// None if it was never written.
    pub(super) fn forget(&mut self, record: &RecordId) -> Option<u64> {
        self.records.remove(record)
    }
}

/// The restored machine. Its budgets start empty and grant nothing at first, because recent grants are unknown.
pub(super) fn recover(
    disk: &dyn Disk,
    settings: RefreshSettings,
    wall: Timestamp,
) -> Result<(Machine, Numbers), DurableError> {
    let mut numbers = Numbers::default();
    let clock = match disk.get(META, CLOCK)? {
        Some(bytes) => codec::decode::<StoreClock>("the clock", &bytes)?,
        None => StoreClock::default(),
    };
    let mut budgets = BTreeMap::new();
    scan_all(disk, BUDGETS, |number, bytes| {
        let (target, record): (TargetId, BudgetRecord) = codec::decode("a budget", bytes)?;
        numbers.used(number);
        numbers.targets.insert(target.clone(), number);
        budgets.insert(target, record);
        Ok(())
    })?;
    let mut machine = Machine::new(settings, clock, &budgets, wall);
    scan_all(disk, RECORDS, |number, bytes| {
        let (record, state): (RecordId, RecordState) = codec::decode("a refreshed record", bytes)?;
        numbers.used(number);
        numbers.records.insert(record.clone(), number);
        machine.restore(record, state);
        Ok(())
    })?;
    Ok((machine, numbers))
}
