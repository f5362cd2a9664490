//! The pure state machine behind the [`super::BulkStore`] trait: nothing durable, nothing shared. It is the
//! reference that every other backend must match.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::record::{RUNS_KEPT, RunRecord, StoredState};
use tidegate_core::bulk::views::{Cursor, DeadFilter, FoundView, JobFilter, JobView, Page, Query, View};
use tidegate_core::bulk::{Bulk, Change, Command, JobSeq, LeaseOutcome, LeaseParams, Outcome, Refusal};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Timestamp;
use tidegate_durable::{Model, Volatile};

use super::job_runs::{LastRun, runs};
use super::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob};
use crate::StoreError;

/// Ids, payloads and results, which the state machine does not keep.
#[derive(Debug, Default)]
struct Bodies {
    jobs: HashMap<JobSeq, (JobId, Bytes, Timestamp)>,
    runs: HashMap<JobSeq, Vec<RunRecord>>,
    ends: HashMap<JobSeq, StoredState>,
}

#[derive(Debug)]
struct State {
    bulk: Bulk,
    bodies: Bodies,
}

/// Jobs in memory.
pub struct ModelBulkStore {
    model: Model<State>,
    notifier: Arc<BulkNotifier>,
}

impl fmt::Debug for ModelBulkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelBulkStore").finish_non_exhaustive()
    }
}

impl Volatile for State {
    fn discard_changes(&mut self) {
        for change in self.bulk.take_changes() {
            self.bodies.keep(change);
        }
    }
}

impl ModelBulkStore {
    pub fn new(config: BulkConfig, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        let bulk = Bulk::new(config, (0, 0)).map_err(|error| StoreError::Config(error.to_string()))?;
        let state = State {
            bulk,
            bodies: Bodies::default(),
        };
        Ok(Self {
            model: Model::new(state, clock),
            notifier: Arc::default(),
        })
    }

    fn apply_now(&self, command: Command) -> Outcome {
        let (outcome, signals) = self.model.run_now(|state, now| {
            let outcome = state.bulk.apply(command, now);
            if cfg!(debug_assertions) {
                state.bulk.check();
            }
            (outcome, state.bulk.take_signals())
        });
        self.notifier.notify(signals);
        outcome
    }

    fn found(&self, page: Page<FoundView>) -> Page<FoundJob> {
        let state = self.model.state();
        let details = |FoundView { group, job }| FoundJob {
            group,
            details: state.bodies.details(job),
        };
        Page {
            items: page.items.into_iter().map(details).collect(),
            next: page.next,
        }
    }

    fn view(&self, query: Query) -> Result<View, Refusal> {
        let Outcome::Query(view) = self.apply_now(Command::Query(query)) else {
            unreachable!("a query is answered with a view")
        };
        view
    }
}

impl Bodies {
    fn keep(&mut self, change: Change) {
        match change {
            Change::AddJob(job) => {
                self.jobs.insert(job.seq, (job.id, job.payload, job.created_at));
            }
            Change::PutState(seq, state) => {
                self.ends.insert(seq, state.state);
            }
            Change::AddRun(seq, run) => {
                let runs = self.runs.entry(seq).or_default();
                runs.push(run);
                let extra = runs.len().saturating_sub(RUNS_KEPT as usize);
                runs.drain(..extra);
            }
            Change::DropJob(seq) => {
                self.runs.remove(&seq);
                self.jobs.remove(&seq);
                self.ends.remove(&seq);
            }
            _ => {}
        }
    }

    fn details(&self, view: JobView) -> JobDetails {
        let (id, payload, created_at) = self.jobs[&view.seq].clone();
        let records = self.runs.get(&view.seq).cloned().unwrap_or_default();
        let mut completed = None;
        let (result, error) = match self.ends.get(&view.seq) {
            Some(StoredState::Completed {
                result,
                started_at,
                worker,
                ..
            }) => {
                completed = Some(LastRun {
                    started_at: *started_at,
                    worker: worker.clone(),
                });
                (Some(result.clone()), None)
            }
            Some(StoredState::Dead { error, .. }) => (None, Some(error.clone())),
            _ => (None, None),
        };
        JobDetails {
            id,
            created_at,
            runs: runs(records, &view, completed),
            view,
            payload,
            result,
            error,
        }
    }
}

#[async_trait]
impl BulkStore for ModelBulkStore {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        Ok(self.apply_now(command))
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let Outcome::Lease(outcome) = self.apply_now(Command::Lease(params)) else {
            unreachable!("a lease is answered with leases")
        };
        let state = self.model.state();
        let jobs = outcome
            .jobs
            .into_iter()
            .map(|leased| {
                let (id, payload, _) = state.bodies.jobs[&leased.lease.job].clone();
                LeasedJob { leased, id, payload }
            })
            .collect();
        Ok(LeaseOutcome {
            jobs,
            stop: outcome.stop,
        })
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        Ok(self.view(Query::Job(group.clone(), job.clone())).map(|view| {
            let View::Job(view) = view else {
                unreachable!("a job is answered with a job")
            };
            self.model.state().bodies.details(view)
        }))
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        let query = Query::BatchJobs {
            group: group.clone(),
            batch: batch.clone(),
            after,
            max,
        };
        Ok(self.view(query).map(|view| {
            let View::BatchJobs(page) = view else {
                unreachable!("jobs are answered with jobs")
            };
            let state = self.model.state();
            let items = page
                .items
                .into_iter()
                .map(|view| state.bodies.details(view))
                .collect();
            Page {
                items,
                next: page.next,
            }
        }))
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let filter = filter.clone();
        let Ok(View::Dead(page)) = self.view(Query::Dead { filter, after, max }) else {
            unreachable!("the dead are answered with the dead")
        };
        Ok(self.found(page))
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let filter = filter.clone();
        let Ok(View::Jobs(page)) = self.view(Query::Jobs { filter, after, max }) else {
            unreachable!("jobs are answered with jobs")
        };
        Ok(self.found(page))
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.notifier.clone()
    }
}
