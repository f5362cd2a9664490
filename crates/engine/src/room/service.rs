//! The service: every room of the store, each with its own tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{JoinParams, RemoveOutcome, Status};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::time::Millis;
use tidegate_durable::DurableError;
use tidegate_store::StoreError;
use tidegate_store::room::RoomStore;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::settling::Settling;
use super::state::{Counters, RoomHandle, RoomState};
use super::{heartbeat, poller, promoter};
use crate::batcher::Batcher;

/// Limit: joins and inspections that wait for a batch; further callers wait.
const QUEUED: usize = 4_096;
/// Limit: joins or inspections in one call to the store.
const BATCH: usize = 128;
/// Limit: ends of streams that wait to be reported.
const ENDS: usize = 65_536;
/// Longest time until this process notices rooms that another process created or removed, or that the store lost.
const FIND: Duration = Duration::from_secs(5);
/// Interval while the store is unavailable.
const FIND_AGAIN: Duration = Duration::from_millis(500);
/// A longer probe counts as an unavailable store. Calls retry for longer than that, but readiness checks need to
/// know sooner.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit: rooms probed concurrently.
const PROBES: usize = 16;
/// Pause between two probes that a failed call triggered.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// Failed probes that make an outage: one alone is none.
const UNAVAILABLE_AFTER: u32 = 2;

#[derive(Debug, Clone)]
pub struct RoomOptions {
    /// Longest time between two sweeps for expired slots and for people to admit, in milliseconds.
    pub sweep_ms: Millis,
    /// People that one call admits or ends.
    pub chunk: u64,
}

impl Default for RoomOptions {
    fn default() -> Self {
        Self {
            sweep_ms: Millis(1_000),
            chunk: 100,
        }
    }
}

/// A running service. End it with [`RoomService::shutdown`].
#[derive(Debug)]
pub struct RoomService {
    handle: RoomsHandle,
}

/// Clones share the service.
#[derive(Debug, Clone)]
pub struct RoomsHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Arc<dyn RoomStore>,
    options: RoomOptions,
    rooms: Mutex<BTreeMap<RoomId, RoomHandle>>,
    /// Rooms opened here: if the store loses one, this process creates it again.
    opened: Mutex<BTreeMap<RoomId, RoomConfig>>,
    /// Rooms served here that the store no longer has, although nobody removed them.
    lost: Mutex<BTreeSet<RoomId>>,
    /// How many rooms the store lost.
    losses: AtomicU64,
    /// Signals a failed call to the store, which triggers a probe at once.
    call_failed: Arc<Notify>,
    /// Failed probes in a row.
    failures: AtomicU32,
    /// The store has failed unrecoverably.
    failed: CancellationToken,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RoomService {
    /// Starts to serve every room of the store, and finds rooms created later.
    pub fn start(store: Arc<dyn RoomStore>, options: RoomOptions) -> Self {
        let handle = RoomsHandle(Arc::new(Shared {
            store,
            options,
            rooms: Mutex::default(),
            opened: Mutex::default(),
            lost: Mutex::default(),
            losses: AtomicU64::new(0),
            call_failed: Arc::default(),
            failures: AtomicU32::new(0),
            failed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }));
        handle.0.tasks.spawn(find(handle.clone()));
        Self { handle }
    }

    pub fn handle(&self) -> RoomsHandle {
        self.handle.clone()
    }

    /// Resolves when the store has failed unrecoverably: this process admits nobody any more.
    pub async fn failed(&self) {
        self.handle.0.failed.cancelled().await;
    }

    /// Ends every task. Streams end when dropped; the store keeps their tickets for the grace period.
    pub async fn shutdown(self) {
        self.handle.0.stop.cancel();
        self.handle.0.tasks.close();
        self.handle.0.tasks.wait().await;
        // Nobody can reach a room's tasks any more.
        self.handle.rooms_mut().clear();
    }
}

/// Serves rooms that another process created, since that process may have died. Creates rooms again that were
/// opened here and that the store lost, and stops serving rooms that are gone.
async fn find(handle: RoomsHandle) {
    let Shared {
        stop,
        call_failed,
        failures,
        failed,
        ..
    } = &*handle.0;
    loop {
        let looked = tokio::time::timeout(PROBE_TIMEOUT, handle.compare()).await;
        let wait = match looked.unwrap_or_else(|_| Err(late())) {
            Ok(()) => {
                failures.store(0, Ordering::Relaxed);
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(FIND) => continue,
                    () = call_failed.notified() => PROBE_PAUSE,
                }
            }
            Err(error @ (StoreError::Closed | StoreError::Durable(DurableError::Poisoned(_)))) => {
                if !stop.is_cancelled() {
                    tracing::error!(%error, "the room store has failed; no room admits anybody any more");
                    failed.cancel();
                }
                return;
            }
            Err(error) => {
                failures.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "failed to list the rooms");
                FIND_AGAIN
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn late() -> StoreError {
    StoreError::Unavailable {
        server: "the room store".to_owned(),
        reason: format!("no answer within {PROBE_TIMEOUT:?}"),
    }
}

impl RoomsHandle {
    fn rooms_mut(&self) -> MutexGuard<'_, BTreeMap<RoomId, RoomHandle>> {
        self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the room or updates its settings, and serves it.
    pub async fn open(&self, room: &RoomId, config: RoomConfig) -> Result<RoomHandle, StoreError> {
        let presence = config.presence_ms;
        self.0.store.open(room, config.clone()).await?;
        self.opened_mut().insert(room.clone(), config);
        let served = self.serve(room.clone(), Some(presence));
        // The finder may already have read the room with its earlier settings.
        served.0.show(None);
        Ok(served)
    }

    /// Creates the room unless the store has it, and serves it as stored. A lost room starts paused: nobody knows
    /// any more how many seats it sold, or what operators had set.
    pub async fn create(&self, room: &RoomId, config: RoomConfig) -> Result<RoomHandle, StoreError> {
        let presence = config.presence_ms;
        let status = match self.lost_mut().contains(room) {
            true => Status::Paused,
            false => Status::Open,
        };
        if self.0.store.create(room, config, status).await? && status == Status::Paused {
            tracing::error!(%room, "the store lost a room; created it again, empty and paused until an operator resumes it");
        }
        self.lost_mut().remove(room);
        Ok(self.serve(room.clone(), Some(presence)))
    }

    /// How many rooms the store lost while this process served them.
    pub fn losses(&self) -> u64 {
        self.0.losses.load(Ordering::Relaxed)
    }

    fn lost_mut(&self) -> MutexGuard<'_, BTreeSet<RoomId>> {
        self.0.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a room in the store and serves it from then on; none if no room has this name.
    pub async fn find(&self, room: &RoomId) -> Result<Option<RoomHandle>, StoreError> {
        if let Some(served) = self.room(room) {
            return Ok(Some(served));
        }
        let found = self.has(room).await?;
        Ok(found.then(|| self.serve(room.clone(), None)))
    }

    /// Removes a room that is over.
    pub async fn remove(&self, room: &RoomId) -> Result<RemoveOutcome, StoreError> {
        let outcome = self.0.store.remove(room).await?;
        if outcome == RemoveOutcome::Removed {
            self.opened_mut().remove(room);
            self.let_go(room);
        }
        Ok(outcome)
    }

    /// The store has not answered for a while, or never will.
    pub fn is_unavailable(&self) -> bool {
        self.has_failed() || self.0.failures.load(Ordering::Relaxed) >= UNAVAILABLE_AFTER
    }

    /// The store will never answer again.
    pub fn has_failed(&self) -> bool {
        self.0.failed.is_cancelled()
    }

    fn opened_mut(&self) -> MutexGuard<'_, BTreeMap<RoomId, RoomConfig>> {
        self.0.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn has(&self, room: &RoomId) -> Result<bool, StoreError> {
        match self.0.store.look(room, Vec::new()).await {
            Ok(_) => Ok(true),
            Err(StoreError::UnknownRoom(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Compares the rooms served here with those in the store. In a Cluster, the list of rooms and a room itself
    /// may be on different servers, and either may come back without the other. So this probes every room.
    async fn compare(&self) -> Result<(), StoreError> {
        // Before it reads the list: a room is listed before it is served.
        let served: BTreeSet<RoomId> = self.rooms_mut().keys().cloned().collect();
        let listed: BTreeSet<RoomId> = self.0.store.rooms().await?.into_iter().collect();
        let known: Vec<&RoomId> = served.union(&listed).collect();
        for some in known.chunks(PROBES) {
            let inspections = join_all(some.iter().map(|room| self.has(room))).await;
            for (room, there) in some.iter().zip(inspections) {
                match (there?, listed.contains(*room), served.contains(*room)) {
                    (true, true, _) => drop(self.serve((*room).clone(), None)),
                    (there, _, true) => self.differs(room, there).await?,
                    // Listed but missing: the process that serves it creates it again.
                    (_, _, false) => {}
                }
            }
        }
        Ok(())
    }

    /// A room served here is not on the store's list, or does not exist at all.
    async fn differs(&self, room: &RoomId, there: bool) -> Result<(), StoreError> {
        if !there && self.was_in_use(room) && self.lost_mut().insert(room.clone()) {
            self.0.losses.fetch_add(1, Ordering::Relaxed);
        }
        let opened = self.opened_mut().get(room).cloned();
        match opened {
            // Also puts an existing room back on the list.
            Some(config) => drop(self.create(room, config).await?),
            None if !there => self.let_go(room),
            None => {}
        }
        Ok(())
    }

    /// Whether the room was in use at the last overview. A room that was over, or is no longer served here, was
    /// removed.
    fn was_in_use(&self, room: &RoomId) -> bool {
        let seen = self.room(room).map(|served| served.seen());
        seen.is_some_and(|seen| seen.is_none_or(|seen| !seen.view.is_over()))
    }

    /// Ends the tasks of a room that is gone, and notifies its streams.
    fn let_go(&self, room: &RoomId) {
        if let Some(RoomHandle(state)) = self.rooms_mut().remove(room) {
            state.gone.cancel();
            state.registry.gone();
            state.stop.cancel();
        }
        self.0.store.signals().forget(room);
    }

    /// A room served here.
    pub fn room(&self, room: &RoomId) -> Option<RoomHandle> {
        self.rooms_mut().get(room).cloned()
    }

    /// Every room served here.
    pub fn rooms(&self) -> Vec<RoomHandle> {
        self.rooms_mut().values().cloned().collect()
    }

    pub fn store(&self) -> &Arc<dyn RoomStore> {
        &self.0.store
    }

    fn serve(&self, room: RoomId, presence: Option<Millis>) -> RoomHandle {
        let mut rooms = self.rooms_mut();
        if let Some(known) = rooms.get(&room) {
            if let Some(presence) = presence {
                known.set_presence(presence);
            }
            return known.clone();
        }
        let presence = presence.unwrap_or(RoomConfig::default().presence_ms);
        let handle = self.begin(room.clone(), presence);
        rooms.insert(room, handle.clone());
        handle
    }

    fn begin(&self, room: RoomId, presence: Millis) -> RoomHandle {
        let Shared {
            store,
            options,
            call_failed,
            tasks,
            stop,
            ..
        } = &*self.0;
        let (joins, joining) = Batcher::new(QUEUED);
        let (inspections, inspecting) = Batcher::new(QUEUED);
        let (ended, ends) = mpsc::channel(ENDS);
        let stop = &stop.child_token();
        let state = Arc::new(RoomState {
            name: room.clone(),
            store: store.clone(),
            registry: super::registry::Registry::default(),
            seen: RwLock::default(),
            joins,
            inspections,
            ended,
            samples: Mutex::default(),
            counters: Counters::default(),
            settling: Settling::begin(Instant::now()),
            presence: Mutex::new(presence.into()),
            stop: stop.clone(),
            gone: CancellationToken::new(),
        });
        let until_stop = |stop: &CancellationToken| stop.clone().cancelled_owned();
        {
            let (store, room, call_failed) = (store.clone(), room.clone(), call_failed.clone());
            let run = joining.run(BATCH, move |joins: Vec<JoinParams>| {
                let (store, room, call_failed) = (store.clone(), room.clone(), call_failed.clone());
                async move {
                    let count = joins.len();
                    let joined = store.join(&room, joins).await;
                    if joined.is_err() {
                        call_failed.notify_one();
                    }
                    Some(each(joined, count))
                }
            });
            let stopped = until_stop(stop);
            tasks.spawn(async move {
                tokio::select! { () = run => {}, () = stopped => {} }
            });
        }
        {
            let store = store.clone();
            let run = inspecting.run(BATCH, move |people: Vec<PersonId>| {
                let (store, room) = (store.clone(), room.clone());
                async move {
                    let count = people.len();
                    Some(each(store.look(&room, people).await, count))
                }
            });
            let stopped = until_stop(stop);
            tasks.spawn(async move {
                tokio::select! { () = run => {}, () = stopped => {} }
            });
        }
        tasks.spawn(poller::poll(state.clone(), stop.clone()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        tasks.spawn(promoter::promote(
            state.clone(),
            options.clone(),
            clock,
            stop.clone(),
        ));
        tasks.spawn(heartbeat::keep(state.clone(), stop.clone()));
        tasks.spawn(heartbeat::ends(state.clone(), ends, stop.clone()));
        tasks.spawn(heartbeat::taken_over(state.clone(), stop.clone()));
        RoomHandle(state)
    }
}

/// The response for each call of a batch; after a failure the same error for all.
fn each<T>(answers: Result<Vec<T>, StoreError>, count: usize) -> Vec<Result<T, StoreError>> {
    match answers {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    }
}
