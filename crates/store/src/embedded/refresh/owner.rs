//! The thread that owns the machine and its disk: runs what waits, writes all changes as one batch, syncs once if any
//! of them must be durable, then answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use tidegate_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::super::Durability;
use super::super::codec;
use super::super::disk::{Disk, DiskError, Op, Table};
use super::recover::{CLOCK, Numbers};
use crate::refresh::{Keep, Machine};
use crate::{Clock, StoreError};

/// Limit: calls in one write.
const MAX_BATCH: usize = 256;
/// Limit: records that are looked at per write, to forget those that are idle.
const FORGET: usize = 1_024;
/// Limit: what `buffered` may lose in a power cut while calls keep coming.
const BUFFERED_FOR: Duration = Duration::from_secs(1);

pub(super) type Kept = Result<(), StoreError>;
/// Answers the caller, once it is known whether the changes are kept.
pub(super) type Reply = Box<dyn FnOnce(Kept) + Send>;
pub(super) type Work = Box<dyn FnOnce(&mut Machine, Timestamp) -> Reply + Send>;

pub(super) enum Message {
    Run(Keep, Work),
    /// Waits until everything before it is done, syncs, and ends the thread.
    Close(oneshot::Sender<Kept>),
}

pub(super) struct Owner {
    machine: Machine,
    numbers: Numbers,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    last_sync: Instant,
    /// After a failed write nothing is answered any more: memory is ahead of the disk.
    poison: Option<StoreError>,
}

impl Owner {
    pub(super) fn new(
        machine: Machine,
        numbers: Numbers,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        durability: Durability,
    ) -> Self {
        Self {
            machine,
            numbers,
            disk,
            clock,
            durability,
            last_sync: Instant::now(),
            poison: None,
        }
    }

    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        while inbox.blocking_recv_many(&mut messages, MAX_BATCH) > 0 {
            let mut waiting = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Run(keep, work) => waiting.push((keep, work)),
                    Message::Close(reply) => {
                        self.batch(waiting);
                        let result = self.last_sync();
                        // The lock on the folder goes with the disk; whoever closed may open again at once.
                        drop(self);
                        let _ = reply.send(result);
                        return;
                    }
                }
            }
            self.batch(waiting);
        }
        if let Err(error) = self.last_sync() {
            tracing::error!(%error, "the last sync failed");
        }
    }

    fn last_sync(&mut self) -> Kept {
        match &self.poison {
            Some(error) => Err(error.clone()),
            None => self.disk.sync().map_err(poisoned),
        }
    }

    fn batch(&mut self, waiting: Vec<(Keep, Work)>) {
        let wall = self.clock.now();
        let (mut grants, mut rest) = (Vec::new(), Vec::new());
        let mut must_sync = false;
        for (keep, work) in waiting {
            let before = self.machine.changes();
            let reply = work(&mut self.machine, wall);
            must_sync |= keep == Keep::Synced && self.machine.changes() > before;
            match keep {
                Keep::Granted => grants.push(reply),
                Keep::Synced | Keep::Written => rest.push(reply),
            }
        }
        let kept = match self.poison.clone() {
            Some(error) => Err(error),
            None => self.keep(must_sync, &mut grants),
        };
        if let (Err(error), None) = (&kept, &self.poison) {
            tracing::error!(%error, "the store stops answering");
            self.poison = Some(error.clone());
        }
        // Also those that changed nothing: "already processing" is a promise about what an earlier call did.
        grants
            .into_iter()
            .chain(rest)
            .for_each(|reply| reply(kept.clone()));
    }

    /// Writes what changed. Grants that the durable day covers already are answered before the sync.
    fn keep(&mut self, must_sync: bool, grants: &mut Vec<Reply>) -> Kept {
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
        if !ops.is_empty() {
            self.disk.commit(ops).map_err(poisoned)?;
        }
        let sync = self.durability == Durability::Sync || self.last_sync.elapsed() >= BUFFERED_FOR;
        // A day's count is synced whatever the durability: once per block of calls.
        if day_turns || (must_sync && sync) {
            if !day_turns {
                grants.drain(..).for_each(|reply| reply(Ok(())));
            }
            self.disk.sync().map_err(poisoned)?;
            self.last_sync = Instant::now();
        }
        Ok(())
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

fn poisoned(error: DiskError) -> StoreError {
    StoreError::Poisoned(error.to_string())
}
