//! The thread that owns the state machine.
//!
//! It drains its inbox, applies the commands in memory and hands their changes with their answers to the
//! scribe. Commands that arrive while the scribe syncs share the next sync, so the busier the store, the
//! fewer syncs per command.

use std::sync::{Arc, mpsc as std_mpsc};

use tidegate_core::bulk::{Bulk, Command, Outcome};
use tokio::sync::{mpsc, oneshot};

use super::disk::Reader;
use super::scribe::{Poison, Reply, Sheet, Task};
use super::writer::Writer;
use crate::{Clock, StoreError, Wakeups};

/// Limit: commands on one sheet.
const MAX_BATCH: usize = 256;

pub(super) enum Message {
    Apply(Command, Reply),
    Snapshot(oneshot::Sender<Result<Box<dyn Reader>, StoreError>>),
    /// Waits until everything before it is done, syncs, and ends the threads.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

pub(super) struct Owner {
    pub(super) bulk: Bulk,
    pub(super) writer: Writer,
    pub(super) scribe: std_mpsc::SyncSender<Task>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) wakeups: Arc<Wakeups>,
    /// Proves the state machine's invariants after every batch: for tests, it visits every job.
    pub(super) checked: bool,
    pub(super) poison: Poison,
}

impl Owner {
    pub(super) fn run(mut self, mut inbox: mpsc::Receiver<Message>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        while inbox.blocking_recv_many(&mut messages, MAX_BATCH) > 0 {
            let mut commands = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                let task = match message {
                    Message::Apply(command, reply) => {
                        commands.push((command, reply));
                        continue;
                    }
                    Message::Snapshot(reply) => Task::Snapshot(reply),
                    Message::Close(reply) => Task::Close(reply),
                };
                self.batch(&mut commands);
                let closing = matches!(task, Task::Close(_));
                self.hand_over(task);
                if closing {
                    return;
                }
            }
            self.batch(&mut commands);
        }
    }

    fn hand_over(&self, task: Task) {
        // The scribe ends before this thread only if it panicked; the dropped replies say "closed" then.
        let _ = self.scribe.send(task);
    }

    fn batch(&mut self, commands: &mut Vec<(Command, Reply)>) {
        if commands.is_empty() {
            return;
        }
        if let Some(error) = self.poison.get() {
            for (_, reply) in commands.drain(..) {
                let _ = reply.send(Err(error.clone()));
            }
            return;
        }
        let now = self.clock.now();
        let mut sheet = Sheet::default();
        for (command, reply) in commands.drain(..) {
            let outcome = self.bulk.apply(command, now);
            self.writer.add(self.bulk.take_changes());
            match &outcome {
                Outcome::Lease(lease) if !lease.jobs.is_empty() => {
                    sheet.leases.push((reply, outcome, self.bulk.window_end()));
                }
                _ => sheet.rest.push((reply, outcome)),
            }
        }
        if self.checked {
            self.bulk.check();
        }
        self.writer.fill(&mut sheet, &self.bulk);
        // Before the sync: who is woken by it asks this thread, and is answered after the sheet. So who has
        // heard an answer has heard its bell.
        self.wakeups.ring(self.bulk.take_signals());
        self.hand_over(Task::Write(sheet));
    }
}
