//! Progress of a batch as a stream: one item for every change of the counts, the last one when the batch is decided.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use tidegate_core::bulk::views::{Estimate, Query, View};
use tidegate_core::bulk::{BatchCounts, BatchStatus};
use tidegate_core::ids::{BatchId, GroupId};
use tidegate_store::bulk::{BulkStore, BulkStoreExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::EngineError;
use crate::outage::Outage;

/// How often the stream polls the counts.
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub status: BatchStatus,
    pub counts: BatchCounts,
    pub estimate: Estimate,
}

impl Progress {
    pub fn is_finished(&self) -> bool {
        self.status.is_finished()
    }
}

#[derive(Debug)]
pub struct ProgressStream(mpsc::Receiver<Result<Progress, EngineError>>);

impl ProgressStream {
    /// Returns the stream, and the task that feeds it until the batch is decided, the receiver is gone, or `stop`
    /// fires. The task holds the store: a caller that needs the store back has to wait for the task.
    pub(crate) fn follow(
        store: Arc<dyn BulkStore>,
        group: GroupId,
        batch: BatchId,
        outage: Outage,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = mpsc::channel(1);
        let task = async move {
            tokio::select! {
                () = feed(&*store, &group, &batch, &outage, &stop, &sender) => {}
                () = sender.closed() => {}
                () = stop.cancelled() => {}
            }
        };
        (Self(receiver), task)
    }

    /// The next change; none after the last, or after the engine has shut down.
    pub async fn next(&mut self) -> Option<Result<Progress, EngineError>> {
        self.0.recv().await
    }
}

impl Stream for ProgressStream {
    type Item = Result<Progress, EngineError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

async fn feed(
    store: &dyn BulkStore,
    group: &GroupId,
    batch: &BatchId,
    outage: &Outage,
    stop: &CancellationToken,
    sender: &mpsc::Sender<Result<Progress, EngineError>>,
) {
    let mut last = None;
    loop {
        let Some(progress) = look(store, group, batch, outage, stop).await.transpose() else {
            return;
        };
        let end = progress.as_ref().map_or(true, Progress::is_finished);
        let news = progress.as_ref().map_or(true, |now| {
            last != Some((now.status, now.counts)) && {
                last = Some((now.status, now.counts));
                true
            }
        });
        if news && sender.send(progress).await.is_err() || end {
            return;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn look(
    store: &dyn BulkStore,
    group: &GroupId,
    batch: &BatchId,
    outage: &Outage,
    stop: &CancellationToken,
) -> Result<Option<Progress>, EngineError> {
    let query = || store.call(Query::Batch(group.clone(), batch.clone()));
    let Some(view) = outage.retry_until_available(stop, query).await? else {
        return Ok(None);
    };
    match view? {
        View::Batch(view) => Ok(Some(Progress {
            status: view.status,
            counts: view.counts,
            estimate: view.estimate,
        })),
        other => unreachable!("a batch is answered with a batch, not {other:?}"),
    }
}
