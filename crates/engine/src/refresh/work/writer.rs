//! Writes to the database in batches, by size or by time.
//!
//! The writer waits for an unavailable or slow database: it retries the batch in place, and each caller blocks its
//! partition until its write has a result. A row that the database rejects must not block the others: the writer
//! then tries each row alone, and returns the bad one.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::priority::Priority;
use tidegate_snapshots::{SnapshotsError, Write, WriteOutcome};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::refresh::shared::Shared;

/// Pause before a retry of rows that the database rejects while it accepts nothing else either.
const PAUSE: Duration = Duration::from_secs(1);

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Written {
    Stored(WriteOutcome),
    /// The database rejects this row, though it accepts others.
    Refused(String),
}

#[derive(Debug)]
struct Pending {
    write: Write,
    reply: oneshot::Sender<Written>,
}

#[derive(Debug, Clone)]
pub(crate) struct Writer {
    queue: mpsc::Sender<Pending>,
}

impl Writer {
    /// Returns the writer, and the future that runs it until every caller is gone or `abort` fires.
    pub(crate) fn new(
        shared: Arc<Shared>,
        priority: Priority,
        abort: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let work = &shared.options.work;
        let (batch, flush) = match priority {
            Priority::High => (work.high_batch, work.high_flush_ms),
            Priority::Low => (work.low_batch, work.low_flush_ms),
        };
        let (queue, pending) = mpsc::channel(2 * batch);
        let batches = Batches {
            shared,
            batch,
            flush: flush.into(),
            pending,
            abort,
        };
        (Self { queue }, batches.run())
    }

    /// None: the writer has ended, and the write may or may not have happened.
    pub(crate) async fn write(&self, write: Write) -> Option<Written> {
        let (reply, written) = oneshot::channel();
        self.queue.send(Pending { write, reply }).await.ok()?;
        written.await.ok()
    }
}

struct Batches {
    shared: Arc<Shared>,
    batch: usize,
    flush: Duration,
    pending: mpsc::Receiver<Pending>,
    abort: CancellationToken,
}

impl Batches {
    async fn run(mut self) {
        let mut batch = Vec::new();
        while self.fill(&mut batch).await {
            let Some(left) = self.write(std::mem::take(&mut batch)).await else {
                return;
            };
            batch = left;
        }
    }

    /// Fills the batch until it is full or its first write has waited long enough. False at the end.
    async fn fill(&mut self, batch: &mut Vec<Pending>) -> bool {
        if batch.is_empty() {
            tokio::select! {
                got = self.pending.recv() => match got {
                    Some(pending) => batch.push(pending),
                    None => return false,
                },
                () = self.abort.cancelled() => return false,
            }
        }
        let flush_at = Instant::now() + self.flush;
        while batch.len() < self.batch {
            tokio::select! {
                biased;
                got = self.pending.recv() => match got {
                    Some(pending) => batch.push(pending),
                    None => break,
                },
                () = tokio::time::sleep_until(flush_at) => break,
                () = self.abort.cancelled() => return false,
            }
        }
        true
    }

    /// Returns the writes to retry. None: aborted.
    async fn write(&self, batch: Vec<Pending>) -> Option<Vec<Pending>> {
        let (writes, replies): (Vec<Write>, Vec<_>) = batch
            .into_iter()
            .map(|pending| (pending.write, pending.reply))
            .unzip();
        match self.store(&writes).await? {
            Ok(outcomes) => {
                for (reply, outcome) in replies.into_iter().zip(outcomes) {
                    // The caller may have lost its partition.
                    let _ = reply.send(Written::Stored(outcome));
                }
                Some(Vec::new())
            }
            Err(error) => {
                tracing::warn!(%error, rows = writes.len(), "the database rejected a batch; writing its rows one by one");
                let pairs = writes.into_iter().zip(replies);
                self.one_by_one(pairs.map(|(write, reply)| Pending { write, reply }).collect())
                    .await
            }
        }
    }

    async fn one_by_one(&self, batch: Vec<Pending>) -> Option<Vec<Pending>> {
        let mut suspects = Vec::new();
        let mut stored = false;
        for pending in batch {
            match self.store(std::slice::from_ref(&pending.write)).await? {
                Ok(outcomes) => {
                    stored = true;
                    if let Some(outcome) = outcomes.into_iter().next() {
                        let _ = pending.reply.send(Written::Stored(outcome));
                    }
                }
                Err(SnapshotsError::Invalid(reason)) => {
                    let _ = pending.reply.send(Written::Refused(reason));
                }
                Err(error) => suspects.push((pending, error)),
            }
        }
        if stored {
            for (pending, error) in suspects {
                let _ = pending.reply.send(Written::Refused(error.to_string()));
            }
            return Some(Vec::new());
        }
        // The database accepted no other row either, so the fault may be the database's rather than the rows'.
        if let Some((_, error)) = suspects.first() {
            tracing::error!(%error, rows = suspects.len(), "the database rejects every row; work waits");
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = self.abort.cancelled() => return None,
            }
        }
        Some(suspects.into_iter().map(|(pending, _)| pending).collect())
    }

    async fn store(&self, writes: &[Write]) -> Option<Result<Vec<WriteOutcome>, SnapshotsError>> {
        let write = || self.shared.options.snapshots.write(writes);
        self.shared
            .write_guard
            .retry_until_available(&self.abort, write)
            .await
    }
}
