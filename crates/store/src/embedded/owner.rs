//! The thread that owns the state machine.
//!
//! It drains its inbox, applies the commands in memory, writes all their changes as one atomic batch,
//! syncs once if anything in it must be durable, then answers. Commands that arrive while it syncs make
//! up the next batch, so the busier the store, the fewer syncs per command.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::bulk::{Bulk, Command, Outcome, Signals};
use tokio::sync::{mpsc, oneshot};

use super::Durability;
use super::disk::{Disk, Reader};
use super::writer::Writer;
use crate::{Clock, StoreError, Wakeups};

/// Limit: commands in one batch.
const MAX_BATCH: usize = 256;

/// Limit: what `buffered` may lose in a power cut while commands keep coming.
const BUFFERED_FOR: Duration = Duration::from_secs(1);

pub(super) type Reply = oneshot::Sender<Result<Outcome, StoreError>>;

pub(super) enum Message {
    Apply(Command, Reply),
    Snapshot(oneshot::Sender<Result<Box<dyn Reader>, StoreError>>),
    /// Waits until everything before it is done, syncs, and ends the thread.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

pub(super) struct Owner {
    pub(super) bulk: Bulk,
    pub(super) writer: Writer,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakeups: Arc<Wakeups>,
    pub(super) durability: Durability,
    pub(super) last_sync: Instant,
    /// Proves the state machine's invariants after every batch: for tests, it visits every job.
    pub(super) checked: bool,
    /// After a failed write nothing is answered any more: memory is ahead of the disk.
    pub(super) poisoned: Option<StoreError>,
}

/// Answers that wait for the batch.
#[derive(Default)]
struct Answers {
    /// Leases in a window that is known on disk to be in use: after the write, before the sync.
    leases: Vec<(Reply, Outcome)>,
    /// After the sync, if the batch needs one. Also those that changed nothing: "duplicate" and "stale" are
    /// promises about what an earlier command of the same batch did.
    rest: Vec<(Reply, Outcome)>,
}

impl Owner {
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        while inbox.blocking_recv_many(&mut messages, MAX_BATCH) > 0 {
            let mut commands = Vec::with_capacity(messages.len());
            let mut close = None;
            for message in messages.drain(..) {
                match message {
                    Message::Apply(command, reply) => commands.push((command, reply)),
                    Message::Snapshot(reply) => {
                        self.batch(&mut commands);
                        let snapshot = match &self.poisoned {
                            Some(error) => Err(error.clone()),
                            None => Ok(self.disk.snapshot()),
                        };
                        // Nobody waits any more: nothing to do about it.
                        let _ = reply.send(snapshot);
                    }
                    Message::Close(reply) => close = Some(reply),
                }
            }
            self.batch(&mut commands);
            if let Some(reply) = close {
                let result = self.sync();
                // The lock on the folder goes with the disk; whoever closed may open again at once.
                drop(self);
                let _ = reply.send(result);
                return;
            }
        }
        if let Err(error) = self.sync() {
            tracing::error!(%error, "the last sync failed");
        }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        match &self.poisoned {
            Some(error) => Err(error.clone()),
            None => self
                .disk
                .sync()
                .map_err(|error| StoreError::Poisoned(error.to_string())),
        }
    }

    fn batch(&mut self, commands: &mut Vec<(Command, Reply)>) {
        if commands.is_empty() {
            return;
        }
        if let Some(error) = &self.poisoned {
            for (_, reply) in commands.drain(..) {
                let _ = reply.send(Err(error.clone()));
            }
            return;
        }
        let now = self.clock.now();
        let mut answers = Answers::default();
        let mut leased = false;
        for (command, reply) in commands.drain(..) {
            let outcome = self.bulk.apply(command, now);
            self.writer.add(self.bulk.take_changes());
            match &outcome {
                Outcome::Lease(lease) if !lease.jobs.is_empty() => {
                    leased = true;
                    let open = self.writer.window_is_open(&self.bulk);
                    let answers = if open {
                        &mut answers.leases
                    } else {
                        &mut answers.rest
                    };
                    answers.push((reply, outcome));
                }
                _ => answers.rest.push((reply, outcome)),
            }
        }
        if self.checked {
            self.bulk.check();
        }
        let signals = self.bulk.take_signals();
        let result = self.write(leased, signals, &mut answers);
        if let Err(error) = result {
            tracing::error!(%error, "the store stops answering");
            for (reply, _) in answers.leases.drain(..).chain(answers.rest.drain(..)) {
                let _ = reply.send(Err(error.clone()));
            }
            self.poisoned = Some(error);
        }
    }

    fn write(&mut self, leased: bool, signals: Signals, answers: &mut Answers) -> Result<(), StoreError> {
        let poisoned = |error: super::disk::DiskError| StoreError::Poisoned(error.to_string());
        let (ops, must_sync) = self.writer.take(&self.bulk, leased);
        if !ops.is_empty() {
            self.disk.commit(ops).map_err(poisoned)?;
        }
        let due = self.durability == Durability::Sync || self.last_sync.elapsed() >= BUFFERED_FOR;
        if must_sync && due {
            answer(&mut answers.leases);
            self.disk.sync().map_err(poisoned)?;
            self.last_sync = Instant::now();
        }
        // Before the answers, so that who has heard an answer has heard its bell.
        self.wakeups.ring(signals);
        answer(&mut answers.leases);
        answer(&mut answers.rest);
        Ok(())
    }
}

fn answer(answers: &mut Vec<(Reply, Outcome)>) {
    for (reply, outcome) in answers.drain(..) {
        // Whoever asked may be gone; what it asked for is done all the same.
        let _ = reply.send(Ok(outcome));
    }
}
