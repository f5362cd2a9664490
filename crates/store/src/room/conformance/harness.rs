//! The vocabulary of the cases: a store with one room under its own clock, and short verbs for every
//! transition.
//!
//! The verbs panic if the store fails, so that case bodies show only their subject.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{PersonId, RoomId, SessionId};
use tidegate_core::room::command::{
    Change, Control, ExtendParams, InsideOutcome, JoinOutcome, JoinParams, PromoteOutcome, ReapOutcome,
    ReapParams, RedeemOutcome, RedeemParams, RemoveOutcome, ResizeOutcome, ResizeParams, RoomView,
    TicketView, TouchOutcome, TouchParams,
};
use tidegate_core::room::config::{Capacity, RoomConfig};
use tidegate_core::room::ticket::{End, Stream, TicketState, Wave};
use tidegate_core::time::{Millis, Timestamp};

use crate::StoreError;
use crate::room::RoomStore;

/// When every case begins: 2024-01-23 08:53:20 UTC.
pub const START: Timestamp = Timestamp(1_706_000_000_000);

/// The spans of every room here, unless a case changes them.
pub(super) const PRESENCE: u64 = 15_000;
pub(super) const GRACE: u64 = 30_000;
pub(super) const PASS: u64 = 300_000;
pub(super) const INSIDE: u64 = 900_000;
pub(super) const REMEMBER: u64 = 600_000;

/// What has to outlive the store, and what reopens it: its folder, its prefix.
pub type Guard = Box<dyn Any + Send + Sync>;

pub type Opened = Result<(Arc<dyn RoomStore>, Guard), StoreError>;

/// Creates stores.
#[async_trait]
pub trait Backend: Send + Sync {
    /// A fresh, empty store.
    async fn open(&self, clock: Arc<ManualClock>) -> Opened;

    /// Reopens the store, as another process does after the first one has ended.
    async fn restart(&self, guard: Guard, clock: Arc<ManualClock>) -> Opened;

    /// Whether people are connected to the process that holds the store, so that all of them are absent after a
    /// restart. If processes share a store, the end of one does not affect people connected to others.
    fn restart_ends_connections(&self) -> bool;
}

pub struct Harness<'a> {
    // Dropped in this order: the store before what it depends on.
    pub store: Arc<dyn RoomStore>,
    pub clock: Arc<ManualClock>,
    pub room: RoomId,
    pub config: RoomConfig,
    pub backend: &'a dyn Backend,
    guard: Guard,
}

impl fmt::Debug for Harness<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

pub(super) fn person(name: &str) -> PersonId {
    PersonId::new(name).expect("a person")
}

pub(super) fn room(name: &str) -> RoomId {
    RoomId::new(name).expect("a room")
}

pub(super) fn session(name: &str) -> Option<SessionId> {
    Some(SessionId::new(name).expect("a session"))
}

pub(super) fn join_of(name: &str) -> JoinParams {
    JoinParams {
        person: person(name),
        stream: true,
        again: false,
        draw: 0,
    }
}

/// A change of nothing.
pub(super) fn change(request: u64) -> ResizeParams {
    ResizeParams {
        request,
        seats: None,
        inside: None,
        per_second: None,
        by: "ana".to_owned(),
        why: "a till broke".to_owned(),
    }
}

pub(super) fn inside_by(request: u64, by: i64) -> ResizeParams {
    ResizeParams {
        inside: Some(Change::Add(by)),
        ..change(request)
    }
}

pub(super) fn must<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the store failed: {error}"))
}

pub(super) fn only<T>(mut answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "one answer to one question");
    answers.remove(0)
}

pub(super) fn is_waiting(view: &TicketView) -> bool {
    matches!(view.ticket.state, TicketState::Waiting { .. })
}

/// This many names of people.
pub(super) fn crowd(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("p{number}")).collect()
}

impl<'a> Harness<'a> {
    /// A fresh store with a room that has these limits.
    pub async fn new(backend: &'a dyn Backend, seats: Option<u64>, inside: u64, per_second: u64) -> Self {
        Self::with(backend, |config| {
            config.capacity = Capacity {
                seats,
                inside,
                per_second,
            };
        })
        .await
    }

    /// A fresh store with a room with changed settings.
    pub async fn with(backend: &'a dyn Backend, change: impl FnOnce(&mut RoomConfig)) -> Self {
        let mut config = RoomConfig {
            presence_ms: Millis(PRESENCE),
            grace_ms: Millis(GRACE),
            pass_ms: Millis(PASS),
            inside_ms: Millis(INSIDE),
            remember_ms: Millis(REMEMBER),
            ..RoomConfig::default()
        };
        change(&mut config);
        let clock = Arc::new(ManualClock::at(START));
        let (store, guard) = must(backend.open(clock.clone()).await);
        let room = room("sale");
        must(store.open(&room, config.clone()).await);
        Self {
            store,
            clock,
            room,
            config,
            backend,
            guard,
        }
    }

    /// The same store, with verbs for another room.
    pub fn in_room(&self, room: RoomId) -> Self {
        Self {
            store: self.store.clone(),
            clock: self.clock.clone(),
            room,
            config: self.config.clone(),
            backend: self.backend,
            guard: Box::new(()),
        }
    }

    /// Ends the store, and reopens it and its room.
    pub async fn restart(self) -> Self {
        let Self {
            store,
            clock,
            room,
            config,
            backend,
            guard,
        } = self;
        drop(store);
        let (store, guard) = must(backend.restart(guard, clock.clone()).await);
        must(store.open(&room, config.clone()).await);
        Self {
            store,
            clock,
            room,
            config,
            backend,
            guard,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn advance(&self, ms: u64) {
        self.clock.advance(Millis(ms));
    }

    pub async fn join_as(&self, params: JoinParams) -> JoinOutcome {
        only(must(self.store.join(&self.room, vec![params]).await))
    }

    /// Connects, and has a ticket: a new one or the existing one.
    pub async fn join(&self, name: &str) -> TicketView {
        match self.join_as(join_of(name)).await {
            JoinOutcome::Placed { ticket, .. } => ticket,
            other => panic!("{name} should have a place, not {other:?}"),
        }
    }

    /// Joins again after the ticket ended.
    pub async fn join_again(&self, name: &str) -> JoinOutcome {
        let params = JoinParams {
            again: true,
            ..join_of(name)
        };
        self.join_as(params).await
    }

    /// All of them connect, in this order.
    pub async fn join_all<S: AsRef<str>>(&self, names: &[S]) {
        let joins: Vec<JoinParams> = names.iter().map(|name| join_of(name.as_ref())).collect();
        for (outcome, name) in must(self.store.join(&self.room, joins).await).iter().zip(names) {
            let placed = matches!(outcome, JoinOutcome::Placed { .. });
            assert!(placed, "{} should have a place, not {outcome:?}", name.as_ref());
        }
    }

    pub async fn touch(&self, name: &str, stream: Stream, present: bool) -> TouchOutcome {
        let params = TouchParams {
            person: person(name),
            stream,
            present,
        };
        only(must(self.store.touch(&self.room, vec![params]).await))
    }

    pub async fn promote(&self, max: u64) -> PromoteOutcome {
        must(self.store.promote(&self.room, max).await)
    }

    /// Admits as many as possible, and returns who they are.
    pub async fn let_in(&self) -> Vec<String> {
        let outcome = self.promote(1_000).await;
        outcome
            .granted
            .iter()
            .map(|granted| granted.person.to_string())
            .collect()
    }

    /// The pass of an admitted person.
    pub async fn pass(&self, name: &str) -> RedeemParams {
        let view = self.ticket(name).await;
        let TicketState::Granted { wave, .. } = view.ticket.state else {
            panic!("{name} has no pass: {view:?}")
        };
        RedeemParams {
            person: person(name),
            index: view.ticket.index,
            wave,
            session: None,
        }
    }

    pub async fn redeem(&self, params: &RedeemParams) -> RedeemOutcome {
        must(self.store.redeem(&self.room, params.clone()).await)
    }

    /// Redeems the pass.
    pub async fn enter(&self, name: &str) -> Timestamp {
        let pass = self.pass(name).await;
        match self.redeem(&pass).await {
            RedeemOutcome::Inside { until } => until,
            other => panic!("{name} should be inside, not {other:?}"),
        }
    }

    pub async fn reissue(&self, name: &str) -> bool {
        must(self.store.reissue(&self.room, &person(name)).await)
    }

    pub async fn extend(&self, name: &str, ms: u64) -> InsideOutcome {
        let params = ExtendParams {
            person: person(name),
            by: Millis(ms),
        };
        must(self.store.extend(&self.room, params).await)
    }

    pub async fn complete(&self, name: &str) -> InsideOutcome {
        must(self.store.complete(&self.room, &person(name)).await)
    }

    pub async fn leave(&self, name: &str) -> InsideOutcome {
        must(self.store.leave(&self.room, &person(name)).await)
    }

    pub async fn reap(&self) -> ReapOutcome {
        self.reap_as(1_000, Some(self.now())).await
    }

    pub async fn reap_as(&self, max: u64, absent_by: Option<Timestamp>) -> ReapOutcome {
        must(self.store.reap(&self.room, ReapParams { max, absent_by }).await)
    }

    pub async fn resize(&self, params: &ResizeParams) -> ResizeOutcome {
        must(self.store.resize(&self.room, params.clone()).await)
    }

    /// Changes the limits, and returns those in effect.
    pub async fn resized(&self, params: &ResizeParams) -> Capacity {
        match self.resize(params).await {
            ResizeOutcome::Resized(capacity) => capacity,
            ResizeOutcome::Invalid(reason) => panic!("it should be changed: {reason}"),
        }
    }

    pub async fn control(&self, control: Control) {
        must(self.store.control(&self.room, control).await);
    }

    pub async fn remove(&self) -> RemoveOutcome {
        must(self.store.remove(&self.room).await)
    }

    pub async fn void(&self, through: Option<Wave>) -> Wave {
        must(self.store.void(&self.room, through).await)
    }

    pub async fn look(&self, name: &str) -> Option<TicketView> {
        only(must(self.store.look(&self.room, vec![person(name)]).await))
    }

    /// An existing ticket.
    pub async fn ticket(&self, name: &str) -> TicketView {
        let view = self.look(name).await;
        view.unwrap_or_else(|| panic!("{name} should have a ticket"))
    }

    pub async fn ahead(&self, name: &str) -> u64 {
        let view = self.ticket(name).await;
        assert!(is_waiting(&view), "{name} should wait: {view:?}");
        view.ahead
    }

    /// How the ticket ended.
    pub async fn end_of(&self, name: &str) -> End {
        match self.ticket(name).await.ticket.state {
            TicketState::Ended { end, .. } => end,
            other => panic!("{name} should have ended: {other:?}"),
        }
    }

    pub async fn overview(&self) -> RoomView {
        must(self.store.overview(&self.room).await)
    }

    /// Tickets that hold a slot.
    pub async fn slots(&self) -> u64 {
        let view = self.overview().await;
        view.granted + view.inside
    }
}
