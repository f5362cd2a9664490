//! The thread that owns the state machine.
//!
//! It drains its inbox, applies the commands in memory and sends their changes with their outcomes to the
//! committer. Commands that arrive while the committer syncs share the next sync (group commit), so the busier
//! the store, the fewer syncs per command.

use std::sync::{Arc, mpsc as std_mpsc};

use tidegate_core::bulk::{Bulk, Command, Outcome};
use tokio::sync::{mpsc, oneshot};

use super::committer::{CommitBatch, Poison, Reply, Task};
use super::disk::Reader;
use super::encoder::ChangeEncoder;
use crate::{Clock, Notifier, StoreError};

/// Limit: commands in one commit.
const MAX_BATCH: usize = 256;

pub(super) enum Message {
    Apply(Command, Reply),
    Snapshot(oneshot::Sender<Result<Box<dyn Reader>, StoreError>>),
    /// Waits for everything before it, syncs, and ends the threads.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

pub(super) struct Owner {
    pub(super) bulk: Bulk,
    pub(super) encoder: ChangeEncoder,
    pub(super) committer: std_mpsc::SyncSender<Task>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) notifier: Arc<Notifier>,
    /// Proves the state machine's invariants after every batch. For tests: it visits every job.
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
        // The committer ends before this thread only if it panicked; the dropped replies then report "closed".
        let _ = self.committer.send(task);
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
        let mut commit = CommitBatch::default();
        for (command, reply) in commands.drain(..) {
            let outcome = self.bulk.apply(command, now);
            self.encoder.add(self.bulk.take_changes());
            match &outcome {
                Outcome::Lease(lease) if !lease.jobs.is_empty() => {
                    commit.leases.push((reply, outcome, self.bulk.window_end()));
                }
                _ => commit.rest.push((reply, outcome)),
            }
        }
        if self.checked {
            self.bulk.check();
        }
        self.encoder.fill(&mut commit, &self.bulk);
        // Signal before the sync: a woken service sends its command to this thread, which replies after the
        // commit. So a caller that has its reply has also seen its signal.
        self.notifier.notify(self.bulk.take_signals());
        self.hand_over(Task::Write(commit));
    }
}
