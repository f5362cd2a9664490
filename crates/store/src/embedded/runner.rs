//! The thread that owns a machine and its disk: runs what waits, writes all changes as one batch, syncs once if any
//! of them must be durable, then answers. The refresh part and the rooms each have one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::Durability;
use super::disk::{Disk, DiskError, Op};
use crate::machine::Keep;
use crate::{Clock, StoreError};

/// Limit: calls that wait for the thread; more callers wait their turn.
const INBOX: usize = 1_024;
/// Limit: calls in one write.
const MAX_BATCH: usize = 256;
/// Limit: what `buffered` may lose in a power cut while calls keep coming.
const BUFFERED_FOR: Duration = Duration::from_secs(1);

pub(super) type Kept = Result<(), StoreError>;
/// Answers the caller, once it is known whether the changes are kept.
type Reply = Box<dyn FnOnce(Kept) + Send>;
type Work<M> = Box<dyn FnOnce(&mut M, Timestamp) -> Reply + Send>;

/// A machine, and how its changes are written.
pub(super) trait Persistence: Send + 'static {
    type Machine: 'static;

    fn machine(&mut self) -> &mut Self::Machine;

    /// Before work is run: the time by the clock that nobody steps.
    fn tell_steady(&mut self, _steady: Timestamp) {}

    /// Grows whenever something changes that was not written yet.
    fn changes(&self) -> usize;

    /// What is to be written.
    fn take_ops(&mut self, must_sync: bool) -> Ops;
}

#[derive(Debug, Default)]
pub(super) struct Ops {
    pub(super) ops: Vec<Op>,
    /// Synced whatever the durability, and before anything is answered.
    pub(super) at_once: bool,
}

enum Message<M> {
    Run(Keep, Work<M>),
    /// Waits until everything before it is done, syncs, and ends the thread.
    Close(oneshot::Sender<Kept>),
}

/// How callers reach the thread.
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

    /// Finishes what was asked, syncs and lets go of the folder. Calls that come later find the store closed.
    pub(super) async fn close(&self) -> Result<(), StoreError> {
        let (reply, done) = oneshot::channel();
        self.send(Message::Close(reply)).await?;
        done.await.map_err(|_| StoreError::Closed)?
    }

    async fn send(&self, message: Message<M>) -> Result<(), StoreError> {
        self.0.send(message).await.map_err(|_| StoreError::Closed)
    }

    /// Runs work on the machine, with the wall's time, and answers when its changes are kept.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl FnOnce(&mut M, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let run: Work<M> = Box::new(move |machine, wall| {
            let outcome = work(machine, wall);
            // Whoever asked may be gone; what it asked for is done all the same.
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
    /// After a failed write nothing is answered any more: memory is ahead of the disk.
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
        // Also those that changed nothing: "already processing" is a promise about what an earlier call did.
        grants
            .into_iter()
            .chain(rest)
            .for_each(|reply| reply(kept.clone()));
    }

    /// Writes what changed. Grants that what is durable covers already are answered before the sync.
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
