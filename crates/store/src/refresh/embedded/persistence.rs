//! Writes the changes of records and budgets.

use hashbrown::HashSet;
use tidegate_core::time::Timestamp;
use tidegate_durable::{Changes, Op, Persist, ReplyNeeds, SyncNeed, codec};

use super::super::Machine;
use super::recover::{CLOCK, Numbers};
use super::tables::{BUDGETS, META, RECORDS};

/// Limit: records inspected per write, to forget idle ones.
const FORGET: usize = 1_024;

pub(super) struct RefreshPersistence {
    machine: Machine,
    numbers: Numbers,
}

impl RefreshPersistence {
    pub(super) fn new(machine: Machine, numbers: Numbers) -> Self {
        Self { machine, numbers }
    }

    fn changed_records(&mut self) -> Vec<Op> {
        let mut seen = HashSet::new();
        let mut ops = Vec::new();
        for record in self.machine.take_changed() {
            if seen.contains(&record) {
                continue;
            }
            match self.machine.record(&record) {
                Some(state) => {
                    let number = self.numbers.of_record(&record);
                    ops.push(Op::Put(RECORDS, number, codec::encode(&(&record, state))));
                }
                None => ops.extend(
                    self.numbers
                        .forget(&record)
                        .map(|number| Op::Delete(RECORDS, number)),
                ),
            }
            seen.insert(record);
        }
        ops
    }
}

impl Persist for RefreshPersistence {
    type State = Machine;

    fn state(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn set_steady(&mut self, steady: Timestamp) {
        self.machine.set_steady(steady);
    }

    fn changes(&self) -> u64 {
        self.machine.changes()
    }

    /// Syncs a day's count whatever the durability: once per block of calls.
    fn take_changes(&mut self, needs: ReplyNeeds) -> Changes {
        self.machine.forget(FORGET);
        let mut ops = self.changed_records();
        let due = self.machine.take_due();
        let sync = match (due.is_empty(), needs.sync) {
            (false, _) => SyncNeed::Always,
            (true, true) => SyncNeed::AsConfigured,
            (true, false) => SyncNeed::None,
        };
        for (target, record) in due {
            let number = self.numbers.of_target(&target);
            ops.push(Op::Put(BUDGETS, number, codec::encode(&(target, record))));
        }
        if sync != SyncNeed::None {
            ops.push(Op::Put(META, CLOCK, codec::encode(&self.machine.clock())));
        }
        Changes {
            ops,
            sync,
            mark: Some(self.machine.mark()),
            publish: None,
        }
    }
}
