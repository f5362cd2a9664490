//! Batches single calls of many tasks: while one batch is in flight, the next one fills.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};

type Call<P, O> = (P, oneshot::Sender<O>);

/// Accepts calls; clones share one queue.
#[derive(Debug)]
pub(crate) struct Batcher<P, O> {
    queue: mpsc::Sender<Call<P, O>>,
}

impl<P, O> Clone for Batcher<P, O> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
        }
    }
}

impl<P, O> Batcher<P, O> {
    /// At most `max_queued` calls wait.
    pub(crate) fn new(max_queued: usize) -> (Self, BatchWorker<P, O>) {
        let (queue, calls) = mpsc::channel(max_queued);
        let calls = Arc::new(Mutex::new(calls));
        (Self { queue }, BatchWorker { calls })
    }

    /// How many calls wait, without those in flight and those that wait for capacity.
    pub(crate) fn queued(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// No worker makes calls any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.queue.is_closed()
    }

    /// The response; none if the workers have stopped. Waits for capacity in a full queue.
    pub(crate) async fn call(&self, params: P) -> Option<O> {
        let (reply, answer) = oneshot::channel();
        self.queue.send((params, reply)).await.ok()?;
        answer.await.ok()
    }

    /// Queues a call without waiting; none if the queue is full.
    pub(crate) fn start(&self, params: P) -> Option<oneshot::Receiver<O>> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send((params, reply)).ok()?;
        Some(answer)
    }
}

/// Makes the calls. Clones share the queue, so that several batches can be in flight.
#[derive(Debug)]
pub(crate) struct BatchWorker<P, O> {
    calls: Arc<Mutex<mpsc::Receiver<Call<P, O>>>>,
}

impl<P, O> Clone for BatchWorker<P, O> {
    fn clone(&self) -> Self {
        Self {
            calls: self.calls.clone(),
        }
    }
}

impl<P, O> BatchWorker<P, O> {
    /// Runs until every caller is gone, or `carry_out` stops by returning none.
    pub(crate) async fn run<Answers>(self, max: usize, mut carry_out: impl FnMut(Vec<P>) -> Answers)
    where
        Answers: Future<Output = Option<Vec<O>>>,
    {
        let mut calls = Vec::with_capacity(max);
        while self.calls.lock().await.recv_many(&mut calls, max).await > 0 {
            let (params, replies): (Vec<P>, Vec<_>) = calls.drain(..).unzip();
            let Some(answers) = carry_out(params).await else {
                return;
            };
            for (reply, answer) in replies.into_iter().zip(answers) {
                // The caller may be gone.
                let _ = reply.send(answer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{FutureExt, join_all};

    use super::*;

    #[tokio::test]
    async fn calls_are_answered_in_batches_each_with_its_own() {
        let (batcher, worker) = Batcher::<u64, u64>::new(100);
        let mut batches = Vec::new();
        let calls = async {
            let answers = join_all((0..50).map(|n| batcher.call(n))).await;
            drop(batcher);
            answers
        };
        let carried = worker.run(16, |batch| {
            batches.push(batch.len());
            std::future::ready(Some(batch.into_iter().map(|n| n * 2).collect()))
        });
        let (answers, ()) = tokio::join!(calls, carried);
        assert_eq!(answers, (0..50).map(|n| Some(n * 2)).collect::<Vec<_>>());
        assert_eq!(batches, [16, 16, 16, 2]);
    }

    #[tokio::test]
    async fn calls_that_nobody_carries_out_are_queued() {
        let (batcher, worker) = Batcher::<u64, u64>::new(2);
        let mut calls: Vec<_> = (0..3).map(|n| Box::pin(batcher.call(n))).collect();
        for call in &mut calls {
            assert!(call.as_mut().now_or_never().is_none());
        }
        assert_eq!(batcher.queued(), 2, "the third waits for capacity");
        let carried = worker.run(10, |batch| std::future::ready(Some(batch)));
        let answers = tokio::select! {
            answers = join_all(calls) => answers,
            () = carried => unreachable!("somebody can still call"),
        };
        assert_eq!(batcher.queued(), 0);
        assert_eq!(answers, [Some(0), Some(1), Some(2)]);
    }

    #[tokio::test]
    async fn who_calls_after_the_end_gets_an_error() {
        let (batcher, worker) = Batcher::<u64, u64>::new(10);
        let (answer, ()) = tokio::join!(batcher.call(1), worker.run(1, |_| std::future::ready(None)));
        assert_eq!(answer, None);
        assert_eq!(batcher.call(2).await, None);
    }
}
