//! The [`BulkStore`] trait: what a backend must be able to do.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use serde::Serialize;
use tidegate_core::bulk::views::{Cursor, DeadFilter, JobFilter, JobView, Page};
use tidegate_core::bulk::{
    Command, LeaseOutcome, LeaseParams, Leased, Outcome, Refusal, Signals, Transition,
};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Timestamp;
use tokio::sync::Notify;

use super::JobRun;
use crate::StoreError;

/// A leased job with what its handler needs.
#[derive(Debug, Clone, PartialEq)]
pub struct LeasedJob {
    pub leased: Leased,
    pub id: JobId,
    pub payload: Bytes,
}

/// A job with everything the store keeps of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobDetails {
    pub id: JobId,
    pub view: JobView,
    pub created_at: Timestamp,
    /// Its latest runs, the oldest first, the one under way last.
    pub runs: Vec<JobRun>,
    pub payload: Bytes,
    /// The result of a completed job.
    pub result: Option<Bytes>,
    /// The last error of a dead job.
    pub error: Option<String>,
}

impl JobDetails {
    /// Its approximate size in memory and on the wire.
    pub fn bytes(&self) -> usize {
        let result = self.result.as_ref().map_or(0, Bytes::len);
        let errors = |run: &JobRun| run.error.as_ref().map_or(0, String::len);
        let runs: usize = self.runs.iter().map(errors).sum();
        self.payload.len() + result + runs + self.error.as_ref().map_or(0, String::len)
    }
}

/// A job that a listing found, with its group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundJob {
    pub group: GroupId,
    pub details: JobDetails,
}

/// A backend for the bulk part.
///
/// Every transition is atomic, takes a batch and returns outcomes in the order of the batch. A returned outcome
/// is durable for `enqueue`, `settle` and every other transition that makes a promise. A crash may forget a
/// lease, as long as its fencing token is never reissued and its window counts as spent.
#[async_trait]
pub trait BulkStore: Send + Sync + 'static {
    /// Applies one transition.
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError>;

    /// The lease transition, with the jobs' ids and payloads.
    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError>;

    /// One job with everything the store keeps of it.
    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError>;

    /// The jobs of a batch with their results, in order of arrival.
    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError>;

    /// Dead jobs of the whole store, those that died last first. A page may be short, or empty, although there are more: only a page without `next` is the last.
    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError>;

    /// Jobs of the whole store, batch by batch in the order of arrival. A page may be short, or empty, although there are more: only a page without `next` is the last.
    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError>;

    /// The notifier that signals when there may be work.
    fn notifier(&self) -> Arc<BulkNotifier>;
}

/// Typed calls on any store.
#[async_trait]
pub trait BulkStoreExt: BulkStore {
    async fn call<T: Transition + Send + 'static>(&self, params: T) -> Result<T::Outcome, StoreError> {
        self.apply(params.into_command()).await.map(T::outcome)
    }
}

impl<S: BulkStore + ?Sized> BulkStoreExt for S {}

/// Wakes the services that wait on a store. Subscribe first, then check: this order misses no signal. A signal
/// may be spurious, and every service also polls from time to time.
#[derive(Debug, Default)]
pub struct BulkNotifier {
    /// A job may have become leasable.
    pub work: Notify,
    /// A batch is complete.
    pub aggregate: Notify,
    /// Something became due at a time that was not known before.
    pub timer: Notify,
}

impl BulkNotifier {
    /// Sends the signals that the state machine requests.
    pub fn notify(&self, signals: Signals) {
        for (wanted, signal) in [
            (signals.work, &self.work),
            (signals.aggregate, &self.aggregate),
            (signals.timer, &self.timer),
        ] {
            if wanted {
                signal.notify_waiters();
            }
        }
    }
}
