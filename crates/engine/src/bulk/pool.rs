//! The worker pool of one queue: leases one job for each free worker and runs the handlers.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::bulk::{JobOutcome, LeaseParams, Settlement, Stop};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{Owner, QueueId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, LeasedJob};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::gate::Gate;
use super::handler::Handlers;
use crate::alarm::Alarm;
use crate::outage::Outage;

/// Limit: jobs leased in one call.
const MAX_LEASE: usize = 1_000;

/// The current state of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolView {
    pub queue: QueueId,
    pub workers: u32,
    /// Of these, how many run a job.
    pub busy: u32,
    /// Why the pool leases nothing, if the queue's gate is closed.
    pub gate_closed: Option<String>,
}

/// Observes a pool while it runs.
pub(crate) struct PoolHandle {
    queue: QueueId,
    workers: u32,
    running: TaskTracker,
    gate: Gate,
}

impl PoolHandle {
    pub(crate) fn view(&self) -> PoolView {
        // A worker is free a moment before its task has ended.
        let busy = self.running.len().min(self.workers as usize) as u32;
        PoolView {
            queue: self.queue.clone(),
            workers: self.workers,
            busy,
            gate_closed: self.gate.reason(),
        }
    }
}

pub(crate) struct Pool {
    pub(crate) store: Arc<dyn BulkStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) queue: QueueId,
    pub(crate) owner: Owner,
    pub(crate) handlers: Handlers,
    pub(crate) workers: u32,
    /// Tasks of running jobs.
    pub(crate) running: TaskTracker,
    pub(crate) gate: Gate,
    /// Length of a rate window.
    pub(crate) window: Millis,
    /// Longest wait before an idle pool asks again.
    pub(crate) patience: Duration,
    pub(crate) answers: mpsc::Sender<Settlement>,
    pub(crate) outage: Outage,
    /// Stops the leasing.
    pub(crate) stop: CancellationToken,
    /// Releases the running jobs.
    pub(crate) abort: CancellationToken,
}

impl Pool {
    pub(crate) fn handle(&self) -> PoolHandle {
        PoolHandle {
            queue: self.queue.clone(),
            workers: self.workers,
            running: self.running.clone(),
            gate: self.gate.clone(),
        }
    }

    /// Runs until stopped, and returns when every running job has its outcome.
    pub(crate) async fn run(self) -> Result<(), StoreError> {
        let result = self.lease_until_stopped().await;
        self.running.close();
        self.running.wait().await;
        result
    }

    async fn lease_until_stopped(&self) -> Result<(), StoreError> {
        let free = Arc::new(Semaphore::new(self.workers as usize));
        let notifier = self.store.notifier();
        let mut alarm = Alarm::new(self.clock.clone());
        // No window ends later than this.
        let window = Duration::from(self.window).min(self.patience);
        while !self.stop.is_cancelled() {
            let mut permits = tokio::select! {
                permit = free.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
                () = self.stop.cancelled() => break,
            };
            // Check only here: the gate may have closed while every worker was busy.
            if !self.gate.is_open() {
                drop(permits);
                self.gate_opened().await;
                continue;
            }
            let more = free.available_permits().min(MAX_LEASE - 1) as u32;
            if let Ok(others) = free.clone().try_acquire_many_owned(more) {
                permits.merge(others);
            }
            // Subscribe before the lease, so that no signal during it gets lost.
            let signal = notifier.work.notified();
            let params = LeaseParams {
                queue: self.queue.clone(),
                max: permits.num_permits() as u32,
                owner: self.owner.clone(),
            };
            // The time of the last attempt: an earlier one that failed has leased nothing.
            let mut asked_at = self.clock.steady();
            let lease = || {
                asked_at = self.clock.steady();
                self.store.lease(params.clone())
            };
            let Some(outcome) = self.outage.retry_until_available(&self.stop, lease).await? else {
                break;
            };
            // The gate may have closed while the lease was in progress.
            let open = self.gate.is_open();
            for job in outcome.jobs {
                let permit = permits.split(1).expect("no more jobs than permits");
                self.start(job, asked_at, permit, open);
            }
            drop(permits);
            let wait = match outcome.stop {
                Stop::Enough | Stop::More => continue,
                Stop::Limited { until } | Stop::Held { until } => alarm.wait(until, window),
                Stop::Empty | Stop::Full | Stop::Busy => self.patience,
            };
            // In a spent window no signal brings work.
            let limited = matches!(outcome.stop, Stop::Limited { .. });
            tokio::select! {
                () = signal, if !limited => {}
                () = tokio::time::sleep(wait) => {}
                () = self.stop.cancelled() => {}
            }
        }
        Ok(())
    }

    /// Resolves when the gate opens, or at the stop.
    async fn gate_opened(&self) {
        let (queue, reason) = (&self.queue, self.gate.reason());
        tracing::warn!(%queue, reason, "queue {queue} is closed: nothing is leased from it here");
        tokio::select! {
            () = self.gate.opened() => tracing::info!(%queue, "queue {queue} is open again"),
            () = self.stop.cancelled() => {}
        }
    }

    /// Runs the job, or releases it if the gate is closed or its time was over before it could start. The process
    /// or the machine may have been frozen since the lease, and then another worker has the job.
    ///
    /// Invariant: the lease began after `asked_at` and lasts longer than the job's timeout. So a run that starts
    /// and ends within the timeout of `asked_at` holds its lease throughout, whatever the store's clock says.
    fn start(&self, job: LeasedJob, asked_at: Timestamp, permit: OwnedSemaphorePermit, open: bool) {
        let lease = job.leased.lease;
        let (handlers, answers, abort) = (self.handlers.clone(), self.answers.clone(), self.abort.clone());
        let clock = self.clock.clone();
        self.running.spawn(async move {
            let spent = clock.steady().since(asked_at);
            let expired = spent >= job.leased.timeout;
            if expired {
                tracing::warn!(%spent, timeout = %job.leased.timeout, "a job was not started: its lease was too old");
            }
            let outcome = tokio::select! {
                biased;
                () = std::future::ready(()), if !open || expired => JobOutcome::Released,
                outcome = handlers.run(job, spent) => outcome,
                () = abort.cancelled() => JobOutcome::Released,
            };
            // The settler is gone only if the store is; then the lease expires on its own.
            let _ = answers.send(Settlement { lease, outcome, cost: None }).await;
            drop(permit);
        });
    }
}
