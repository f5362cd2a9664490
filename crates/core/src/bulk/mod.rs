//! The bulk state machine: from enqueue to aggregated result.
//!
//! ```text
//!              run_at                       due
//!   enqueue ------------> delayed ---------------------+
//!      |                     ^  ^                      |
//!      |   throttled, retry, |  | denied by a window   |
//!      |   lease expired     |  | (hold = "job")       |
//!      v        admit        |  |     lease            v
//!   waiting ----------> ready --------------> running  (head of its flow: waiting)
//!      |  \________________________________/    |
//!      |            lease (no detour)           | settle
//!      | expired, cancelled                     v
//!      +------------------------------> completed | dead
//! ```
//!
//! [`Bulk::apply`] is the only entry point: it takes a [`Command`] and the wall clock and returns an
//! [`Outcome`]. It emits what must be persisted as [`Change`]s, in order. One file per transition.
//!
//! Invariant: a job is in exactly one state, its queue links are in exactly the list that its spot names, and
//! the counts of its group, batch and flow follow from that (`check` proves it in tests).
//! Invariant: a flow is in the order exactly while it has jobs and its group is not held.
//! Invariant: starts in a window never exceed the limit. A place in ready promises one unit of the rest of the window.
//! After the limit is lowered, or if a job costs more, jobs promised before wait in ready.

mod admit;
mod aggregate;
pub mod backlog;
mod batch;
mod cancel;
mod change_jobs;
mod check;
pub mod command;
pub mod config;
pub mod congestion;
pub mod dead;
mod enqueue;
pub mod estimate;
mod flow;
mod group;
mod job;
mod lease;
pub mod limiter;
mod limits;
mod list;
pub mod listing;
mod order;
mod paces;
mod pair;
mod pause;
mod pick;
pub mod policy;
mod purge;
mod query;
mod readable;
pub mod record;
pub mod refusal;
mod release;
mod remember;
mod replay;
pub mod restore;
mod retain;
pub mod run;
mod settle;
mod stats;
mod store_settings;
mod throttle;
pub mod transition;
pub mod views;
pub mod why;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

use batch::Batch;
pub use change_jobs::{ChangeJobsParams, JobCommand, JobCommandKind};
pub use command::*;
use flow::{Flow, Queue};
use group::Group;
pub use group::checked_base_priority;
use hashbrown::{HashMap, HashSet, HashTable};
use job::{Job, Kind};
pub use job::{JobState, default_queue};
use lease::LeaseEntry;
use limiter::WindowLimiter;
pub use limits::{
    CHANGES_KEPT, ConfigureLimitsParams, LimitChange, LimitSetting, LimitsRecord, MAX_QUEUES_SET,
    QueueLimits, Set, SetLimit, SetQueueLimits,
};
use list::{List, Slot};
pub use pair::ThrottleScope;
pub use purge::PurgeParams;
pub use record::Change;
use record::{BatchSeq, GroupSeq};
pub use refusal::{JobRefusal, Refusal};
pub use retain::{DropFinishedOutcome, DropFinishedParams};
pub use run::{LeaseExtension, Progress};
pub use settle::cut_error;
use siphasher::sip128::{Hasher128, SipHasher13};
use slab::Slab;
pub use stats::ResetStatsParams;
pub use transition::{Command, Outcome, Transition};

use self::config::BulkConfig;
use crate::config::ConfigError;
use crate::ids::{BatchId, GroupId, JobType, QueueId};
use crate::limits::downstream::Downstream;
use crate::limits::meter::Meter;
use crate::limits::throughput::Throughput;
use crate::time::{StoreClock, Timestamp};

/// Changes that a waiter may want to know about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals {
    /// A job may have become leasable.
    pub work: bool,
    /// A batch is complete.
    pub aggregate: bool,
    /// Something became due at a time that was not known before.
    pub timer: bool,
}

/// A secret of the store: keeps users from crafting ids with equal fingerprints.
pub type FingerprintKey = (u64, u64);

/// The bulk state machine. See the module documentation.
#[derive(Debug)]
pub struct Bulk {
    config: BulkConfig,
    fingerprint_key: FingerprintKey,
    clock: StoreClock,
    limiter: WindowLimiter,
    next_seq: u64,
    next_fence: u64,

    jobs: Slab<Job>,
    /// Slots by fingerprint, to detect duplicates.
    by_id: HashTable<Slot>,
    groups: Slab<Group>,
    group_slots: HashMap<GroupId, Slot>,
    /// For listings: groups in order of creation.
    groups_by_seq: BTreeMap<GroupSeq, Slot>,
    batches: Slab<Batch>,
    batch_slots: HashMap<(Slot, BatchId), Slot>,
    /// For listings: batches in order of creation.
    batches_by_seq: BTreeMap<BatchSeq, Slot>,
    flows: Slab<Flow>,
    queues: Vec<Queue>,
    queue_slots: HashMap<QueueId, u16>,
    kinds: Vec<Kind>,
    kind_slots: HashMap<JobType, u16>,

    /// Delayed jobs by due time, except those denied by a window, which wait in their flow.
    delayed: BTreeSet<(Timestamp, JobSeq, Slot)>,
    /// Leases by deadline.
    deadlines: BTreeSet<(Timestamp, JobSeq)>,
    leases: HashMap<JobSeq, LeaseEntry>,
    /// How many runs of a job were recorded, of jobs with any.
    runs: HashMap<Slot, u32>,
    /// Jobs that were cancelled while they ran: none of them starts again.
    cancelled_jobs: HashSet<Slot>,
    /// Unstarted jobs that expire.
    expiring: BTreeSet<(Timestamp, JobSeq, Slot)>,
    expiry: HashMap<Slot, Timestamp>,
    /// Costs other than one.
    costs: HashMap<Slot, u32>,
    /// Groups whose rate or share is used up, by when they may try again.
    held_groups: BTreeSet<(Timestamp, GroupSeq, Slot)>,
    /// Groups whose rate in a queue is used up, or that wait for their own downstream there, by when they may try again.
    held_pairs: BTreeSet<(Timestamp, GroupSeq, Slot, u16)>,
    /// Ready jobs of all queues: each has reserved a start in the window.
    ready: u64,
    active_groups: u64,

    /// Groups with finished jobs, by the time at which the oldest of them ended.
    finished: BTreeSet<(Timestamp, GroupSeq, Slot)>,
    /// Finished jobs in the lists of all groups.
    finished_jobs: u64,
    /// Groups with more finished jobs than one may keep.
    crowded: BTreeSet<(GroupSeq, Slot)>,
    /// For listings: dead jobs by the time of their death.
    dead_jobs: BTreeMap<(Timestamp, JobSeq), Slot>,
    finished_batches: BTreeSet<(Timestamp, BatchSeq, Slot)>,
    idle_groups: BTreeSet<(Timestamp, GroupSeq, Slot)>,
    /// Batches that wait for an aggregator, by the time at which one may claim them.
    aggregating: BTreeSet<(Timestamp, BatchSeq, Slot)>,
    /// Cancelled batches with jobs left to inspect.
    cancelling: BTreeSet<(BatchSeq, Slot)>,
    totals: stats::Totals,
    /// Rates that override the configuration.
    limits: limits::LimitsRecord,

    changes: Vec<Change>,
    signals: Signals,
}

impl Bulk {
    pub fn new(config: BulkConfig, fingerprint_key: FingerprintKey) -> Result<Self, ConfigError> {
        config.validate()?;
        let limiter = WindowLimiter::new(config.backpressure.rate());
        Ok(Self {
            config,
            fingerprint_key,
            clock: StoreClock::default(),
            limiter,
            next_seq: 1,
            next_fence: 1,
            jobs: Slab::new(),
            by_id: HashTable::new(),
            groups: Slab::new(),
            group_slots: HashMap::new(),
            groups_by_seq: BTreeMap::new(),
            batches: Slab::new(),
            batch_slots: HashMap::new(),
            batches_by_seq: BTreeMap::new(),
            flows: Slab::new(),
            queues: Vec::new(),
            queue_slots: HashMap::new(),
            kinds: Vec::new(),
            kind_slots: HashMap::new(),
            delayed: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            leases: HashMap::new(),
            runs: HashMap::new(),
            cancelled_jobs: HashSet::new(),
            expiring: BTreeSet::new(),
            expiry: HashMap::new(),
            costs: HashMap::new(),
            held_groups: BTreeSet::new(),
            held_pairs: BTreeSet::new(),
            ready: 0,
            active_groups: 0,
            finished: BTreeSet::new(),
            finished_jobs: 0,
            crowded: BTreeSet::new(),
            dead_jobs: BTreeMap::new(),
            finished_batches: BTreeSet::new(),
            idle_groups: BTreeSet::new(),
            aggregating: BTreeSet::new(),
            cancelling: BTreeSet::new(),
            totals: stats::Totals::default(),
            limits: limits::LimitsRecord::default(),
            changes: Vec::new(),
            signals: Signals::default(),
        })
    }

    /// Applies one command at wall time `wall`.
    pub fn apply(&mut self, command: Command, wall: Timestamp) -> Outcome {
        let now = self.clock.observe(wall);
        self.limiter.turn(now);
        match command {
            Command::Enqueue(p) => Outcome::Enqueue(self.enqueue(p, now)),
            Command::OpenBatch(p) => Outcome::OpenBatch(self.open_batch(p, now)),
            Command::SealBatch(p) => Outcome::SealBatch(self.seal_batch(p, now)),
            Command::Admit(p) => Outcome::Admit(self.admit(p, now)),
            Command::Lease(p) => Outcome::Lease(self.lease(p, now)),
            Command::Extend(p) => Outcome::Extend(self.extend(p, now)),
            Command::Settle(p) => Outcome::Settle(self.settle(p, now)),
            Command::ReleaseDue(p) => Outcome::ReleaseDue(self.release_due(p, now)),
            Command::ExpireLeases(p) => Outcome::ExpireLeases(self.expire_leases(p, now)),
            Command::ClaimAggregation(p) => Outcome::ClaimAggregation(self.claim_aggregation(p, now)),
            Command::FinishAggregation(p) => Outcome::FinishAggregation(self.finish_aggregation(p, now)),
            Command::ConfirmCompletion(p) => Outcome::ConfirmCompletion(self.confirm_completion(p)),
            Command::Pause(p) => Outcome::Pause(self.pause(p, now)),
            Command::Resume(p) => Outcome::Resume(self.resume(p, now)),
            Command::Cancel(p) => Outcome::Cancel(self.cancel(p, now)),
            Command::ConfigureGroup(p) => Outcome::ConfigureGroup(self.configure_group(p, now)),
            Command::Replay(p) => Outcome::Replay(self.replay(p, now)),
            Command::Purge(p) => Outcome::Purge(self.purge(p, now)),
            Command::ChangeJobs(p) => Outcome::ChangeJobs(self.change_jobs(p, now)),
            Command::ConfigureLimits(p) => Outcome::ConfigureLimits(self.configure_limits(p, now)),
            Command::DropFinished(p) => Outcome::DropFinished(self.drop_finished(p, now)),
            Command::SnapshotCongestion(_) => Outcome::SnapshotCongestion(self.snapshot_congestion(now)),
            Command::ResetStats(p) => Outcome::ResetStats(self.reset_stats(p)),
            Command::Query(q) => Outcome::Query(self.query(q, now)),
        }
    }

    /// Like [`Bulk::apply`], typed by the transition.
    pub fn call<T: Transition>(&mut self, params: T, wall: Timestamp) -> T::Outcome {
        T::outcome(self.apply(params.into_command(), wall))
    }

    /// Returns the changes to write since the last call, in order.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Returns the signals since the last call.
    pub fn take_signals(&mut self) -> Signals {
        std::mem::take(&mut self.signals)
    }

    pub fn config(&self) -> &BulkConfig {
        &self.config
    }

    pub fn clock(&self) -> StoreClock {
        self.clock
    }

    /// When the current window ends; see [`restore::Restore::spent_until`].
    pub fn window_end(&self) -> Timestamp {
        self.limiter.window_end()
    }

    /// A 128-bit fingerprint that stands for a job id in memory. It is keyed, so nobody can craft equal ones;
    /// by chance two collide once in 2^64 jobs.
    fn fingerprint(&self, group: GroupSeq, id: &str) -> u128 {
        let mut hasher = SipHasher13::new_with_keys(self.fingerprint_key.0, self.fingerprint_key.1);
        hasher.write_u64(group.0);
        hasher.write(id.as_bytes());
        hasher.finish128().as_u128()
    }

    fn find_job(&self, fingerprint: u128) -> Option<Slot> {
        let jobs = &self.jobs;
        self.by_id
            .find(fingerprint as u64, |&slot| {
                jobs[slot as usize].fingerprint == fingerprint
            })
            .copied()
    }

    fn index_job(&mut self, fingerprint: u128, slot: Slot) {
        let jobs = &self.jobs;
        self.by_id
            .insert_unique(fingerprint as u64, slot, |&s| jobs[s as usize].fingerprint as u64);
    }

    fn unindex_job(&mut self, fingerprint: u128, slot: Slot) {
        if let Ok(entry) = self.by_id.find_entry(fingerprint as u64, |&s| s == slot) {
            entry.remove();
        }
    }

    /// Sequence numbers below this have been assigned.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    fn give_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    /// The queue of this name; created on first use.
    fn queue(&mut self, name: &QueueId) -> u16 {
        if let Some(&queue) = self.queue_slots.get(name) {
            return queue;
        }
        let queue = self.queues.len() as u16;
        let limits = self.limits.of_queue(&self.config, name);
        let rate = self.limits.rate(&self.config, Some(name));
        self.queues.push(Queue {
            name: name.clone(),
            orders: Default::default(),
            credits: Default::default(),
            ready: List::default(),
            groups: 0,
            unfinished: 0,
            delayed: 0,
            meter: Meter::default(),
            running: 0,
            max_running: limits.max_running,
            rps: rate.per_second(),
            rate: rate.in_windows(self.limiter.length()),
            per_group: limits.per_group,
            downstream: Downstream::default(),
            throughput: Throughput::default(),
            asked: Timestamp(0),
        });
        self.queue_slots.insert(name.clone(), queue);
        queue
    }

    /// The job type of this name with its settings; created on first use.
    fn kind(&mut self, name: &JobType) -> Result<u16, JobRefusal> {
        if let Some(&kind) = self.kind_slots.get(name) {
            return Ok(kind);
        }
        let settings = self.config.job_types.get(name).cloned();
        if settings.is_none() && self.config.limits.known_job_types_only {
            return Err(JobRefusal::UnknownType(name.clone()));
        }
        if self.kinds.len() >= usize::from(u16::MAX) {
            return Err(JobRefusal::TooManyTypes(name.clone()));
        }
        let settings = settings.unwrap_or_default();
        let queue = self.queue(&settings.queue.unwrap_or_else(default_queue));
        let (pool, pressure) = (&self.config.worker_pool, &self.config.backpressure);
        let kind = self.kinds.len() as u16;
        self.kinds.push(Kind {
            name: name.clone(),
            queue,
            max_retries: settings.max_retry_count.unwrap_or(pool.max_retry_count),
            timeout: settings.timeout_ms.unwrap_or(pool.job_timeout_ms),
            backoff: settings.backoff_ms.unwrap_or(pressure.default_backoff_ms),
            max_backoff: settings.max_backoff_ms.unwrap_or(pressure.max_backoff_ms),
        });
        self.kind_slots.insert(name.clone(), kind);
        Ok(kind)
    }
}
