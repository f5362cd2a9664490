//! Jobs of all groups: list them, and commands on one or many.

use std::time::Duration;

use serde::Serialize;
use tidegate_api::{
    ChangedJobs, DropFinishedJobs, DroppedJobs, Job, JobPriority, JobSelection, Page, ReprioritiseJob,
    ReprioritiseJobs, RescheduleJob, RescheduleJobs, Time,
};

use crate::address::Address;
use crate::client::{Call, Client, reason};
use crate::error::ClientError;
use crate::pages::{Items, items};

/// A command on jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCommand {
    /// Ends jobs that do not run. A running one ends with its run, unless the run completes it.
    Cancel,
    /// Delayed jobs wait for their turn from now on.
    RunNow,
    /// Jobs start no earlier than this.
    Reschedule(Time),
    /// Jobs have this priority.
    Reprioritise(JobPriority),
}

impl JobCommand {
    fn path(self) -> &'static str {
        match self {
            JobCommand::Cancel => "cancel",
            JobCommand::RunNow => "run-now",
            JobCommand::Reschedule(_) => "reschedule",
            JobCommand::Reprioritise(_) => "reprioritise",
        }
    }
}

impl Client {
    /// Reads one page of the jobs that match the filter of `select`, batch by batch in the order of arrival; 100 jobs unless
    /// `limit` says otherwise. A page may be short, or empty, although there are more: only one without `next` is the last.
    pub async fn jobs(
        &self,
        select: &JobSelection,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<Job>, ClientError> {
        // The query uses the JSON form of the state.
        let state = select.state.map(serde_json::to_value).transpose();
        let state = state.map_err(|error| ClientError::Input(error.to_string()))?;
        let address = Address::of(&["jobs"])
            .ask("cursor", cursor)
            .ask("limit", limit)
            .ask("group", select.group.as_deref())
            .ask("batch", select.batch.as_deref())
            .ask("queue", select.queue.as_deref())
            .ask("type", select.kind.as_deref())
            .ask("state", state.as_ref().and_then(|state| state.as_str()))
            .ask("createdAfter", select.created_after)
            .ask("createdBefore", select.created_before);
        self.call(Call::get(address)).await
    }

    /// Streams all matching jobs, page by page.
    pub fn all_jobs(&self, select: &JobSelection) -> Items<Job> {
        let (client, select) = (self.clone(), select.clone());
        items(move |cursor, limit| {
            let (client, select) = (client.clone(), select.clone());
            async move { client.jobs(&select, cursor.as_deref(), Some(limit)).await }
        })
    }

    /// Runs a command on one job, and returns the job.
    pub async fn change_job(
        &self,
        group: &str,
        job: &str,
        command: JobCommand,
        why: Option<&str>,
    ) -> Result<Job, ClientError> {
        let call = Call::post(Address::of(&["groups", group, "jobs", job, command.path()]));
        let why = why.map(str::to_owned);
        let call = match command {
            JobCommand::Cancel | JobCommand::RunNow => call.json(&reason(why.as_deref()))?,
            JobCommand::Reschedule(run_at) => call.json(&RescheduleJob { run_at, why })?,
            JobCommand::Reprioritise(priority) => call.json(&ReprioritiseJob { priority, why })?,
        };
        self.call(call).await
    }

    /// Runs a command on the selected jobs: at most about 10,000 of them, or for two seconds. While the result has a `next`,
    /// repeat the call with it as `cursor` of the selection.
    pub async fn change_jobs(
        &self,
        command: JobCommand,
        select: &JobSelection,
    ) -> Result<ChangedJobs, ClientError> {
        let path = command.path();
        match command {
            JobCommand::Cancel | JobCommand::RunNow => self.on_jobs(path, select).await,
            JobCommand::Reschedule(run_at) => {
                let select = select.clone();
                self.on_jobs(path, &RescheduleJobs { select, run_at }).await
            }
            JobCommand::Reprioritise(priority) => {
                let select = select.clone();
                self.on_jobs(path, &ReprioritiseJobs { select, priority }).await
            }
        }
    }

    /// Deletes jobs that finished longer ago than this, for two seconds at most. Repeat the call while the result says
    /// `more`.
    pub async fn drop_finished(
        &self,
        older_than: Duration,
        why: Option<&str>,
    ) -> Result<DroppedJobs, ClientError> {
        let body = DropFinishedJobs {
            older_than_sec: older_than.as_secs(),
            why: why.map(str::to_owned),
        };
        let call = Call::post(Address::of(&["jobs", "drop-finished"])).endless();
        self.call(call.json(&body)?).await
    }

    async fn on_jobs(&self, path: &str, body: &impl Serialize) -> Result<ChangedJobs, ClientError> {
        let call = Call::post(Address::of(&["jobs", path])).endless();
        self.call(call.json(body)?).await
    }
}
