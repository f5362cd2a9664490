//! The service: every room of the store, each with its own tasks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::JoinParams;
use tidegate_core::room::config::RoomConfig;
use tidegate_core::time::Millis;
use tidegate_store::room::RoomStore;
use tidegate_store::{Clock, StoreError, SystemClock};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::local::{Counters, Local, RoomHandle};
use super::{presence, promoter, watcher};
use crate::gather::Gather;

/// Limit: joins and looks that wait to be gathered; further callers wait.
const QUEUED: usize = 4_096;
/// Limit: joins or looks in one call of the store.
const BATCH: usize = 128;
/// Limit: ends of streams that wait to be told.
const ENDS: usize = 65_536;
/// Rooms that another process made are found at the latest after this time.
const FIND: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct RoomOptions {
    /// The longest time between two looks for what time has ended and who can be let in, in milliseconds.
    pub sweep_ms: Millis,
    /// People who are let in, or ended, by one call.
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
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RoomService {
    /// Begins to serve every room that the store has, and finds those that come.
    pub fn start(store: Arc<dyn RoomStore>, options: RoomOptions) -> Self {
        let handle = RoomsHandle(Arc::new(Shared {
            store,
            options,
            rooms: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }));
        handle.0.tasks.spawn(find(handle.clone()));
        Self { handle }
    }

    pub fn handle(&self) -> RoomsHandle {
        self.handle.clone()
    }

    /// Ends every task. Streams end when they are dropped; their places are kept for the grace time.
    pub async fn shutdown(self) {
        self.handle.0.stop.cancel();
        self.handle.0.tasks.close();
        self.handle.0.tasks.wait().await;
        // Nobody can reach a room's tasks any more.
        self.handle.rooms_mut().clear();
    }
}

/// Serves rooms that this process was not told of: another one may have made them, and died.
async fn find(handle: RoomsHandle) {
    let stop = handle.0.stop.clone();
    loop {
        match handle.0.store.rooms().await {
            Ok(rooms) => rooms.into_iter().for_each(|room| drop(handle.serve(room, None))),
            Err(StoreError::Closed) => return,
            Err(error) => tracing::debug!(%error, "the rooms cannot be listed"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FIND) => {}
        }
    }
}

impl RoomsHandle {
    fn rooms_mut(&self) -> MutexGuard<'_, BTreeMap<RoomId, RoomHandle>> {
        self.0.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the room or takes over its settings, and serves it.
    pub async fn open(&self, room: &RoomId, config: RoomConfig) -> Result<RoomHandle, StoreError> {
        let presence = config.presence_ms;
        self.0.store.open(room, config).await?;
        Ok(self.serve(room.clone(), Some(presence)))
    }

    /// A room that is served here.
    pub fn room(&self, room: &RoomId) -> Option<RoomHandle> {
        self.rooms_mut().get(room).cloned()
    }

    /// Every room that is served here.
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
                *known.0.presence.lock().unwrap_or_else(PoisonError::into_inner) = presence.into();
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
            tasks,
            stop,
            ..
        } = &*self.0;
        let (joins, joining) = Gather::new(QUEUED);
        let (looks, looking) = Gather::new(QUEUED);
        let (ended, ends) = mpsc::channel(ENDS);
        let local = Arc::new(Local {
            name: room.clone(),
            store: store.clone(),
            registry: super::registry::Registry::default(),
            seen: watch::Sender::new(None),
            joins,
            looks,
            ended,
            samples: Mutex::default(),
            counters: Counters::default(),
            presence: Mutex::new(presence.into()),
        });
        let until_stop = |stop: &CancellationToken| stop.clone().cancelled_owned();
        {
            let (store, room) = (store.clone(), room.clone());
            let run = joining.run(BATCH, move |joins: Vec<JoinParams>| {
                let (store, room) = (store.clone(), room.clone());
                async move {
                    let count = joins.len();
                    Some(each(store.join(&room, joins).await, count))
                }
            });
            let stopped = until_stop(stop);
            tasks.spawn(async move {
                tokio::select! { () = run => {}, () = stopped => {} }
            });
        }
        {
            let store = store.clone();
            let run = looking.run(BATCH, move |people: Vec<PersonId>| {
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
        tasks.spawn(watcher::watch(local.clone(), stop.clone()));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        tasks.spawn(promoter::promote(
            local.clone(),
            options.clone(),
            clock,
            stop.clone(),
        ));
        tasks.spawn(presence::keep(local.clone(), stop.clone()));
        tasks.spawn(presence::ends(local.clone(), ends, stop.clone()));
        RoomHandle(local)
    }
}

/// The answer to each of a batch; after a failure the same for all.
fn each<T>(answers: Result<Vec<T>, StoreError>, count: usize) -> Vec<Result<T, StoreError>> {
    match answers {
        Ok(answers) => answers.into_iter().map(Ok).collect(),
        Err(error) => (0..count).map(|_| Err(error.clone())).collect(),
    }
}
