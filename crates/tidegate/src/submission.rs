//! A bulk submission: the jobs of one group, in any number, as one batch.

use bytes::Bytes;
use tidegate_core::bulk::{
    BatchOptions, EnqueueParams, Enqueued, JobRefusal, NewJob, OpenBatchParams, Priority, Refusal,
    SealBatchParams,
};
use tidegate_core::ids::{BatchId, GroupId, IdError, JobId, JobType};
use tidegate_core::time::Timestamp;
use tidegate_store::{Store, StoreExt};

use crate::Error;

/// Jobs sent to the store in one call.
const CHUNK: usize = 1_000;

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

    /// Names the batch; without a name it is the group's open one.
    pub fn batch(mut self, batch: impl AsRef<str>) -> Result<Self, IdError> {
        self.batch = Some(BatchId::new(batch)?);
        Ok(self)
    }

    /// Options of the batch, if this submission opens it.
    #[must_use]
    pub fn options(mut self, options: BatchOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Weight of the group, if this submission creates it: −1,000,000 counts double, +1,000,000 half.
    #[must_use]
    pub fn base_priority(mut self, base_priority: i32) -> Self {
        self.base_priority = Some(base_priority);
        self
    }

    /// Priority of the jobs added from here on.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

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
        });
        Ok(self)
    }

    /// The job added last runs not before this time.
    #[must_use]
    pub fn run_at(mut self, at: Timestamp) -> Self {
        if let Some(job) = self.jobs.last_mut() {
            job.run_at = Some(at);
        }
        self
    }

    /// The job added last does not start, nor start again, after this time; then it is dead.
    #[must_use]
    pub fn expires_at(mut self, at: Timestamp) -> Self {
        if let Some(job) = self.jobs.last_mut() {
            job.expires_at = Some(at);
        }
        self
    }

    /// Nothing more will come: the batch completes when these jobs are finished.
    #[must_use]
    pub fn seal(mut self) -> Self {
        self.seal = true;
        self
    }

    /// Carries it out on any store; see [`Tidegate::submit`](crate::Tidegate::submit).
    pub async fn submit_to(self, store: &dyn Store) -> Result<Submitted, Error> {
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
                // The same submission again: its jobs are answered as duplicates below.
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

/// What became of a submission.
#[derive(Debug, Clone, PartialEq)]
pub struct Submitted {
    pub batch: BatchId,
    pub accepted: u64,
    /// Known already, and left as they are.
    pub duplicates: u64,
    pub refused: Vec<(JobId, JobRefusal)>,
}
