//! The vocabulary of the cases: a store under its own clock, and short verbs for every transition.
//!
//! The verbs panic if the store fails, so that case bodies show only their subject.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::budget::{BudgetConfig, BudgetView, LimitedBy};
use tidegate_core::clock::{Clock, ManualClock};
use tidegate_core::ids::{Owner, RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
    Settlement,
};
use tidegate_core::time::{Millis, Timestamp};

use crate::StoreError;
use crate::refresh::{RefreshSettings, RefreshStore, TakeOutcome};

/// When every case begins: 2024-01-23 08:53:20 UTC.
pub const START: Timestamp = Timestamp(1_706_000_000_000);

/// How long a claim of [`Harness::begin`] lasts.
pub(super) const CLAIM: Millis = Millis(30_000);

/// What has to outlive the store, and what reopens it: its folder, its prefix.
pub type Guard = Box<dyn Any + Send + Sync>;

pub type Opened = Result<(Arc<dyn RefreshStore>, Guard), StoreError>;

/// Creates stores.
#[async_trait]
pub trait Backend: Send + Sync {
    /// A fresh, empty store.
    async fn open(&self, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened;

    /// Reopens the store, as another process does after the first one has ended. A store that persists nothing
    /// starts empty.
    async fn restart(&self, guard: Guard, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened;
}

pub struct Harness<'a> {
    // Dropped in this order: the store before what it depends on.
    pub store: Arc<dyn RefreshStore>,
    pub clock: Arc<ManualClock>,
    pub settings: RefreshSettings,
    backend: &'a dyn Backend,
    guard: Guard,
}

impl fmt::Debug for Harness<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

pub(super) fn record(key: &str) -> RecordId {
    named("character", key)
}

pub(super) fn named(source: &str, key: &str) -> RecordId {
    RecordId {
        source: SourceId::new(source).expect("a source"),
        key: RecordKey::new(key).expect("a key"),
    }
}

pub(super) fn target(name: &str) -> TargetId {
    TargetId::new(name).expect("a target")
}

pub(super) fn owner(name: &str) -> Owner {
    Owner::new(name).expect("an owner")
}

pub(super) fn tokens(outcome: TakeOutcome) -> u64 {
    match outcome {
        TakeOutcome::Taken { tokens, .. } => tokens,
        TakeOutcome::Limited { .. } => 0,
    }
}

pub(super) fn limited(ms: u64, by: LimitedBy) -> TakeOutcome {
    TakeOutcome::Limited { wait: Millis(ms), by }
}

fn must<T>(answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("the store failed: {error}"))
}

fn only<T>(mut answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "one answer to one question");
    answers.remove(0)
}

impl<'a> Harness<'a> {
    /// A fresh store with the default settings and the targets `nexon` and `other`.
    pub async fn new(backend: &'a dyn Backend) -> Self {
        Self::with(backend, |_| {}).await
    }

    /// A fresh store with changed settings.
    pub async fn with(backend: &'a dyn Backend, change: impl FnOnce(&mut RefreshSettings)) -> Self {
        must(Self::try_with(backend, change).await)
    }

    pub async fn try_with(
        backend: &'a dyn Backend,
        change: impl FnOnce(&mut RefreshSettings),
    ) -> Result<Self, StoreError> {
        let mut settings = RefreshSettings::default();
        for name in ["nexon", "other"] {
            settings.budgets.insert(target(name), BudgetConfig::default());
        }
        change(&mut settings);
        let clock = Arc::new(ManualClock::at(START));
        let (store, guard) = backend.open(settings.clone(), clock.clone()).await?;
        Ok(Self {
            store,
            clock,
            settings,
            backend,
            guard,
        })
    }

    /// A fresh store whose only target's buckets are full.
    pub async fn ready(backend: &'a dyn Backend, change: impl FnOnce(&mut BudgetConfig)) -> Self {
        let harness = Self::with(backend, |settings| {
            settings.budgets.clear();
            let mut config = BudgetConfig::default();
            change(&mut config);
            settings.budgets.insert(target("nexon"), config);
        })
        .await;
        harness.advance(60_000);
        harness
    }

    /// Ends the store and opens it again.
    pub async fn restart(self) -> Self {
        let Self {
            store,
            clock,
            settings,
            backend,
            guard,
        } = self;
        drop(store);
        let (store, guard) = must(backend.restart(guard, settings.clone(), clock.clone()).await);
        Self {
            store,
            clock,
            settings,
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

    /// A reader that read this moment, and found nothing.
    pub async fn request(&self, record: &RecordId, priority: Priority) -> RequestOutcome {
        self.request_as(record, priority, None, self.now()).await
    }

    pub async fn request_as(
        &self,
        record: &RecordId,
        priority: Priority,
        snapshot_version: Option<Version>,
        read_at: Timestamp,
    ) -> RequestOutcome {
        let params = RequestParams {
            priority,
            snapshot_version,
            read_at,
        };
        only(must(self.store.request(vec![(record.clone(), params)]).await))
    }

    /// An event that is in the log.
    pub async fn sent(&self, record: &RecordId, priority: Priority) -> Version {
        let outcome = self.request(record, priority).await;
        let Some(version) = outcome.to_send() else {
            panic!("an event should be sent, not {outcome:?}");
        };
        assert!(self.confirm(record, version).await, "it is waited for");
        version
    }

    /// An event that could not be sent: its version is used up, and nothing is pending.
    pub async fn unsent(&self, record: &RecordId, priority: Priority) -> Version {
        let outcome = self.request(record, priority).await;
        let Some(version) = outcome.to_send() else {
            panic!("an event should be sent, not {outcome:?}");
        };
        assert!(self.send_failed(record, version).await, "it is waited for");
        version
    }

    pub async fn confirm(&self, record: &RecordId, version: Version) -> bool {
        let sent = vec![(record.clone(), version)];
        only(must(self.store.confirm_sent(sent).await))
    }

    pub async fn send_failed(&self, record: &RecordId, version: Version) -> bool {
        let unsent = vec![(record.clone(), version)];
        only(must(self.store.send_failed(unsent).await))
    }

    fn claim(version: Version, priority: Priority, name: &str) -> BeginParams {
        BeginParams {
            version,
            priority,
            owner: owner(name),
            claim_for: CLAIM,
        }
    }

    pub async fn begin(
        &self,
        record: &RecordId,
        version: Version,
        priority: Priority,
        name: &str,
    ) -> BeginOutcome {
        let begun = vec![(record.clone(), Self::claim(version, priority, name))];
        only(must(self.store.begin(begun).await))
    }

    pub async fn extend(&self, record: &RecordId, version: Version, name: &str) -> bool {
        let claims = vec![(record.clone(), Self::claim(version, Priority::High, name))];
        only(must(self.store.extend(claims).await))
    }

    pub async fn abandon(&self, record: &RecordId, version: Version, name: &str) -> bool {
        let claims = vec![(record.clone(), version, owner(name))];
        only(must(self.store.abandon(claims).await))
    }

    pub async fn settle(&self, record: &RecordId, version: Version, priority: Priority) -> SettleOutcome {
        self.settle_as(record, version, priority, Settlement::Done).await
    }

    pub async fn settle_as(
        &self,
        record: &RecordId,
        version: Version,
        priority: Priority,
        settlement: Settlement,
    ) -> SettleOutcome {
        let params = SettleParams {
            version,
            priority,
            settlement,
        };
        only(must(self.store.settle(vec![(record.clone(), params)]).await))
    }

    /// Requests, sends, fetches and settles.
    pub async fn refreshed(&self, record: &RecordId, priority: Priority) -> Version {
        let version = self.sent(record, priority).await;
        assert_eq!(
            self.begin(record, version, priority, "worker").await,
            BeginOutcome::Go
        );
        assert_eq!(
            self.settle(record, version, priority).await,
            SettleOutcome::Settled
        );
        version
    }

    pub async fn look(&self, record: &RecordId) -> Option<RecordState> {
        only(must(self.store.look(vec![record.clone()]).await))
    }

    pub async fn take(&self, priority: Priority, max: u64) -> TakeOutcome {
        self.take_of("nexon", priority, max).await
    }

    pub async fn take_of(&self, name: &str, priority: Priority, max: u64) -> TakeOutcome {
        must(self.store.take(&target(name), priority, max).await)
    }

    pub async fn lift(&self) -> bool {
        must(self.store.lift(&target("nexon")).await)
    }

    pub async fn hold(&self, ms: u64) {
        must(self.store.hold(&target("nexon"), Millis(ms)).await);
    }

    pub async fn budget(&self, name: &str) -> BudgetView {
        must(self.store.budget(&target(name)).await)
    }
}
