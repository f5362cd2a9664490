//! The state of one room in this process.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{JoinOutcome, JoinParams, RoomView, TicketView, TouchParams};
use tidegate_core::room::eta::{self, Eta};
use tidegate_core::room::pace::Rates;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::room::RoomStore;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::registry::Registry;
use super::settling::Settling;
use super::visit::Visit;
use crate::batcher::Batcher;
use crate::histogram::{Histogram, HistogramView};

/// Limit: samples of the last minutes, about one a second.
const SAMPLES: usize = 600;

/// The last overview of the room.
#[derive(Debug)]
pub struct Seen {
    pub view: RoomView,
    /// How fast the room advances; none until it admitted a person who waited.
    pub rates: Option<Rates>,
    /// Admissions per millisecond, whether anybody waited or not; none until the first one.
    pub lately: Option<f64>,
    /// When this process read it.
    pub read: Instant,
}

impl Seen {
    /// The expected wait with this many people ahead; none if unknown.
    pub fn eta(&self, ahead: u64) -> Option<Eta> {
        self.rates.map(|rates| eta::eta(ahead, &rates))
    }
}

/// The counts of a room at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub at: Timestamp,
    pub waiting: u64,
    pub granted: u64,
    pub inside: u64,
    pub admitted: u64,
    pub completed: u64,
    pub left: u64,
}

/// Counters of the room's services in this process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) promoted: AtomicU64,
    pub(super) promotions: Histogram,
    pub(super) updates: AtomicU64,
    pub(super) broadcasts: Histogram,
}

/// What this process has done for a room, and what is still queued.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkView {
    /// People whom this process admitted.
    pub promoted: u64,
    /// Calls of `promote`, including failed ones.
    pub promotions: HistogramView,
    /// Updates sent to streams, including the first one of each.
    pub updates: u64,
    /// Time from an overview of the room until a stream received the position that follows from it.
    pub broadcasts: HistogramView,
    /// Joins that wait for a batch. Limit: 4,096; further callers wait outside the queue and do not count.
    pub queued_joins: u64,
    /// Inspections that wait for a batch, likewise.
    pub queued_inspections: u64,
}

pub(super) type Joins = Batcher<JoinParams, Result<JoinOutcome, StoreError>>;
pub(super) type Inspections = Batcher<PersonId, Result<Option<TicketView>, StoreError>>;

#[derive(Debug)]
pub(super) struct RoomState {
    pub(super) name: RoomId,
    pub(super) store: Arc<dyn RoomStore>,
    pub(super) registry: Registry,
    /// The last overview of the room.
    pub(super) seen: RwLock<Option<Arc<Seen>>>,
    pub(super) joins: Joins,
    pub(super) inspections: Inspections,
    /// Streams that have ended.
    pub(super) ended: mpsc::Sender<TouchParams>,
    pub(super) samples: Mutex<VecDeque<Sample>>,
    pub(super) counters: Counters,
    pub(super) settling: Settling,
    /// How long a stream's heartbeat counts; streams send one every third of it.
    pub(super) presence: Mutex<Duration>,
    /// Ends the room's tasks.
    pub(super) stop: CancellationToken,
    /// The store no longer has this room.
    pub(super) gone: CancellationToken,
}

impl RoomState {
    /// The last overview of the room; none before the first.
    pub(super) fn seen(&self) -> Option<Arc<Seen>> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn show(&self, seen: Option<Arc<Seen>>) {
        // Drops the previous value after the lock.
        let _before = std::mem::replace(
            &mut *self.seen.write().unwrap_or_else(PoisonError::into_inner),
            seen,
        );
    }

    pub(super) fn note(&self, view: &RoomView) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.back().is_some_and(|last| view.now.since(last.at).0 < 900) {
            return;
        }
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back(Sample {
            at: view.now,
            waiting: view.waiting() + view.early,
            granted: view.granted,
            inside: view.inside,
            admitted: view.counts.admitted,
            completed: view.counts.completed,
            left: view.counts.left + view.counts.lost,
        });
    }

    pub(super) fn presence(&self) -> Duration {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the ticket, batched with other calls.
    pub(super) async fn look(&self, person: &PersonId) -> Result<Option<TicketView>, StoreError> {
        let looked = self.inspections.call(person.clone()).await;
        looked.unwrap_or(Err(StoreError::Closed))
    }
}

/// A room. Clones share it.
#[derive(Debug, Clone)]
pub struct RoomHandle(pub(super) Arc<RoomState>);

impl RoomHandle {
    pub fn name(&self) -> &RoomId {
        &self.0.name
    }

    pub fn store(&self) -> &Arc<dyn RoomStore> {
        &self.0.store
    }

    /// The store no longer has this room, and nobody serves it. Another one of the same name may exist.
    pub fn is_gone(&self) -> bool {
        self.0.gone.is_cancelled()
    }

    /// Issues or finds a ticket, batched with concurrent joins.
    pub async fn join(&self, params: JoinParams) -> Result<JoinOutcome, StoreError> {
        let joined = self.0.joins.call(params).await;
        joined.unwrap_or(Err(StoreError::Closed))
    }

    /// Issues or finds a ticket and follows it. The inner error says why there is none.
    pub async fn visit(&self, params: JoinParams) -> Result<Result<Visit, JoinOutcome>, StoreError> {
        let params = JoinParams {
            stream: true,
            ..params
        };
        let person = params.person.clone();
        match self.join(params).await? {
            JoinOutcome::Placed { ticket, .. } => Ok(Ok(Visit::begin(self.0.clone(), person, ticket))),
            other => Ok(Err(other)),
        }
    }

    /// Reads a ticket.
    pub async fn look(&self, person: &PersonId) -> Result<Option<TicketView>, StoreError> {
        self.0.look(person).await
    }

    /// The last overview of the room; none before the first.
    pub fn seen(&self) -> Option<Arc<Seen>> {
        self.0.seen()
    }

    /// The last overview of the room, or a fresh one if there was none.
    pub async fn seen_or_read(&self) -> Result<Arc<Seen>, StoreError> {
        match self.seen() {
            Some(seen) => Ok(seen),
            None => self.read_overview().await,
        }
    }

    /// A fresh overview, for a caller that has just changed the room.
    pub async fn read_overview(&self) -> Result<Arc<Seen>, StoreError> {
        let view = self.0.store.overview(&self.0.name).await?;
        let seen = self.seen();
        Ok(Arc::new(Seen {
            view,
            rates: seen.as_ref().and_then(|seen| seen.rates),
            lately: seen.and_then(|seen| seen.lately),
            read: Instant::now(),
        }))
    }

    /// Samples of the last minutes, oldest first.
    pub fn history(&self) -> Vec<Sample> {
        let samples = self.0.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.iter().copied().collect()
    }

    /// Sets how long a heartbeat counts in this room; streams adapt their interval to it.
    pub fn set_presence(&self, presence: Millis) {
        *self.0.presence.lock().unwrap_or_else(PoisonError::into_inner) = presence.into();
    }

    /// Number of streams in this process.
    pub fn streams(&self) -> usize {
        self.0.registry.len()
    }

    pub fn work(&self) -> WorkView {
        let RoomState {
            counters,
            joins,
            inspections,
            ..
        } = &*self.0;
        WorkView {
            promoted: counters.promoted.load(Ordering::Relaxed),
            promotions: counters.promotions.view(),
            updates: counters.updates.load(Ordering::Relaxed),
            broadcasts: counters.broadcasts.view(),
            queued_joins: joins.queued() as u64,
            queued_inspections: inspections.queued() as u64,
        }
    }
}
