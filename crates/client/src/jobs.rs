//! Jobs: submit, read, retry.

use futures_core::Stream;
use serde::Serialize;
use tidegate_api::{Enqueued, Job, JobPriority, NewJob, Why};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::feed;
use crate::groups::reason;

/// A job of the priority `normal`, to start as soon as it may.
pub fn new_job(
    id: impl Into<String>,
    kind: impl Into<String>,
    payload: &impl Serialize,
) -> Result<NewJob, ClientError> {
    let payload = serde_json::value::to_raw_value(payload)
        .map_err(|error| ClientError::Input(format!("the payload cannot be written as JSON: {error}")))?;
    Ok(NewJob {
        group: None,
        batch: None,
        id: id.into(),
        kind: kind.into(),
        priority: JobPriority::default(),
        payload: Some(payload),
        run_at: None,
        expires_at: None,
    })
}

/// What jobs belong to where they do not say it themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destination {
    group: Option<String>,
    batch: Option<String>,
    seal: bool,
}

impl Destination {
    /// Every job names its group.
    pub fn anywhere() -> Self {
        Self::default()
    }

    /// The group's open batch, or the one that a job names.
    pub fn group(group: impl Into<String>) -> Self {
        Self {
            group: Some(group.into()),
            ..Self::default()
        }
    }

    /// One batch; it is opened if there is none of this name.
    pub fn batch(group: impl Into<String>, batch: impl Into<String>) -> Self {
        Self {
            group: Some(group.into()),
            batch: Some(batch.into()),
            seal: false,
        }
    }

    /// Seals the batch afterwards: nothing more will come. Only batches can be sealed.
    pub fn seal(self) -> Self {
        Self {
            seal: self.batch.is_some(),
            ..self
        }
    }

    pub(crate) fn address(&self) -> Address {
        match (&self.group, &self.batch) {
            (Some(group), Some(batch)) => {
                let address = Address::of(&["groups", group, "batches", batch, "jobs"]);
                address.ask("seal", self.seal.then_some("true"))
            }
            (Some(group), None) => Address::of(&["groups", group, "jobs"]),
            (None, _) => Address::of(&["jobs"]),
        }
    }
}

/// As `EnqueueJobs`, without taking the jobs from their owner.
#[derive(Serialize)]
struct Jobs<'a> {
    jobs: &'a [NewJob],
}

impl Client {
    /// Submits jobs that each name their group, at most 10,000.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Enqueued, ClientError> {
        self.enqueue_in(&Destination::anywhere(), jobs).await
    }

    /// Submits jobs, at most 10,000. Made again when the service was away: jobs that had been accepted are then
    /// counted as duplicates.
    pub async fn enqueue_in(&self, place: &Destination, jobs: &[NewJob]) -> Result<Enqueued, ClientError> {
        let call = Call::post(place.address()).idempotent();
        self.call(call.json(&Jobs { jobs })?).await
    }

    /// Submits any number of jobs as one stream; only a small piece of it is in memory at any time.
    ///
    /// A stream is not sent again: if the connection breaks, what was accepted so far stays accepted, and the
    /// whole stream can be submitted once more.
    pub async fn enqueue_ndjson(
        &self,
        place: &Destination,
        jobs: impl Stream<Item = NewJob> + Send + 'static,
    ) -> Result<Enqueued, ClientError> {
        feed::jobs(self, place, jobs).await
    }

    /// Submits lines of JSON as they are; pieces may be cut anywhere. For files that are NDJSON already.
    pub async fn enqueue_lines<E: std::fmt::Display>(
        &self,
        place: &Destination,
        pieces: impl Stream<Item = Result<bytes::Bytes, E>> + Send + 'static,
    ) -> Result<Enqueued, ClientError> {
        feed::lines(self, place, pieces).await
    }

    /// Submits lines of JSON that are in memory, each a job. Made again when the service was away, as
    /// [`Client::enqueue_in`] is.
    pub async fn enqueue_text(
        &self,
        place: &Destination,
        lines: bytes::Bytes,
    ) -> Result<Enqueued, ClientError> {
        let call = Call::post(place.address()).idempotent();
        self.call(call.lines(lines)).await
    }

    /// Reads one job with everything that is kept of it.
    pub async fn job(&self, group: &str, job: &str) -> Result<Job, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "jobs", job])))
            .await
    }

    /// Replays a dead job: it runs again, with all its attempts.
    pub async fn replay_job(&self, group: &str, job: &str, why: Option<&str>) -> Result<Job, ClientError> {
        let call = Call::post(Address::of(&["groups", group, "jobs", job, "replay"]));
        self.call(call.json(&reason(why))?).await
    }

    /// What keeps a job from starting, and when it should start.
    pub async fn why_job(&self, group: &str, job: &str) -> Result<Why, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "jobs", job, "why"])))
            .await
    }
}
