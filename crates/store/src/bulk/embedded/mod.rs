//! The embedded store of the bulk part: the state machine in this process, durable in a data folder.
//!
//! A [`Runner`] owns the state machine and its disk. Memory holds the indexes, rebuilt at start. Payloads and results stay
//! on disk, and callers read them directly. Every reply is durable, except leases: they are written at once but synced
//! lazily, because a restart issues larger fencing tokens than before and counts the running window as spent.

mod codec;
mod encoder;
mod persistence;
mod recover;
mod tables;
mod transfer;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::record::{JobProgress, RunRecord, StoredState};
use tidegate_core::bulk::views::{Cursor, DeadFilter, FoundView, JobFilter, JobView, Page, Query, View};
use tidegate_core::bulk::{Bulk, Command, JobSeq, LeaseOutcome, LeaseParams, Outcome, Refusal};
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Timestamp;
use tidegate_durable::codec::decode;
use tidegate_durable::{
    Disk, Durability, DurableError, Reader, ReplyAfter, Run, Runner, RunnerOptions, folder,
};

use self::persistence::BulkPersistence;
use self::tables::{BLOBS, JOBS, RUNS, STATES};
use super::job_runs::{LastRun, runs};
use super::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob};
use crate::StoreError;

/// Its sub-folder of the data folder.
const FOLDER: &str = "bulk";

#[derive(Debug, Clone)]
pub struct EmbeddedBulkOptions {
    /// The data folder, shared with the other parts, which have their own sub-folders.
    pub folder: PathBuf,
    pub durability: Durability,
    pub config: BulkConfig,
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedBulkOptions {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            durability: Durability::default(),
            config: BulkConfig::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Jobs in a data folder.
pub struct EmbeddedBulkStore {
    runner: Runner<Bulk>,
    disk: Arc<dyn Disk>,
    notifier: Arc<BulkNotifier>,
}

impl fmt::Debug for EmbeddedBulkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBulkStore").finish_non_exhaustive()
    }
}

impl EmbeddedBulkStore {
    /// Opens the data folder, creates it if it is missing, and rebuilds the indexes.
    pub fn open(options: EmbeddedBulkOptions) -> Result<Self, StoreError> {
        let EmbeddedBulkOptions {
            folder,
            durability,
            config,
            clock,
        } = options;
        config
            .validate()
            .map_err(|error| StoreError::Config(error.to_string()))?;
        let disk = folder::open(&folder, FOLDER, &tables::ALL)?;
        Self::start(Arc::new(disk), config, clock, durability, false)
    }

    /// Opens on a durable layer whose power a test can cut, and proves the invariants after every batch.
    pub fn open_for_test(
        disk: Arc<dyn Disk>,
        config: BulkConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        Self::start(disk, config, clock, Durability::Sync, true)
    }

    fn start(
        disk: Arc<dyn Disk>,
        config: BulkConfig,
        clock: Arc<dyn Clock>,
        durability: Durability,
        checked: bool,
    ) -> Result<Self, StoreError> {
        let (bulk, encoder) = recover::recover(&*disk, config, random_key(), clock.now())?;
        let notifier = Arc::new(BulkNotifier::default());
        let options = RunnerOptions {
            durability,
            mark: encoder.spent_until().0,
            ..RunnerOptions::new("tidegate-bulk")
        };
        let persistence = BulkPersistence {
            bulk,
            encoder,
            notifier: notifier.clone(),
            checked,
        };
        Ok(Self {
            runner: Runner::start(persistence, disk.clone(), clock, options)?,
            disk,
            notifier,
        })
    }

    /// Finishes pending commands, syncs and releases the folder.
    pub async fn close(self) -> Result<(), StoreError> {
        // The runner drops the last reference, so that the lock is gone when it replies.
        drop(self.disk);
        Ok(self.runner.close().await?)
    }

    /// Bytes of the tables on disk, without the journal; 0 on a durable layer that is not a disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk.bytes()
    }

    pub(crate) async fn snapshot(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(self.runner.snapshot().await?)
    }

    async fn view(&self, query: Query) -> Result<Result<View, Refusal>, StoreError> {
        match self.apply(Command::Query(query)).await? {
            Outcome::Query(view) => Ok(view),
            other => unreachable!("a query is answered with a view, not {other:?}"),
        }
    }

    fn read_job(&self, seq: JobSeq) -> Result<Option<(JobId, Bytes, Timestamp)>, StoreError> {
        let Some(bytes) = self.disk.get(JOBS, seq.0).map_err(DurableError::from)? else {
            return Ok(None);
        };
        let bytes = Bytes::from(bytes);
        let job = codec::decode_job(seq.0, &bytes).map_err(DurableError::from)?;
        let id = JobId::new(job.head.id).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let payload = match job.payload {
            Some(inline) => bytes.slice_ref(inline),
            None => {
                let blob = self
                    .disk
                    .get(BLOBS, codec::payload_blob(seq))
                    .map_err(DurableError::from)?;
                blob.ok_or_else(|| StoreError::Corrupt(format!("job {} lost its payload", seq.0)))?
                    .into()
            }
        };
        Ok(Some((id, payload, job.head.created_at)))
    }

    fn read_state(&self, seq: JobSeq) -> Result<Option<JobProgress>, StoreError> {
        let Some(bytes) = self.disk.get(STATES, seq.0).map_err(DurableError::from)? else {
            return Ok(None);
        };
        let (mut state, blob) = codec::decode_state(&bytes).map_err(DurableError::from)?;
        if blob
            && let Some(result) = self
                .disk
                .get(BLOBS, codec::result_blob(seq))
                .map_err(DurableError::from)?
        {
            codec::with_result(&mut state.state, result);
        }
        Ok(Some(state))
    }

    fn read_runs(&self, seq: JobSeq, recorded: u32) -> Result<Vec<RunRecord>, StoreError> {
        let mut runs = Vec::new();
        for number in codec::runs_kept(recorded) {
            let bytes = self.disk.get(RUNS, codec::run_key(seq, number));
            if let Some(bytes) = bytes.map_err(DurableError::from)? {
                let run: RunRecord = decode("a run", &bytes).map_err(DurableError::from)?;
                runs.push(run);
            }
        }
        // A run that ended meanwhile may have taken the place of the first one.
        runs.sort_unstable_by_key(|run| run.number);
        Ok(runs)
    }

    fn found(&self, page: Page<FoundView>) -> Result<Page<FoundJob>, StoreError> {
        let mut items = Vec::with_capacity(page.items.len());
        for FoundView { group, job } in page.items {
            items.extend(self.details(job)?.map(|details| FoundJob { group, details }));
        }
        Ok(Page {
            items,
            next: page.next,
        })
    }

    /// None if the job was dropped since the lookup.
    fn details(&self, view: JobView) -> Result<Option<JobDetails>, StoreError> {
        let Some((id, payload, created_at)) = self.read_job(view.seq)? else {
            return Ok(None);
        };
        let state = self.read_state(view.seq)?;
        let records = self.read_runs(view.seq, state.as_ref().map_or(0, |state| state.runs))?;
        let mut completed = None;
        let (result, error) = match state.map(|state| state.state) {
            Some(StoredState::Completed {
                result,
                started_at,
                worker,
                ..
            }) => {
                completed = Some(LastRun { started_at, worker });
                (Some(result), None)
            }
            Some(StoredState::Dead { error, .. }) => (None, Some(error)),
            _ => (None, None),
        };
        Ok(Some(JobDetails {
            id,
            created_at,
            runs: runs(records, &view, completed),
            view,
            payload,
            result,
            error,
        }))
    }
}

/// The randomness comes from the standard library's hasher keys.
fn random_key() -> (u64, u64) {
    let word = || RandomState::new().build_hasher().finish();
    (word(), word())
}

#[async_trait]
impl BulkStore for EmbeddedBulkStore {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        let work = |bulk: &mut Bulk, now: Timestamp| {
            let outcome = bulk.apply(command, now);
            let after = match &outcome {
                Outcome::Lease(lease) if !lease.jobs.is_empty() => ReplyAfter::Mark(bulk.window_end().0),
                _ => ReplyAfter::Sync,
            };
            (outcome, after)
        };
        Ok(self.runner.run(work).await?)
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let Outcome::Lease(outcome) = self.apply(Command::Lease(params)).await? else {
            unreachable!("a lease is answered with leases")
        };
        let mut jobs = Vec::with_capacity(outcome.jobs.len());
        for leased in outcome.jobs {
            let seq = leased.lease.job;
            let (id, payload, _) = self
                .read_job(seq)?
                .ok_or_else(|| StoreError::Corrupt(format!("leased job {} is not on disk", seq.0)))?;
            jobs.push(LeasedJob { leased, id, payload });
        }
        Ok(LeaseOutcome {
            jobs,
            stop: outcome.stop,
        })
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        let view = match self.view(Query::Job(group.clone(), job.clone())).await? {
            Ok(View::Job(view)) => view,
            Ok(other) => unreachable!("a job is answered with a job, not {other:?}"),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let gone = || Refusal::UnknownJob {
            group: group.clone(),
            job: job.clone(),
        };
        Ok(self.details(view)?.ok_or_else(gone))
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
        let page = match self.view(query).await? {
            Ok(View::BatchJobs(page)) => page,
            Ok(other) => unreachable!("jobs are answered with jobs, not {other:?}"),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut items = Vec::with_capacity(page.items.len());
        for view in page.items {
            items.extend(self.details(view)?);
        }
        Ok(Ok(Page {
            items,
            next: page.next,
        }))
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let filter = filter.clone();
        let page = match self.view(Query::Dead { filter, after, max }).await? {
            Ok(View::Dead(page)) => page,
            other => unreachable!("dead jobs are answered with dead jobs, not {other:?}"),
        };
        self.found(page)
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let filter = filter.clone();
        let page = match self.view(Query::Jobs { filter, after, max }).await? {
            Ok(View::Jobs(page)) => page,
            other => unreachable!("jobs are answered with jobs, not {other:?}"),
        };
        self.found(page)
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.notifier.clone()
    }
}
