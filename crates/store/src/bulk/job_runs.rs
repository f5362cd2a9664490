//! The runs of a job as a store shows them: those that were recorded, and the one that completed the job or is under way.

use serde::Serialize;
use tidegate_core::bulk::record::{RUNS_KEPT, RunOutcome, RunRecord};
use tidegate_core::bulk::views::JobView;
use tidegate_core::ids::Owner;
use tidegate_core::time::Timestamp;

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRun {
    /// Counts the runs of the job from 1, across replays. A released run does not count.
    pub number: u32,
    /// None if the process that leased the job ended before it wrote that down.
    pub started_at: Option<Timestamp>,
    /// None while it is under way.
    pub ended_at: Option<Timestamp>,
    pub worker: Owner,
    /// None while it is under way.
    pub outcome: Option<RunOutcome>,
    pub error: Option<String>,
}

/// The run that completed a job.
#[derive(Debug)]
pub(super) struct LastRun {
    pub(super) started_at: Option<Timestamp>,
    pub(super) worker: Owner,
}

/// The latest runs of a job, the oldest first.
pub(super) fn runs(records: Vec<RunRecord>, view: &JobView, completed: Option<LastRun>) -> Vec<JobRun> {
    let number = records.last().map_or(0, |last| last.number) + 1;
    let mut runs: Vec<JobRun> = records.into_iter().map(JobRun::from).collect();
    if let Some(LastRun { started_at, worker }) = completed {
        runs.push(JobRun {
            number,
            started_at,
            ended_at: view.finished_at,
            worker,
            outcome: Some(RunOutcome::Completed),
            error: None,
        });
    }
    if let Some(running) = &view.running {
        runs.push(JobRun {
            number,
            started_at: running.started_at,
            ended_at: None,
            worker: running.worker.clone(),
            outcome: None,
            error: None,
        });
    }
    let extra = runs.len().saturating_sub(RUNS_KEPT as usize);
    runs.drain(..extra);
    runs
}

impl From<RunRecord> for JobRun {
    fn from(record: RunRecord) -> Self {
        Self {
            number: record.number,
            started_at: record.started_at,
            ended_at: Some(record.ended_at),
            worker: record.worker,
            outcome: Some(record.outcome),
            error: record.error,
        }
    }
}
