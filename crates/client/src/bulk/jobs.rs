//! Jobs: submit, read, replay.

use futures_core::Stream;
use serde::Serialize;
use tidegate_api::{Enqueued, Job, JobPriority, NewJob, Why};

use super::submit_stream;
use crate::address::Address;
use crate::client::reason;
use crate::client::{Call, Client};
use crate::error::ClientError;

/// Creates a job of normal priority that may start at once.
///
/// ```
/// use tidegate_client::new_job;
///
/// let job = new_job("mail-1", "SEND_MAIL", &["a@example.org"])?;
/// assert_eq!(job.payload.unwrap().get(), r#"["a@example.org"]"#);
/// # Ok::<(), tidegate_client::ClientError>(())
/// ```
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
        cost: 1,
    })
}

/// The group and the batch of submitted jobs that do not name their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Destination {
    group: Option<String>,
    batch: Option<String>,
    seal: bool,
}

impl Destination {
    /// Leaves the group to the jobs: each names its own.
    pub fn anywhere() -> Self {
        Self::default()
    }

    /// Submits to one group: to the batch that a job names, or else to the group's open batch.
    pub fn group(group: impl Into<String>) -> Self {
        Self {
            group: Some(group.into()),
            ..Self::default()
        }
    }

    /// Submits to one batch. The service opens it if it does not exist.
    pub fn batch(group: impl Into<String>, batch: impl Into<String>) -> Self {
        Self {
            group: Some(group.into()),
            batch: Some(batch.into()),
            seal: false,
        }
    }

    /// Seals the batch after the submission, unless the service refused a job. Has no effect without a batch.
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

/// Borrows the jobs; otherwise the same as `EnqueueJobs`.
#[derive(Serialize)]
struct Jobs<'a> {
    jobs: &'a [NewJob],
}

impl Client {
    /// Submits jobs that each name their group, at most 10,000.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Enqueued, ClientError> {
        self.enqueue_in(&Destination::anywhere(), jobs).await
    }

    /// Submits jobs, at most 10,000.
    ///
    /// The client repeats the call while the service is unavailable. Jobs that an earlier attempt submitted
    /// then count as duplicates.
    pub async fn enqueue_in(&self, place: &Destination, jobs: &[NewJob]) -> Result<Enqueued, ClientError> {
        let call = Call::post(place.address()).idempotent();
        self.call(call.json(&Jobs { jobs })?).await
    }

    /// Submits any number of jobs as one stream, with memory for a small piece of it.
    ///
    /// The client does not repeat a stream. If the connection breaks, accepted jobs stay accepted, and the
    /// caller may submit the whole stream again.
    pub async fn enqueue_ndjson(
        &self,
        place: &Destination,
        jobs: impl Stream<Item = NewJob> + Send + 'static,
    ) -> Result<Enqueued, ClientError> {
        submit_stream::jobs(self, place, jobs).await
    }

    /// Submits NDJSON as it is, like the pieces of a file; a piece may end anywhere.
    pub async fn enqueue_lines<E: std::fmt::Display>(
        &self,
        place: &Destination,
        pieces: impl Stream<Item = Result<bytes::Bytes, E>> + Send + 'static,
    ) -> Result<Enqueued, ClientError> {
        submit_stream::lines(self, place, pieces).await
    }

    /// Submits NDJSON in memory, one job per line. The client repeats the call as [`Client::enqueue_in`] does.
    pub async fn enqueue_text(
        &self,
        place: &Destination,
        lines: bytes::Bytes,
    ) -> Result<Enqueued, ClientError> {
        let call = Call::post(place.address()).idempotent();
        self.call(call.lines(lines)).await
    }

    /// Reads one job with everything that the service keeps of it.
    pub async fn job(&self, group: &str, job: &str) -> Result<Job, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "jobs", job])))
            .await
    }

    /// Replays a dead job: it waits again with all its attempts.
    pub async fn replay_job(&self, group: &str, job: &str, why: Option<&str>) -> Result<Job, ClientError> {
        let call = Call::post(Address::of(&["groups", group, "jobs", job, "replay"]));
        self.call(call.json(&reason(why))?).await
    }

    /// Explains why a job waits, and estimates its start.
    pub async fn why_job(&self, group: &str, job: &str) -> Result<Why, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "jobs", job, "why"])))
            .await
    }
}
