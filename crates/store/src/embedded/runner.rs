//! The thread that owns a machine and its disk: runs waiting calls, writes all changes as one batch, syncs once
//! if any of them must be durable, then replies. The refresh part and the rooms each have one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::Durability;
use super::disk::{Disk, DiskError, Op};
use crate::machine::Keep;
use crate::{Clock, StoreError};

/// Limit: calls that wait for the thread; further callers wait.
const INBOX: usize = 1_024;
/// Limit: calls in one write.
const MAX_BATCH: usize = 256;
/// Limit: what `buffered` may lose in a power cut while calls keep coming.
const BUFFERED_FOR: Duration = Duration::from_secs(1);

pub(super) type Kept = Result<(), StoreError>;
/// Replies to the caller, once it is known whether the changes are persisted.
type Reply = Box<dyn FnOnce(Kept) + Send>;
type Work<M> = Box<dyn FnOnce(&mut M, Timestamp) -> Reply + Send>;

/// A machine, and how its changes are written.
pub(super) trait Persistence: Send + 'static {
    type Machine: 'static;

    fn machine(&mut self) -> &mut Self::Machine;

    /// Sets the time of the clock that nobody steps, before work runs.
    fn tell_steady(&mut self, _steady: Timestamp) {}

    /// Grows with every change that is not written yet.
    fn changes(&self) -> usize;

    /// The ops to write.
    fn take_ops(&mut self, must_sync: bool) -> Ops;
}

#[derive(Debug, Default)]
pub(super) struct Ops {
    pub(super) ops: Vec<Op>,
    /// Synced whatever the durability, and before any reply.
    pub(super) at_once: bool,
}

enum Message<M> {
    Run(Keep, Work<M>),
    /// Waits for everything before it, syncs, and ends the thread.
    Close(oneshot::Sender<Kept>),
}

/// The callers' handle of the thread.
#[derive(Debug)]
pub(super) struct Runner<M>(mpsc::Sender<Message<M>>);

impl<M: 'static> Runner<M> {
    pub(super) fn start<L: Persistence<Machine = M>>(
        name: &str,
        persistence: L,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let thread = Thread {
            persistence,
            disk,
            clock,
            durability,
            last_sync: Instant::now(),
            poison: None,
        };
        let (inbox, messages) = mpsc::channel(INBOX);
        super::spawn(name, move || thread.run(messages))?;
        Ok(Self(inbox))
    }

    /// Finishes pending calls, syncs and releases the folder. Later calls find the store closed.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (reply, done) = oneshot::channel();
        self.send(Message::Close(reply)).await?;
        done.await.map_err(|_| StoreError::Closed)?
    }

    async fn send(&self, message: Message<M>) -> Result<(), StoreError> {
        self.0.send(message).await.map_err(|_| StoreError::Closed)
    }

    /// Runs work on the machine, with the wall clock's time, and returns once its changes are persisted.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl FnOnce(&mut M, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let run: Work<M> = Box::new(move |machine, wall| {
            let outcome = work(machine, wall);
            // The caller may be gone; its call is done all the same.
            Box::new(move |kept: Kept| drop(reply.send(kept.map(|()| outcome))))
        });
        self.send(Message::Run(keep, run)).await?;
        answer.await.map_err(|_| StoreError::Closed)?
    }
}

struct Thread<L: Persistence> {
    persistence: L,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    last_sync: Instant,
    /// After a failed write the store rejects every call: memory is ahead of the disk.
    poison: Option<StoreError>,
}

impl<L: Persistence> Thread<L> {
    fn run(mut self, mut inbox: mpsc::Receiver<Message<L::Machine>>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        while inbox.blocking_recv_many(&mut messages, MAX_BATCH) > 0 {
            let mut waiting = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Run(keep, work) => waiting.push((keep, work)),
                    Message::Close(reply) => {
                        self.batch(waiting);
                        let result = self.last_sync();
                        // Dropping the disk releases the lock on the folder; after `close` a caller may reopen
                        // it at once.
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

    fn batch(&mut self, waiting: Vec<(Keep, Work<L::Machine>)>) {
        let wall = self.clock.now();
        self.persistence.tell_steady(self.clock.steady());
        let (mut grants, mut rest) = (Vec::new(), Vec::new());
        let mut must_sync = false;
        for (keep, work) in waiting {
            let before = self.persistence.changes();
            let reply = work(self.persistence.machine(), wall);
            must_sync |= keep == Keep::Synced && self.persistence.changes() > before;
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
        // Includes calls that changed nothing: "already processing" is a promise about what an earlier call
        // did.
        grants
            .into_iter()
            .chain(rest)
            .for_each(|reply| reply(kept.clone()));
    }

    /// Writes the changes. Replies before the sync to grants that the durable record already covers.
    fn keep(&mut self, must_sync: bool, grants: &mut Vec<Reply>) -> Kept {
        let Ops { ops, at_once } = self.persistence.take_ops(must_sync);
        if !ops.is_empty() {
            self.disk.commit(ops).map_err(poisoned)?;
        }
        let sync = self.durability == Durability::Sync || self.last_sync.elapsed() >= BUFFERED_FOR;
        if at_once || (must_sync && sync) {
            if !at_once {
                grants.drain(..).for_each(|reply| reply(Ok(())));
            }
            self.disk.sync().map_err(poisoned)?;
            self.last_sync = Instant::now();
        }
        Ok(())
    }
}

fn poisoned(error: DiskError) -> StoreError {
    StoreError::Poisoned(error.to_string())
}
