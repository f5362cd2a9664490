//! Batches single calls of many tasks: while one batch is in flight, the next one fills.

use std::future::Future;

use tokio::sync::{mpsc, oneshot};

type Asked<P, O> = (P, oneshot::Sender<O>);

/// Accepts calls; clones share one queue.
#[derive(Debug)]
pub(crate) struct Batcher<P, O> {
    queue: mpsc::Sender<Asked<P, O>>,
}

impl<P, O> Clone for Batcher<P, O> {
    fn clone(&self) -> Self {
        Self {
            queue: self.queue.clone(),
        }
    }
}

impl<P, O> Batcher<P, O> {
    /// At most `max_queued` calls wait; further callers wait for capacity.
    pub(crate) fn new(max_queued: usize) -> (Self, Batched<P, O>) {
        let (queue, calls) = mpsc::channel(max_queued);
        (Self { queue }, Batched { calls })
    }

    /// How many calls wait, without those in flight and those that wait for capacity.
    pub(crate) fn queued(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// The response; none if the other end has stopped.
    pub(crate) async fn call(&self, params: P) -> Option<O> {
        let (reply, answer) = oneshot::channel();
        self.queue.send((params, reply)).await.ok()?;
        answer.await.ok()
    }
}

/// The other end: makes the calls.
#[derive(Debug)]
pub(crate) struct Batched<P, O> {
    calls: mpsc::Receiver<Asked<P, O>>,
}

impl<P, O> Batched<P, O> {
    /// Runs until every caller is gone, or `carry_out` gives up by returning none.
    pub(crate) async fn run<Answers>(mut self, max: usize, mut carry_out: impl FnMut(Vec<P>) -> Answers)
    where
        Answers: Future<Output = Option<Vec<O>>>,
    {
        let mut calls = Vec::with_capacity(max);
        while self.calls.recv_many(&mut calls, max).await > 0 {
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
        let (batcher, gathered) = Batcher::<u64, u64>::new(100);
        let mut batches = Vec::new();
        let calls = async {
            let answers = join_all((0..50).map(|n| batcher.call(n))).await;
            drop(batcher);
            answers
        };
        let carried = gathered.run(16, |batch| {
            batches.push(batch.len());
            std::future::ready(Some(batch.into_iter().map(|n| n * 2).collect()))
        });
        let (answers, ()) = tokio::join!(calls, carried);
        assert_eq!(answers, (0..50).map(|n| Some(n * 2)).collect::<Vec<_>>());
        assert_eq!(batches, [16, 16, 16, 2]);
    }

    #[tokio::test]
    async fn calls_that_nobody_carries_out_are_queued() {
        let (batcher, gathered) = Batcher::<u64, u64>::new(2);
        let mut calls: Vec<_> = (0..3).map(|n| Box::pin(batcher.call(n))).collect();
        for call in &mut calls {
            assert!(call.as_mut().now_or_never().is_none());
        }
        assert_eq!(batcher.queued(), 2, "the third waits for room");
        let carried = gathered.run(10, |batch| std::future::ready(Some(batch)));
        let answers = tokio::select! {
            answers = join_all(calls) => answers,
            () = carried => unreachable!("somebody can still call"),
        };
        assert_eq!(batcher.queued(), 0);
        assert_eq!(answers, [Some(0), Some(1), Some(2)]);
    }

    #[tokio::test]
    async fn who_calls_after_the_end_is_told() {
        let (batcher, gathered) = Batcher::<u64, u64>::new(10);
        let (answer, ()) = tokio::join!(batcher.call(1), gathered.run(1, |_| std::future::ready(None)));
        assert_eq!(answer, None);
        assert_eq!(batcher.call(2).await, None);
    }
}
