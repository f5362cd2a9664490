//! The [`RefreshStore`] trait: what a backend must be able to do.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use tidegate_core::budget::{BudgetConfig, BudgetView, LimitedBy};
use tidegate_core::ids::{Owner, RecordId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::Version;
use tidegate_core::refresh::coalescer::{
    BeginOutcome, BeginParams, RecordState, RequestOutcome, RequestParams, SettleOutcome, SettleParams,
};
use tidegate_core::refresh::config::{CoalescerConfig, RefreshConfig};
use tidegate_core::time::{Millis, Timestamp};

use crate::StoreError;

/// The settings of a refresh store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefreshSettings {
    /// The budget of every target that may be called.
    pub budgets: BTreeMap<TargetId, BudgetConfig>,
    pub coalescer: CoalescerConfig,
}

impl RefreshSettings {
    /// Checks every value and relation.
    pub fn validate(&self) -> Result<(), StoreError> {
        let refresh = RefreshConfig {
            coalescer: self.coalescer.clone(),
            ..RefreshConfig::default()
        };
        let budgets = self
            .budgets
            .iter()
            .map(|(target, budget)| budget.validate(target.as_str()));
        std::iter::once(refresh.validate())
            .chain(budgets)
            .collect::<Result<(), _>>()
            .map_err(|error| StoreError::Config(error.to_string()))
    }

    /// The budget of a target, or an error that lists the existing targets.
    #[cfg(feature = "redis")]
    pub(super) fn budget(&self, target: &TargetId) -> Result<&BudgetConfig, StoreError> {
        self.budgets.get(target).ok_or_else(|| self.unknown(target))
    }

    pub(crate) fn unknown(&self, target: &TargetId) -> StoreError {
        let names: Vec<&str> = self.budgets.keys().map(TargetId::as_str).collect();
        StoreError::UnknownTarget {
            target: target.to_string(),
            known: match names.is_empty() {
                true => "none".to_owned(),
                false => names.join(", "),
            },
        }
    }
}

/// The outcome of a request for tokens. In spans, because the caller's clock differs from the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The caller may make `tokens` calls within `valid_for`, counted from before its request.
    Taken { tokens: u64, valid_for: Millis },
    /// Nothing before `wait` has passed; then at least one token, if nobody else takes it.
    Limited { wait: Millis, by: LimitedBy },
}

/// A backend for the refresh part.
///
/// Every transition of one record is atomic. A batch is not, and returns outcomes in its order. After an error
/// the state of the batch is unknown: parts of it may be done, and the caller may retry all of it.
#[async_trait]
pub trait RefreshStore: Send + Sync + fmt::Debug + 'static {
    /// Issues a version where nothing is pending, and returns what the caller has to send.
    async fn request(&self, asks: Vec<(RecordId, RequestParams)>) -> Result<Vec<RequestOutcome>, StoreError>;

    /// Records that the log has these events. False: no longer pending.
    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError>;

    /// Records that these events could not be sent; what they would have superseded stays valid. False: there
    /// is no such unsent event.
    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError>;

    /// A worker has received these events and wants to fetch.
    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> Result<Vec<BeginOutcome>, StoreError>;

    /// Extends claims. False: lost, another worker may be fetching.
    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> Result<Vec<bool>, StoreError>;

    /// Returns claims without settling. False: it was not held.
    async fn abandon(&self, claims: Vec<(RecordId, Version, Owner)>) -> Result<Vec<bool>, StoreError>;

    /// Settles refreshes.
    async fn settle(&self, settled: Vec<(RecordId, SettleParams)>) -> Result<Vec<SettleOutcome>, StoreError>;

    /// The state of records, without expired parts.
    async fn look(&self, records: Vec<RecordId>) -> Result<Vec<Option<RecordState>>, StoreError>;

    /// Takes 1 to `max_tokens` tokens of a target's budget. Requesting none is a programmer error.
    async fn take(
        &self,
        target: &TargetId,
        priority: Priority,
        max_tokens: u64,
    ) -> Result<TakeOutcome, StoreError>;

    /// Holds all calls to the target for this long by the store's clock, at most as long as its budget allows.
    /// Returns the actual hold. Never shortens a hold.
    async fn hold(&self, target: &TargetId, until_in: Millis) -> Result<Millis, StoreError>;

    /// Ends a hold, for every process. False: there was none.
    async fn lift(&self, target: &TargetId) -> Result<bool, StoreError>;

    /// The current state of the budget.
    async fn budget(&self, target: &TargetId) -> Result<BudgetView, StoreError>;

    /// The store's time.
    async fn now(&self) -> Result<Timestamp, StoreError>;
}

/// Accepts a version from outside only if there is room to count on from it.
fn counted(version: Version) -> Result<(), StoreError> {
    match version <= Version::LAST_FROM_OUTSIDE {
        true => Ok(()),
        false => Err(StoreError::Version(version.0)),
    }
}

pub(crate) fn counted_all(versions: impl IntoIterator<Item = Version>) -> Result<(), StoreError> {
    versions.into_iter().try_for_each(counted)
}
