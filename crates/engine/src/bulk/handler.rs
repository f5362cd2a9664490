//! What users write: one handler per job type.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt;
use tidegate_core::bulk::{JobOutcome, Priority, ThrottleScope};
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::LeasedJob;

use crate::tasks::panic_message;

/// One job, as its handler sees it.
#[derive(Debug, Clone)]
pub struct Job {
    pub group: GroupId,
    pub batch: BatchId,
    pub id: JobId,
    pub kind: JobType,
    pub priority: Priority,
    pub payload: Bytes,
    /// 1 for the first run.
    pub attempt: u32,
    /// The end of the lease.
    pub deadline: Timestamp,
    /// How long this run may take.
    pub timeout: Millis,
}

/// Why a run did not succeed. `?` turns any error into a retry.
#[derive(Debug, Clone, PartialEq)]
pub enum JobError {
    /// It will never succeed.
    Failed(String),
    /// It may succeed later: after `after`, or after the type's backoff.
    Retry {
        error: String,
        after: Option<Millis>,
        /// The downstream is overloaded: it timed out, its gateway is broken, or it refused the connection. This slows
        /// down the queue.
        overloaded: bool,
    },
    /// The downstream throttled the call; uses up no attempt. This slows down the queue, or only the job's group.
    Throttled {
        retry_after: Option<Millis>,
        scope: ThrottleScope,
    },
    /// Not run after all: the job returns to the head of its flow and uses up no attempt. It can be leased again at
    /// once, so close the queue's [`Gate`](super::Gate) before returning this.
    Released,
}

impl JobError {
    pub fn failed(error: impl Into<String>) -> Self {
        JobError::Failed(error.into())
    }

    pub fn retry(error: impl Into<String>) -> Self {
        JobError::Retry {
            error: error.into(),
            after: None,
            overloaded: false,
        }
    }

    /// The call failed because the downstream is overloaded. Uses up an attempt, and slows down the queue.
    pub fn overloaded(error: impl Into<String>) -> Self {
        JobError::Retry {
            error: error.into(),
            after: None,
            overloaded: true,
        }
    }

    /// The downstream throttled the calls of the whole queue.
    pub fn throttled(retry_after: Option<Millis>) -> Self {
        JobError::Throttled {
            retry_after,
            scope: ThrottleScope::Queue,
        }
    }

    /// The downstream throttled the calls of the job's group: the others keep their rate.
    pub fn throttled_group(retry_after: Option<Millis>) -> Self {
        JobError::Throttled {
            retry_after,
            scope: ThrottleScope::Group,
        }
    }
}

impl<E: std::error::Error> From<E> for JobError {
    fn from(error: E) -> Self {
        JobError::retry(error.to_string())
    }
}

/// What a handler may return as its result.
pub trait IntoResult {
    fn into_result(self) -> Bytes;
}

impl IntoResult for () {
    fn into_result(self) -> Bytes {
        Bytes::new()
    }
}

impl IntoResult for Bytes {
    fn into_result(self) -> Bytes {
        self
    }
}

impl IntoResult for String {
    fn into_result(self) -> Bytes {
        self.into()
    }
}

impl IntoResult for Vec<u8> {
    fn into_result(self) -> Bytes {
        self.into()
    }
}

/// Runs the jobs of one type. Async closures are handlers.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    async fn run(&self, job: Job) -> Result<Bytes, JobError>;
}

#[async_trait]
impl<F, Fut, R> Handler for F
where
    F: Fn(Job) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, JobError>> + Send,
    R: IntoResult,
{
    async fn run(&self, job: Job) -> Result<Bytes, JobError> {
        self(job).await.map(IntoResult::into_result)
    }
}

/// Handlers by type.
#[derive(Clone, Default)]
pub(crate) struct Handlers(pub(crate) HashMap<JobType, Arc<dyn Handler>>);

impl Handlers {
    /// Runs one job to its outcome, whether the handler returns, fails, panics or never returns. `spent` of its
    /// time has already passed.
    pub(crate) async fn run(&self, leased: LeasedJob, spent: Millis) -> JobOutcome {
        let LeasedJob { leased, id, payload } = leased;
        let Some(handler) = self.0.get(&leased.kind).cloned() else {
            let error = format!("no handler for job type {:?}", leased.kind);
            return JobOutcome::Failed { error };
        };
        let timeout = Millis(leased.timeout.0.saturating_sub(spent.0));
        let job = Job {
            group: leased.group,
            batch: leased.batch,
            id,
            kind: leased.kind,
            priority: leased.priority,
            payload,
            attempt: leased.attempt,
            deadline: leased.deadline,
            timeout,
        };
        // The handler owns its state: after a panic, no state of ours is half-changed.
        let run = AssertUnwindSafe(handler.run(job)).catch_unwind();
        match tokio::time::timeout(timeout.into(), run).await {
            Ok(Ok(Ok(result))) => JobOutcome::Completed { result },
            Ok(Ok(Err(JobError::Failed(error)))) => JobOutcome::Failed { error },
            Ok(Ok(Err(JobError::Retry {
                error,
                after,
                overloaded,
            }))) => JobOutcome::Retry {
                error,
                after,
                overloaded,
            },
            Ok(Ok(Err(JobError::Throttled { retry_after, scope }))) => {
                JobOutcome::Throttled { retry_after, scope }
            }
            Ok(Ok(Err(JobError::Released))) => JobOutcome::Released,
            Ok(Err(panic)) => JobOutcome::Retry {
                error: format!("the handler panicked: {}", panic_message(&*panic)),
                after: None,
                overloaded: false,
            },
            Err(_) => JobOutcome::Retry {
                error: format!("the handler did not return within {}", leased.timeout),
                after: None,
                overloaded: true,
            },
        }
    }
}
