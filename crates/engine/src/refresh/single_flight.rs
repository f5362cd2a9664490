//! Merges concurrent calls for the same key into one, over a [`Batcher`] of calls for different keys. No caller waits
//! for the queue: a full one rejects.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use tokio::task::JoinSet;

use crate::batcher::{BatchWorker, Batcher};

/// Resolves to the response; none if the flight worker has ended.
pub(crate) type Flight<O> = Shared<BoxFuture<'static, Option<O>>>;

type Flights<K, O> = Arc<Mutex<HashMap<K, Flight<O>>>>;

#[derive(Debug)]
pub(crate) struct SingleFlight<K, P, O: Clone> {
    batcher: Batcher<(K, P), O>,
    under_way: Flights<K, O>,
}

impl<K, P, O> SingleFlight<K, P, O>
where
    K: Clone + Eq + Hash,
    O: Clone + Send + 'static,
{
    pub(crate) fn new(max_queued: usize) -> (Self, FlightWorker<K, P, O>) {
        let (batcher, batches) = Batcher::new(max_queued);
        let under_way = Flights::default();
        let flight_worker = FlightWorker {
            batches,
            under_way: Arc::clone(&under_way),
        };
        (Self { batcher, under_way }, flight_worker)
    }

    /// Joins the call for `key` in progress, or starts one. None: the queue is full.
    pub(crate) fn join_or_start(&self, key: K, params: impl FnOnce() -> P) -> Option<Flight<O>> {
        let mut under_way = lock(&self.under_way);
        if let Some(flight) = under_way.get(&key) {
            return Some(flight.clone());
        }
        let answer = self.batcher.start((key.clone(), params()))?;
        let flight = answer.map(Result::ok).boxed().shared();
        under_way.insert(key, flight.clone());
        Some(flight)
    }

    /// No flight worker makes calls any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.batcher.has_ended()
    }
}

/// Makes the calls.
#[derive(Debug)]
pub(crate) struct FlightWorker<K, P, O: Clone> {
    batches: BatchWorker<(K, P), O>,
    under_way: Flights<K, O>,
}

impl<K, P, O: Clone> Clone for FlightWorker<K, P, O> {
    fn clone(&self) -> Self {
        Self {
            batches: self.batches.clone(),
            under_way: self.under_way.clone(),
        }
    }
}

impl<K, P, O> FlightWorker<K, P, O>
where
    K: Clone + Eq + Hash + Send + 'static,
    P: Send + 'static,
    O: Clone + Send + Sync + 'static,
{
    /// Runs until every caller is gone, with up to `side_by_side` batches of up to `max` calls in flight.
    pub(crate) async fn run<Answers>(
        self,
        side_by_side: usize,
        max: usize,
        carry_out: impl FnMut(Vec<(K, P)>) -> Answers + Clone + Send + 'static,
    ) where
        Answers: Future<Output = Vec<O>> + Send + 'static,
    {
        let mut workers = JoinSet::new();
        for _ in 0..side_by_side {
            workers.spawn(self.clone().run_one(max, carry_out.clone()));
        }
        // The queue must close with the last worker.
        drop(self);
        workers.join_all().await;
    }

    async fn run_one<Answers>(self, max: usize, mut carry_out: impl FnMut(Vec<(K, P)>) -> Answers)
    where
        Answers: Future<Output = Vec<O>>,
    {
        let under_way = &self.under_way;
        let batches = self.batches.run(max, |batch| {
            let keys: Vec<K> = batch.iter().map(|(key, _)| key.clone()).collect();
            let answers = carry_out(batch);
            async move {
                let answers = answers.await;
                // Remove them before the replies, so that a later caller starts a new call.
                let mut under_way = lock(under_way);
                for key in &keys {
                    under_way.remove(key);
                }
                Some(answers)
            }
        });
        batches.await;
    }
}

/// No code under this lock panics, so a poisoned lock is safe to use.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn calls_about_one_thing_are_one() {
        let (single_flight, flight_worker) = SingleFlight::<&str, u32, u32>::new(10);
        let boarded: Vec<_> = ["a", "b", "a", "a"]
            .iter()
            .map(|key| single_flight.join_or_start(*key, || 7).unwrap())
            .collect();
        drop(single_flight);
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let run = flight_worker.run(2, 10, move |batch| {
            counted.fetch_add(batch.len() as u32, Ordering::Relaxed);
            std::future::ready(batch.into_iter().map(|(_, params)| params + 1).collect())
        });
        let (answers, ()) = tokio::join!(join_all(boarded), run);
        assert_eq!(answers, [Some(8); 4]);
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_an_ended_one_says_so() {
        let (single_flight, flight_worker) = SingleFlight::<u32, (), u32>::new(1);
        let first = single_flight.join_or_start(1, || ()).unwrap();
        assert!(single_flight.join_or_start(2, || ()).is_none());
        assert!(single_flight.join_or_start(1, || ()).is_some());
        drop(flight_worker);
        assert_eq!(first.await, None);
    }
}
