//! The thread that owns a machine, and the callers' handle to it.
//!
//! It drains its inbox, runs the waiting work in memory, and hands the changes with the replies to the committer. Work that
//! arrives while the committer syncs shares the next sync, so the busier the machine, the fewer syncs per call.

use std::sync::{Arc, mpsc as std_mpsc};
use std::{fmt, thread};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tidegate_core::clock::Clock;
use tidegate_core::time::Timestamp;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::committer::{self, Commit, Committer, Poison, Reply, Task};
use crate::disk::{Disk, Op, Reader};
use crate::{DurableError, ReplyAfter, Run};

/// Limit: calls in one commit batch.
const MAX_BATCH: usize = 256;

/// When a runner replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A reply means on disk.
    #[default]
    Sync,
    /// A reply means written: it survives the process, but a power cut may lose the last moments.
    Buffered,
}

/// Whether a commit batch must be synced before its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SyncNeed {
    /// No: the changes may be lost in a power cut.
    #[default]
    None,
    /// As the [`Durability`] says.
    AsConfigured,
    /// Whatever the durability.
    Always,
}

/// What the replies of a batch ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplyNeeds {
    /// Some work changed something and replies after the sync.
    pub sync: bool,
    /// The largest mark that a reply waits for.
    pub mark: Option<u64>,
}

/// The changes of a batch as records.
#[derive(Default)]
pub struct Changes {
    /// What to write, all of it or nothing.
    pub ops: Vec<Op>,
    /// Whether it must be synced.
    pub sync: SyncNeed,
    /// The machine's durable mark once the batch is synced. A reply after a mark that is durable already does not wait for
    /// the sync.
    pub mark: Option<u64>,
    /// Runs when the batch is as durable as its replies promise, before them.
    pub publish: Option<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes")
            .field("ops", &self.ops.len())
            .field("sync", &self.sync)
            .field("mark", &self.mark)
            .finish_non_exhaustive()
    }
}

/// A machine, and how its changes become records.
pub trait Persist: Send + 'static {
    /// What callers' work runs on.
    type State: 'static;

    /// The state.
    fn state(&mut self) -> &mut Self::State;

    /// Sets the time of the clock that nobody steps, before the work of a batch.
    fn set_steady(&mut self, _steady: Timestamp) {}

    /// Grows with every change that has to be on disk before a reply after the sync, or after a mark.
    fn changes(&self) -> u64;

    /// Takes the changes since the last call. The runner calls it once per batch.
    fn take_changes(&mut self, needs: ReplyNeeds) -> Changes;
}

/// How a runner works.
#[derive(Debug, Clone)]
pub struct RunnerOptions {
    /// Names its threads.
    pub name: &'static str,
    /// When it replies.
    pub durability: Durability,
    /// Limit: calls that wait for the apply thread.
    pub inbox: usize,
    /// The machine's mark on disk.
    pub mark: u64,
}

impl RunnerOptions {
    /// A synced runner of this name.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            durability: Durability::Sync,
            inbox: 1_024,
            mark: 0,
        }
    }
}

/// Work with its reply. Given an error it replies with that at once and runs nothing.
type Work<S> =
    Box<dyn FnOnce(Result<(&mut S, Timestamp), DurableError>) -> Option<(ReplyAfter, Reply)> + Send>;

enum Message<S> {
    Run(Work<S>),
    Snapshot(oneshot::Sender<Result<Box<dyn Reader>, DurableError>>),
    /// Waits for everything before it, syncs, and ends the threads.
    Close(oneshot::Sender<Result<(), DurableError>>),
}

/// The reply of a call that was accepted.
#[derive(Debug)]
pub struct Pending<T>(oneshot::Receiver<Result<T, DurableError>>);

impl<T> Pending<T> {
    /// Waits for the reply.
    pub async fn reply(self) -> Result<T, DurableError> {
        self.0.await.map_err(|_| DurableError::Closed)?
    }
}

/// The callers' handle to a machine on its own threads.
pub struct Runner<S> {
    inbox: mpsc::Sender<Message<S>>,
    poison: Poison,
}

impl<S> fmt::Debug for Runner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner").finish_non_exhaustive()
    }
}

impl<S: 'static> Runner<S> {
    /// Starts the threads.
    pub fn start<P: Persist<State = S>>(
        machine: P,
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        options: RunnerOptions,
    ) -> Result<Self, DurableError> {
        let RunnerOptions {
            name,
            durability,
            inbox,
            mark,
        } = options;
        let poison = Poison::default();
        let committer = Committer::new(disk, durability, mark, poison.clone());
        let (commits, waiting) = std_mpsc::sync_channel(committer::MAX_WAITING);
        let applier = Applier {
            machine,
            commits,
            clock,
            poison: poison.clone(),
        };
        let (sender, messages) = mpsc::channel(inbox);
        spawn(format!("{name}-commit"), move || committer.run(waiting))?;
        spawn(name.to_owned(), move || applier.run(messages))?;
        Ok(Self {
            inbox: sender,
            poison,
        })
    }

    /// An error once a write has failed.
    pub fn healthy(&self) -> Result<(), DurableError> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether its threads have ended.
    pub fn is_closed(&self) -> bool {
        self.inbox.is_closed()
    }

    /// Hands in work without waiting for a free place. None: the inbox is full.
    pub fn try_run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<Option<Pending<T>>, DurableError> {
        let (work, pending) = boxed(work);
        match self.inbox.try_send(Message::Run(work)) {
            Ok(()) => Ok(Some(pending)),
            Err(TrySendError::Full(_)) => Ok(None),
            Err(TrySendError::Closed(_)) => Err(DurableError::Closed),
        }
    }

    /// Runs work from a thread that may block.
    pub fn blocking_run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut S, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        let (work, pending) = boxed(work);
        let sent = self.inbox.blocking_send(Message::Run(work));
        sent.map_err(|_| DurableError::Closed)?;
        pending.0.blocking_recv().map_err(|_| DurableError::Closed)?
    }

    /// The records as of everything that was handed in before.
    pub async fn snapshot(&self) -> Result<Box<dyn Reader>, DurableError> {
        self.ask(Message::Snapshot).await
    }

    /// Finishes pending calls, syncs and lets go of the disk. Later calls find the runner closed.
    pub async fn close(&self) -> Result<(), DurableError> {
        self.ask(Message::Close).await
    }

    async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, DurableError>>) -> Message<S>,
    ) -> Result<T, DurableError> {
        let (reply, answer) = oneshot::channel();
        self.send(message(reply)).await?;
        answer.await.map_err(|_| DurableError::Closed)?
    }

    async fn send(&self, message: Message<S>) -> Result<(), DurableError> {
        self.inbox.send(message).await.map_err(|_| DurableError::Closed)
    }
}

#[async_trait]
impl<S: 'static> Run<S> for Runner<S> {
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut S, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        let (work, pending) = boxed(work);
        self.send(Message::Run(work)).await?;
        pending.reply().await
    }
}

fn boxed<S, T: Send + 'static>(
    work: impl FnOnce(&mut S, Timestamp) -> (T, ReplyAfter) + Send + 'static,
) -> (Work<S>, Pending<T>) {
    let (reply, answer) = oneshot::channel();
    // The caller may be gone; its work is done all the same.
    let work: Work<S> = Box::new(move |machine| match machine {
        Ok((state, now)) => {
            let (outcome, after) = work(state, now);
            let reply: Reply = Box::new(move |durable| drop(reply.send(durable.map(|()| outcome))));
            Some((after, reply))
        }
        Err(error) => {
            drop(reply.send(Err(error)));
            None
        }
    });
    (work, Pending(answer))
}

fn spawn(name: String, work: impl FnOnce() + Send + 'static) -> Result<(), DurableError> {
    let spawned = thread::Builder::new().name(name.clone()).spawn(work);
    spawned.map(drop).map_err(|error| DurableError::Thread {
        name,
        reason: error.to_string(),
    })
}

/// The apply thread.
struct Applier<P: Persist> {
    machine: P,
    commits: std_mpsc::SyncSender<Task>,
    clock: Arc<dyn Clock>,
    poison: Poison,
}

impl<P: Persist> Applier<P> {
    fn run(mut self, mut inbox: mpsc::Receiver<Message<P::State>>) {
        let mut messages = Vec::with_capacity(MAX_BATCH);
        while inbox.blocking_recv_many(&mut messages, MAX_BATCH) > 0 {
            let mut waiting = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                let task = match message {
                    Message::Run(work) => {
                        waiting.push(work);
                        continue;
                    }
                    Message::Snapshot(reply) => Task::Snapshot(reply),
                    Message::Close(reply) => Task::Close(reply),
                };
                self.apply(&mut waiting);
                let closing = matches!(task, Task::Close(_));
                self.hand_over(task);
                if closing {
                    return;
                }
            }
            self.apply(&mut waiting);
        }
    }

    fn hand_over(&self, task: Task) {
        // The committer ends before this thread only if it panicked; the dropped replies then report "closed".
        let _ = self.commits.send(task);
    }

    fn apply(&mut self, waiting: &mut Vec<Work<P::State>>) {
        if waiting.is_empty() {
            return;
        }
        if let Some(error) = self.poison.get() {
            for work in waiting.drain(..) {
                work(Err(error.clone()));
            }
            return;
        }
        let now = self.clock.now();
        self.machine.set_steady(self.clock.steady());
        let mut needs = ReplyNeeds::default();
        let mut replies = Vec::with_capacity(waiting.len());
        for work in waiting.drain(..) {
            let before = self.machine.changes();
            let Some((after, reply)) = work(Ok((self.machine.state(), now))) else {
                continue;
            };
            needs.sync |= after != ReplyAfter::Write && self.machine.changes() > before;
            if let ReplyAfter::Mark(mark) = after {
                needs.mark = needs.mark.max(Some(mark));
            }
            replies.push((after, reply));
        }
        let changes = self.machine.take_changes(needs);
        self.hand_over(Task::Write(Commit::new(changes, replies)));
    }
}
