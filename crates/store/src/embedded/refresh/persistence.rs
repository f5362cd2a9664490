//! Writes the changes of records and budgets.

use hashbrown::HashSet;
use tidegate_core::time::Timestamp;

use super::super::codec;
use super::super::disk::{Op, Table};
use super::super::runner::{Ops, Persistence};
use super::recover::{CLOCK, Numbers};
use crate::refresh::Machine;

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
                    ops.push(Op::Put(Table::Records, number, codec::encode(&(&record, state))));
                }
                None => ops.extend(
                    self.numbers
                        .forget(&record)
                        .map(|number| Op::Delete(Table::Records, number)),
                ),
            }
            seen.insert(record);
        }
        ops
    }
}

impl Persistence for RefreshPersistence {
    type Machine = Machine;

    fn machine(&mut self) -> &mut Machine {
        &mut self.machine
    }

    fn tell_steady(&mut self, steady: Timestamp) {
        self.machine.tell_steady(steady);
    }

    fn changes(&self) -> usize {
        self.machine.changes()
    }

    /// Syncs a day's count whatever the durability: once per block of calls.
    fn take_ops(&mut self, must_sync: bool) -> Ops {
        self.machine.forget(FORGET);
        let mut ops = self.changed_records();
        let due = self.machine.take_due();
        let day_turns = !due.is_empty();
        for (target, record) in due {
            let number = self.numbers.of_target(&target);
            ops.push(Op::Put(Table::Budgets, number, codec::encode(&(target, record))));
        }
        if must_sync || day_turns {
            ops.push(Op::Put(Table::Meta, CLOCK, codec::encode(&self.machine.clock())));
        }
        Ops {
            ops,
            at_once: day_turns,
        }
    }
}
