//! Deterministic simulation: random commands, slow and dead workers, duplicate and late answers, crashes
//! at any step and clock steps, by seed.
//!
//! The store under test is the embedded one on a disk that loses unsynced data or, without crashes, any other store.
//! Time is a number that the simulation advances. After every step the store checks its invariants (`Bulk::check`), and
//! the oracle checks every answer against earlier promises. At the end everything must drain: no accepted job is lost,
//! none counts twice, nothing is stuck.
//!
//! The same seed gives the same trace.

mod actors;
mod change;
mod dead;
mod fairness;
mod oracle;
mod profile;
mod rates;
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use fairness::FairShares;
use oracle::Oracle;
use profile::Profile;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{BulkStats, GroupView, LimitsView, Query, View};
use tidegate_core::bulk::{GroupLimits, LeaseRef, Transition};
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::GroupId;
use tidegate_core::rng::Rng;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_durable::DurableError;
use tidegate_durable::memory_disk::MemoryDisk;
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkStore, BulkStoreExt, EmbeddedBulkStore};
use tidegate_testkit::{Trace, simulation};
use tokio::runtime::Runtime;

const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

/// What a run has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) seed: u64,
    /// Equal for equal histories.
    pub(super) trace: u64,
    pub(super) commands: u64,
    pub(super) jobs: u64,
    pub(super) starts: u64,
    pub(super) crashes: u64,
}

/// Runs one seed for this many steps, then drains. Panics on the first broken promise; the message ends with the last
/// steps of the history.
pub(super) fn run(seed: u64, steps: u64) -> Report {
    simulation::holds(seed, steps, Simulation::new)
}

/// The same without crashes, on the store that `open` creates.
pub(super) fn run_on<F>(seed: u64, steps: u64, open: F) -> Report
where
    F: AsyncFn(BulkConfig, Arc<ManualClock>) -> Arc<dyn BulkStore>,
{
    simulation::holds(seed, steps, |seed| Simulation::on(seed, &open))
}

struct Simulation {
    seed: u64,
    rng: Rng,
    profile: Profile,
    runtime: Runtime,
    clock: Arc<ManualClock>,
    wall: Timestamp,
    disk: MemoryDisk,
    store: Arc<dyn BulkStore>,
    oracle: Oracle,
    fair: FairShares,
    /// Jobs picked into ready; None while that is not known.
    ready: Option<std::collections::BTreeSet<tidegate_core::bulk::JobSeq>>,
    trace: Trace,
    next_job: u64,
    next_batch: u64,
    /// Leases that are over, for late and duplicate answers.
    old_leases: Vec<LeaseRef>,
    crashes: u64,
    /// The limits as last read; none before the first read.
    limits: Option<LimitsView>,
    /// Those of groups, as last read.
    group_limits: HashMap<u64, GroupLimits>,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let disk = MemoryDisk::default();
        Self::begin(seed, disk.clone(), |profile, clock, _| {
            open(&disk, profile, clock)
        })
    }

    fn on(seed: u64, open: &impl AsyncFn(BulkConfig, Arc<ManualClock>) -> Arc<dyn BulkStore>) -> Self {
        Self::begin(seed, MemoryDisk::default(), |profile, clock, runtime| {
            profile.crashes = false;
            runtime.block_on(open(profile.config.clone(), clock.clone()))
        })
    }

    fn begin(
        seed: u64,
        disk: MemoryDisk,
        open: impl FnOnce(&mut Profile, &Arc<ManualClock>, &Runtime) -> Arc<dyn BulkStore>,
    ) -> Self {
        let mut rng = Rng::new(seed);
        let mut profile = Profile::of(&mut rng);
        let clock = Arc::new(ManualClock::at(BEGIN));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let store = open(&mut profile, &clock, &runtime);
        Self {
            seed,
            rng,
            profile,
            runtime,
            clock,
            wall: BEGIN,
            disk,
            store,
            oracle: Oracle::default(),
            fair: FairShares::default(),
            ready: Some(Default::default()),
            trace: Trace::default(),
            next_job: 0,
            next_batch: 0,
            old_leases: Vec::new(),
            crashes: 0,
            limits: None,
            group_limits: HashMap::new(),
        }
    }

    /// One command and its answer.
    fn call<T>(&mut self, params: T) -> Result<T::Outcome, StoreError>
    where
        T: Transition + std::fmt::Debug + Clone + Send + 'static,
        T::Outcome: std::fmt::Debug,
    {
        let asked = format!("{params:?}");
        let answer = self.runtime.block_on(self.store.call(params));
        self.trace.add(self.wall.0, &asked, &answer);
        answer
    }

    /// A command without a crash.
    fn sure<T>(&mut self, params: T) -> T::Outcome
    where
        T: Transition + std::fmt::Debug + Clone + Send + 'static,
        T::Outcome: std::fmt::Debug,
    {
        self.call(params)
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    /// A query that is not part of the trace.
    fn read(&mut self, query: Query) -> <Query as Transition>::Outcome {
        let answer = self.runtime.block_on(self.store.call(query));
        answer.unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    /// Like [`Simulation::sure`], but sometimes the power fails before the answer is durable. Then the store returns with or
    /// without the command, and the answer is `None`.
    fn risky<T>(&mut self, params: T) -> Option<T::Outcome>
    where
        T: Transition + std::fmt::Debug + Clone + Send + 'static,
        T::Outcome: std::fmt::Debug,
    {
        if !self.profile.crashes || !self.rng.percent(2) {
            return Some(self.sure(params));
        }
        self.disk.fail_syncs(true);
        let answer = self.call(params);
        match answer {
            Ok(outcome) => {
                self.disk.fail_syncs(false);
                Some(outcome)
            }
            Err(error) => {
                assert!(
                    matches!(error, StoreError::Durable(DurableError::Poisoned(_))),
                    "{error}"
                );
                let kept = self.rng.below(self.disk.unsynced_batches() as u64 + 1);
                self.restart(self.disk.after_power_cut(kept as usize));
                None
            }
        }
    }

    fn crash(&mut self) {
        let disk = if self.rng.percent(50) {
            self.disk.after_kill()
        } else {
            let kept = self.rng.below(self.disk.unsynced_batches() as u64 + 1);
            self.disk.after_power_cut(kept as usize)
        };
        self.restart(disk);
    }

    fn restart(&mut self, disk: MemoryDisk) {
        self.crashes += 1;
        self.trace.note(self.wall.0, "restart");
        self.disk = disk;
        self.store = open(&self.disk, &self.profile, &self.clock);
        self.old_leases.extend(self.oracle.current_leases());
        self.oracle.crashed();
        self.fair.reset();
        self.ready = Some(Default::default());
    }

    fn move_time(&mut self, by: Millis) {
        self.wall = self.wall + by;
        self.clock.set(self.wall);
    }

    fn step_clock(&mut self) {
        let far = Millis(self.rng.between(1, 20_000));
        self.wall = if self.rng.percent(50) {
            self.wall + far
        } else {
            self.wall - far
        };
        self.clock.set(self.wall);
        self.trace.note(self.wall.0, "clock step");
    }

    fn group(&self, index: u64) -> GroupId {
        // Names that other systems stumble over.
        let odd = ["global", "a:b", "{}", "line\nbreak", "é", "group-5"];
        GroupId::new(odd[index as usize % odd.len()]).expect("a valid name")
    }

    fn group_index(&self, id: &GroupId) -> u64 {
        (0..self.profile.groups)
            .find(|&i| self.group(i) == *id)
            .expect("a group of this world")
    }

    fn groups(&mut self) -> Vec<GroupView> {
        match self.read(Query::Groups {
            after: None,
            max: 1_000,
        }) {
            Ok(View::Groups(page)) => page.items,
            other => panic!("groups are answered with groups, not {other:?}"),
        }
    }

    fn stats(&mut self) -> BulkStats {
        match self.read(Query::BulkStats) {
            Ok(View::BulkStats(stats)) => stats,
            other => panic!("statistics are answered with statistics, not {other:?}"),
        }
    }

    /// The checks after every step.
    fn look(&mut self) {
        if self.profile.plain {
            let groups = self.groups();
            if self.ready.is_none() && self.stats().counts.ready == 0 {
                self.ready = Some(Default::default());
            }
            if self.ready.is_some() {
                self.fair.look(&groups);
            } else {
                self.fair.reset();
            }
        }
    }
}

impl simulation::World for Simulation {
    type Report = Report;

    fn step(&mut self) -> Result<(), String> {
        self.act();
        Ok(())
    }

    fn finish(&mut self) -> Result<Report, String> {
        self.drain();
        Ok(Report {
            seed: self.seed,
            trace: self.trace.digest(),
            commands: self.trace.lines(),
            jobs: self.oracle.jobs.len() as u64,
            starts: self.oracle.starts_in_all,
            crashes: self.crashes,
        })
    }
}

fn open(disk: &MemoryDisk, profile: &Profile, clock: &Arc<ManualClock>) -> Arc<dyn BulkStore> {
    let disk = Arc::new(disk.clone());
    let store = EmbeddedBulkStore::open_for_test(disk, profile.config.clone(), clock.clone());
    Arc::new(store.unwrap_or_else(|error| panic!("the store does not open again: {error}")))
}
