//! The thread that writes to the disk and replies (group commit).
//!
//! The owner thread sends it commits: the changes of some commands and their outcomes. The committer writes all
//! waiting commits as one atomic batch, syncs once if any of them must be durable, then replies. While it
//! syncs, the owner thread continues with incoming commands.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use tidegate_core::bulk::Outcome;
use tidegate_core::time::Timestamp;
use tokio::sync::oneshot;

use super::Durability;
use super::disk::{Disk, DiskError, Op, Reader};
use crate::StoreError;

/// Limit: waiting commits. At the limit the owner thread waits, too, and the inbox fills.
pub(super) const MAX_WAITING: usize = 16;

/// Limit: what `buffered` may lose in a power cut while commands keep coming.
const BUFFERED_FOR: Duration = Duration::from_secs(1);

pub(super) type Reply = oneshot::Sender<Result<Outcome, StoreError>>;

/// After a failed write the store rejects every call: memory is ahead of the disk.
pub(super) type Poison = Arc<OnceLock<StoreError>>;

/// Tasks of the owner thread, executed in this order.
pub(super) enum Task {
    Write(CommitBatch),
    Snapshot(oneshot::Sender<Result<Box<dyn Reader>, StoreError>>),
    /// Syncs and ends the thread.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

/// Changes and the replies that wait for them.
#[derive(Default)]
pub(super) struct CommitBatch {
    pub(super) ops: Vec<Op>,
    /// The changes must be on disk before the replies.
    pub(super) must_sync: bool,
    /// Every window before this is marked as used once the commit is synced.
    pub(super) spent_until: Option<Timestamp>,
    /// Leases, each with the end of its window. If the disk already marks that window as used, the committer
    /// replies after the write, before the sync: a start after a power cut counts the window as spent.
    pub(super) leases: Vec<(Reply, Outcome, Timestamp)>,
    /// Replies after the sync, if there is one. Includes outcomes that changed nothing: "duplicate" and "stale"
    /// are promises about what an earlier command did.
    pub(super) rest: Vec<(Reply, Outcome)>,
}

impl CommitBatch {
    fn append(&mut self, mut later: CommitBatch) {
        self.ops.append(&mut later.ops);
        self.must_sync |= later.must_sync;
        self.spent_until = later.spent_until.or(self.spent_until);
        self.leases.append(&mut later.leases);
        self.rest.append(&mut later.rest);
    }

    fn answer_leases(&mut self, spent_until: Timestamp) {
        for (reply, outcome, _) in self.leases.extract_if(.., |(_, _, end)| *end <= spent_until) {
            answer(reply, outcome);
        }
    }

    fn answer_all(&mut self) {
        for (reply, outcome, _) in self.leases.drain(..) {
            answer(reply, outcome);
        }
        for (reply, outcome) in self.rest.drain(..) {
            answer(reply, outcome);
        }
    }
}

fn answer(reply: Reply, outcome: Outcome) {
    // The caller may be gone; its command is done all the same.
    let _ = reply.send(Ok(outcome));
}

pub(super) struct Committer {
    disk: Arc<dyn Disk>,
    durability: Durability,
    last_sync: Instant,
    /// The value on disk.
    spent_until: Timestamp,
    poison: Poison,
}

impl Committer {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        durability: Durability,
        spent_until: Timestamp,
        poison: Poison,
    ) -> Self {
        Self {
            disk,
            durability,
            last_sync: Instant::now(),
            spent_until,
            poison,
        }
    }

    pub(super) fn run(mut self, tasks: mpsc::Receiver<Task>) {
        while let Ok(task) = tasks.recv() {
            let mut next = Some(task);
            let mut commit = CommitBatch::default();
            while let Some(Task::Write(waiting)) = next {
                commit.append(waiting);
                next = tasks.try_recv().ok();
            }
            self.write(commit);
            match next {
                Some(Task::Snapshot(reply)) => {
                    let snapshot = self.healthy().map(|()| self.disk.snapshot());
                    // Nobody waits any more: nothing to do.
                    let _ = reply.send(snapshot);
                }
                Some(Task::Close(reply)) => {
                    let result = self.last_sync();
                    // Dropping the disk releases the lock on the folder; after `close` a caller may reopen it
                    // at once.
                    drop(self);
                    let _ = reply.send(result);
                    return;
                }
                Some(Task::Write(_)) | None => {}
            }
        }
        if let Err(error) = self.last_sync() {
            tracing::error!(%error, "the last sync failed");
        }
    }

    fn healthy(&self) -> Result<(), StoreError> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn last_sync(&mut self) -> Result<(), StoreError> {
        self.healthy()?;
        self.disk.sync().map_err(poisoned)
    }

    fn write(&mut self, mut commit: CommitBatch) {
        let Err(error) = self.healthy().and_then(|()| self.try_write(&mut commit)) else {
            return;
        };
        if self.poison.set(error.clone()).is_ok() {
            tracing::error!(%error, "the store stops answering");
        }
        let leases = commit.leases.into_iter().map(|(reply, ..)| reply);
        for reply in leases.chain(commit.rest.into_iter().map(|(reply, _)| reply)) {
            let _ = reply.send(Err(error.clone()));
        }
    }

    fn try_write(&mut self, commit: &mut CommitBatch) -> Result<(), StoreError> {
        if !commit.ops.is_empty() {
            self.disk
                .commit(std::mem::take(&mut commit.ops))
                .map_err(poisoned)?;
        }
        let due = self.durability == Durability::Sync || self.last_sync.elapsed() >= BUFFERED_FOR;
        if commit.must_sync && due {
            commit.answer_leases(self.spent_until);
            self.disk.sync().map_err(poisoned)?;
            self.last_sync = Instant::now();
            self.spent_until = commit.spent_until.unwrap_or(self.spent_until);
        }
        commit.answer_all();
        Ok(())
    }
}

fn poisoned(error: DiskError) -> StoreError {
    StoreError::Poisoned(error.to_string())
}
