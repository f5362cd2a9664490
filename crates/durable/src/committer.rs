//! The thread that writes to the disk and replies.
//!
//! The apply thread sends it commit batches: the changes of some calls and their replies. The committer writes all waiting
//! batches as one atomic write, syncs once if any of them must be durable, then replies.

use std::sync::{Arc, OnceLock, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::disk::{Disk, DiskError, Op, Reader};
use crate::runner::{Changes, Durability, SyncNeed};
use crate::{DurableError, ReplyAfter};

/// Limit: waiting commit batches. At the limit the apply thread waits, too, and the inbox fills.
pub(crate) const MAX_WAITING: usize = 16;

/// Limit: what [`Durability::Buffered`] may lose in a power cut while calls keep coming.
const BUFFERED_FOR: Duration = Duration::from_secs(1);

/// Replies to the caller, once it is known whether the changes are durable.
pub(crate) type Reply = Box<dyn FnOnce(Result<(), DurableError>) + Send>;

/// After a failed write the runner rejects every call: memory is ahead of the disk.
pub(crate) type Poison = Arc<OnceLock<DurableError>>;

/// Tasks of the apply thread, executed in this order.
pub(crate) enum Task {
    Write(Commit),
    Snapshot(oneshot::Sender<Result<Box<dyn Reader>, DurableError>>),
    /// Syncs and ends the thread.
    Close(oneshot::Sender<Result<(), DurableError>>),
}

/// A commit batch: changes, and the replies that wait for them.
#[derive(Default)]
pub(crate) struct Commit {
    ops: Vec<Op>,
    sync: SyncNeed,
    mark: Option<u64>,
    publish: Vec<Box<dyn FnOnce() + Send>>,
    /// Replies that need a durable mark, each with the mark.
    marked: Vec<(u64, Reply)>,
    /// Replies after the sync, if there is one.
    rest: Vec<Reply>,
}

impl Commit {
    pub(crate) fn new(changes: Changes, replies: Vec<(ReplyAfter, Reply)>) -> Self {
        let mut commit = Self {
            ops: changes.ops,
            sync: changes.sync,
            mark: changes.mark,
            publish: changes.publish.into_iter().collect(),
            marked: Vec::new(),
            rest: Vec::with_capacity(replies.len()),
        };
        for (after, reply) in replies {
            match after {
                ReplyAfter::Mark(mark) => commit.marked.push((mark, reply)),
                ReplyAfter::Sync | ReplyAfter::Write => commit.rest.push(reply),
            }
        }
        commit
    }

    fn append(&mut self, mut later: Commit) {
        self.ops.append(&mut later.ops);
        self.sync = self.sync.max(later.sync);
        self.mark = later.mark.or(self.mark);
        self.publish.append(&mut later.publish);
        self.marked.append(&mut later.marked);
        self.rest.append(&mut later.rest);
    }

    /// Replies to whoever waits for a mark up to this one.
    fn reply_up_to(&mut self, mark: u64) {
        for (_, reply) in self.marked.extract_if(.., |(wanted, _)| *wanted <= mark) {
            reply(Ok(()));
        }
    }

    fn reply_all(&mut self, durable: &Result<(), DurableError>) {
        if durable.is_ok() {
            self.publish.drain(..).for_each(|publish| publish());
        }
        let marked = self.marked.drain(..).map(|(_, reply)| reply);
        for reply in marked.chain(self.rest.drain(..)) {
            reply(durable.clone());
        }
    }
}

pub(crate) struct Committer {
    disk: Arc<dyn Disk>,
    durability: Durability,
    last_sync: Instant,
    /// The machine's mark on disk.
    mark: u64,
    poison: Poison,
}

impl Committer {
    pub(crate) fn new(disk: Arc<dyn Disk>, durability: Durability, mark: u64, poison: Poison) -> Self {
        Self {
            disk,
            durability,
            last_sync: Instant::now(),
            mark,
            poison,
        }
    }

    pub(crate) fn run(mut self, tasks: mpsc::Receiver<Task>) {
        while let Ok(task) = tasks.recv() {
            let mut next = Some(task);
            let mut commit = Commit::default();
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
                    // Dropping the disk releases the lock on the folder; after `close` a caller may reopen it at once.
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

    fn healthy(&self) -> Result<(), DurableError> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn last_sync(&mut self) -> Result<(), DurableError> {
        self.healthy()?;
        self.disk.sync().map_err(poisoned)
    }

    fn write(&mut self, mut commit: Commit) {
        let durable = self.healthy().and_then(|()| self.try_write(&mut commit));
        if let Err(error) = &durable
            && self.poison.set(error.clone()).is_ok()
        {
            tracing::error!(%error, "a write failed: the store stops replying");
        }
        commit.reply_all(&durable);
    }

    fn try_write(&mut self, commit: &mut Commit) -> Result<(), DurableError> {
        if !commit.ops.is_empty() {
            let ops = std::mem::take(&mut commit.ops);
            self.disk.commit(ops).map_err(poisoned)?;
        }
        let sync = match commit.sync {
            SyncNeed::None => false,
            SyncNeed::AsConfigured => {
                self.durability == Durability::Sync || self.last_sync.elapsed() >= BUFFERED_FOR
            }
            SyncNeed::Always => true,
        };
        if sync {
            commit.reply_up_to(self.mark);
            self.disk.sync().map_err(poisoned)?;
            self.last_sync = Instant::now();
            self.mark = commit.mark.unwrap_or(self.mark);
        }
        Ok(())
    }
}

fn poisoned(error: DiskError) -> DurableError {
    DurableError::Poisoned(error.to_string())
}
