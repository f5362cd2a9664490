//! The embedded store: the state machine in this process, durable in a data folder.
//!
//! ```text
//!   callers --inbox--> owner thread: apply, apply, apply --commits--> committer thread: write, sync, reply
//!      |                                                                 |
//!      +------------------------ payloads <------------------------ durable layer (disk)
//! ```
//!
//! Memory holds the indexes, rebuilt at start. Payloads and results stay on disk, and callers read them
//! directly. Every reply is durable, except leases: they are written at once but synced lazily, because a
//! restart issues larger fencing tokens than before and counts the running window as spent.

mod codec;
mod committer;
pub mod disk;
mod encoder;
mod fjall_disk;
mod folder;
pub mod memory_disk;
mod owner;
mod recover;
pub mod refresh;
pub mod room;
mod runner;
mod transfer;

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tidegate_core::bulk::record::StoredState;
use tidegate_core::bulk::views::{Cursor, DeadFilter, DeadView, JobView, Page, Query, View};
use tidegate_core::bulk::{Command, JobSeq, LeaseOutcome, LeaseParams, Outcome, Refusal};
use tidegate_core::config::BulkConfig;
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tokio::sync::{mpsc, oneshot};

use self::committer::{Committer, Poison};
use self::disk::{Disk, DiskError, Table};
use self::fjall_disk::FjallDisk;
use self::owner::{Message, Owner};
use crate::{Clock, DeadJob, JobDetails, LeasedJob, Notifier, Store, StoreError, SystemClock};

/// Limit: commands that wait for the owner thread; further callers wait.
const INBOX: usize = 1_024;

/// When the store replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A reply means on disk.
    #[default]
    Sync,
    /// A reply means written: survives the process, but a power cut may lose the last moments.
    Buffered,
}

#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    pub folder: PathBuf,
    pub durability: Durability,
    pub config: BulkConfig,
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedOptions {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            durability: Durability::default(),
            config: BulkConfig::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

pub struct EmbeddedStore {
    inbox: mpsc::Sender<Message>,
    disk: Arc<dyn Disk>,
    notifier: Arc<Notifier>,
    /// Bytes of the files on a real disk.
    disk_bytes: Option<FjallDisk>,
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Opens the data folder, creates it if it is missing, and rebuilds the indexes.
    pub fn open(options: EmbeddedOptions) -> Result<Self, StoreError> {
        options
            .config
            .validate()
            .map_err(|error| StoreError::Config(error.to_string()))?;
        folder::prepare(&options.folder)?;
        let disk =
            FjallDisk::open(&options.folder.join("bulk"), Table::BULK).map_err(|error| match error {
                StoreError::Locked(_) => StoreError::Locked(options.folder.clone()),
                other => other,
            })?;
        let mut store = Self::start(
            Arc::new(disk.clone()),
            options.config,
            options.clock,
            options.durability,
            false,
        )?;
        store.disk_bytes = Some(disk);
        Ok(store)
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
        let notifier = Arc::new(Notifier::default());
        let poison = Poison::default();
        let committer = Committer::new(disk.clone(), durability, encoder.spent_until(), poison.clone());
        let (tasks, waiting) = std_mpsc::sync_channel(committer::MAX_WAITING);
        let owner = Owner {
            bulk,
            encoder,
            committer: tasks,
            clock,
            notifier: notifier.clone(),
            checked,
            poison,
        };
        let (sender, inbox) = mpsc::channel(INBOX);
        spawn("tidegate-committer", move || committer.run(waiting))?;
        spawn("tidegate-store", move || owner.run(inbox))?;
        Ok(Self {
            inbox: sender,
            disk,
            notifier,
            disk_bytes: None,
        })
    }

    /// Finishes pending commands, syncs and releases the folder.
    pub async fn close(self) -> Result<(), StoreError> {
        let (reply, done) = oneshot::channel();
        let Self {
            inbox,
            disk,
            disk_bytes,
            ..
        } = self;
        // The committer drops the last reference, so that the lock is gone when it replies.
        drop((disk, disk_bytes));
        inbox
            .send(Message::Close(reply))
            .await
            .map_err(|_| StoreError::Closed)?;
        done.await.map_err(|_| StoreError::Closed)?
    }

    /// Bytes of the tables on disk, without the journal; 0 on a durable layer that is not a disk.
    pub fn disk_bytes(&self) -> u64 {
        self.disk_bytes.as_ref().map_or(0, FjallDisk::disk_bytes)
    }

    async fn ask<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Message,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.inbox
            .send(message(reply))
            .await
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    pub(crate) async fn snapshot(&self) -> Result<Box<dyn disk::Reader>, StoreError> {
        self.ask(Message::Snapshot).await
    }

    async fn view(&self, query: Query) -> Result<Result<View, Refusal>, StoreError> {
        match self.apply(Command::Query(query)).await? {
            Outcome::Query(view) => Ok(view),
            other => unreachable!("a query is answered with a view, not {other:?}"),
        }
    }

    fn read_job(&self, seq: JobSeq) -> Result<Option<(JobId, Bytes)>, StoreError> {
        let Some(bytes) = self.disk.get(Table::Jobs, seq.0).map_err(corrupt)? else {
            return Ok(None);
        };
        let bytes = Bytes::from(bytes);
        let job = codec::decode_job(seq.0, &bytes).map_err(corrupt)?;
        let id = JobId::new(job.head.id).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let payload = match job.payload {
            Some(inline) => bytes.slice_ref(inline),
            None => {
                let blob = self
                    .disk
                    .get(Table::Blobs, codec::payload_blob(seq))
                    .map_err(corrupt)?;
                blob.ok_or_else(|| StoreError::Corrupt(format!("job {} lost its payload", seq.0)))?
                    .into()
            }
        };
        Ok(Some((id, payload)))
    }

    fn read_end(&self, seq: JobSeq) -> Result<Option<StoredState>, StoreError> {
        let Some(bytes) = self.disk.get(Table::States, seq.0).map_err(corrupt)? else {
            return Ok(None);
        };
        let (mut state, blob) = codec::decode_state(&bytes).map_err(corrupt)?;
        if blob
            && let Some(result) = self
                .disk
                .get(Table::Blobs, codec::result_blob(seq))
                .map_err(corrupt)?
        {
            codec::with_result(&mut state.state, result);
        }
        Ok(Some(state.state))
    }

    /// None if the job was dropped since the lookup.
    fn details(&self, view: JobView) -> Result<Option<JobDetails>, StoreError> {
        let Some((id, payload)) = self.read_job(view.seq)? else {
            return Ok(None);
        };
        let (result, error) = match self.read_end(view.seq)? {
            Some(StoredState::Completed { result, .. }) => (Some(result), None),
            Some(StoredState::Dead { error, .. }) => (None, Some(error)),
            _ => (None, None),
        };
        Ok(Some(JobDetails {
            id,
            view,
            payload,
            result,
            error,
        }))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
    let spawned = thread::Builder::new().name(name.into()).spawn(work);
    spawned
        .map(drop)
        .map_err(|error| StoreError::Config(format!("the thread {name} does not start: {error}")))
}

fn corrupt(error: DiskError) -> StoreError {
    StoreError::Corrupt(error.to_string())
}

/// The randomness comes from the standard library's hasher keys.
fn random_key() -> (u64, u64) {
    let word = || RandomState::new().build_hasher().finish();
    (word(), word())
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        self.ask(|reply| Message::Apply(command, reply)).await
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let Outcome::Lease(outcome) = self.apply(Command::Lease(params)).await? else {
            unreachable!("a lease is answered with leases")
        };
        let mut jobs = Vec::with_capacity(outcome.jobs.len());
        for leased in outcome.jobs {
            let seq = leased.lease.job;
            let (id, payload) = self
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
    ) -> Result<Page<DeadJob>, StoreError> {
        let filter = filter.clone();
        let page = match self.view(Query::Dead { filter, after, max }).await? {
            Ok(View::Dead(page)) => page,
            other => unreachable!("the dead are answered with the dead, not {other:?}"),
        };
        let mut items = Vec::with_capacity(page.items.len());
        for DeadView { group, batch, job } in page.items {
            items.extend(self.details(job)?.map(|details| DeadJob {
                group,
                batch,
                details,
            }));
        }
        Ok(Page {
            items,
            next: page.next,
        })
    }

    fn notifier(&self) -> Arc<Notifier> {
        self.notifier.clone()
    }
}
