//! A bulk submission: any number of jobs of one group, as one batch.

use bytes::Bytes;
use tidegate_core::bulk::{
    BatchOptions, EnqueueParams, Enqueued, JobRefusal, NewJob, OpenBatchParams, Priority, Refusal,
    SealBatchParams,
};
use tidegate_core::ids::{BatchId, GroupId, IdError, JobId, JobType};
use tidegate_core::time::Timestamp;
use tidegate_store::bulk::{BulkStore, BulkStoreExt};

use super::Error;

/// Limit: jobs of one call to the store.
const CHUNK: usize = 1_000;

/// The jobs of one group, to submit as one batch with [`Tidegate::submit`](crate::Tidegate::submit).
///
/// ```
/// use tidegate::{Priority, Submission, Timestamp};
///
/// let new_year = Timestamp(1_893_456_000_000); // milliseconds since 1970
/// let submission = Submission::new("customer-A")?
///     .batch("spring")?
///     .job("promo-1", "SEND_PROMOTION", r#"{"to": "a@example.org"}"#)?
///     .priority(Priority::Low)
///     .job("promo-2", "SEND_PROMOTION", r#"{"to": "b@example.org"}"#)?
///     .run_at(new_year)
///     .seal();
/// # Ok::<(), tidegate::ids::IdError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Submission {
    pub(crate) group: GroupId,
    pub(crate) batch: Option<BatchId>,
    pub(crate) options: Option<BatchOptions>,
    pub(crate) base_priority: Option<i32>,
    pub(crate) priority: Priority,
    pub(crate) jobs: Vec<NewJob>,
    pub(crate) seal: bool,
}

impl Submission {
    /// Starts an empty submission of a group.
    pub fn new(group: impl AsRef<str>) -> Result<Self, IdError> {
        Ok(Self {
            group: GroupId::new(group)?,
            batch: None,
            options: None,
            base_priority: None,
            priority: Priority::default(),
            jobs: Vec::new(),
            seal: false,
        })
    }

    /// Names the batch. Default: the group's open batch.
    pub fn batch(mut self, batch: impl AsRef<str>) -> Result<Self, IdError> {
        self.batch = Some(BatchId::new(batch)?);
        Ok(self)
    }

    /// Sets the options of the batch, if this submission opens it. They apply only to a batch with a name.
    #[must_use]
    pub fn options(mut self, options: BatchOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Sets the group's weight on a logarithmic scale, if this submission creates the group: −1,000,000 doubles
    /// it, +1,000,000 halves it. Default: 0.
    #[must_use]
    pub fn base_priority(mut self, base_priority: i32) -> Self {
        self.base_priority = Some(base_priority);
        self
    }

    /// Sets the priority of the jobs added after this call. Default: normal.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Adds a job. Its id is unique within the group, its type decides the queue, and its handler gets the
    /// payload unchanged.
    pub fn job(
        mut self,
        id: impl AsRef<str>,
        kind: impl AsRef<str>,
        payload: impl Into<Bytes>,
    ) -> Result<Self, IdError> {
        self.jobs.push(NewJob {
            id: JobId::new(id)?,
            kind: JobType::new(kind)?,
            priority: self.priority,
            payload: payload.into(),
            run_at: None,
            expires_at: None,
            cost: 1,
        });
        Ok(self)
    }

    /// Sets the earliest start of the job added last. Default: at once.
    #[must_use]
    pub fn run_at(mut self, at: Timestamp) -> Self {
        if let Some(job) = self.jobs.last_mut() {
            job.run_at = Some(at);
        }
        self
    }

    /// Sets the latest start of the job added last, retries included: a job that would start later is dead.
    /// Default: never.
    #[must_use]
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        if let Some(job) = self.jobs.last_mut() {
            job.expires_at = Some(at);
        }
        self
    }

    /// Seals the batch after the submission: it completes when its jobs are finished.
    #[must_use]
    pub fn seal(mut self) -> Self {
        self.seal = true;
        self
    }

    /// Submits to any store; see [`Tidegate::submit`](crate::Tidegate::submit).
    pub async fn submit_to(self, store: &dyn BulkStore) -> Result<Submitted, Error> {
        let Submission {
            group,
            mut batch,
            options,
            base_priority,
            jobs,
            seal,
            ..
        } = self;
        if let (Some(batch), Some(options)) = (&batch, options) {
            let params = OpenBatchParams {
                group: group.clone(),
                batch: batch.clone(),
                base_priority,
                options,
            };
            match store.call(params).await? {
                // A repeated submission: the store reports its jobs as duplicates below.
                Ok(_) | Err(Refusal::Sealed(_) | Refusal::BatchFinished(_)) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        let mut submitted = None;
        let mut jobs = jobs.into_iter().peekable();
        while submitted.is_none() || jobs.peek().is_some() {
            let chunk: Vec<_> = jobs.by_ref().take(CHUNK).collect();
            let ids: Vec<JobId> = chunk.iter().map(|job| job.id.clone()).collect();
            let params = EnqueueParams {
                group: group.clone(),
                batch: batch.clone(),
                base_priority,
                jobs: chunk,
            };
            let outcome = store.call(params).await??;
            let total = submitted.get_or_insert_with(|| Submitted {
                batch: outcome.batch.clone(),
                accepted: 0,
                duplicates: 0,
                refused: Vec::new(),
            });
            for (id, enqueued) in ids.into_iter().zip(outcome.jobs) {
                match enqueued {
                    Enqueued::Accepted(_) => total.accepted += 1,
                    Enqueued::Duplicate(_) => total.duplicates += 1,
                    Enqueued::Refused(refusal) => total.refused.push((id, refusal)),
                }
            }
            batch = Some(outcome.batch);
        }
        let submitted = submitted.expect("the loop ran at least once");
        if seal {
            let params = SealBatchParams {
                group,
                batch: Some(submitted.batch.clone()),
            };
            store.call(params).await??;
        }
        Ok(submitted)
    }
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    /// The batch that took the jobs.
    pub batch: BatchId,
    /// Jobs that the store accepted.
    pub accepted: u64,
    /// Jobs that the store knew already and left unchanged.
    pub duplicates: u64,
    /// Jobs that the store refused, each with the reason.
    pub refused: Vec<(JobId, JobRefusal)>,
}
