//! The seam itself: what a backend must be able to do.

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

/// Limit: larger versions are not taken from outside. What is left up to [`Version::MAX`] is room to grow, so that a
/// damaged event cannot bring a record to where its versions end.
const LAST_VERSION: Version = Version(Version::MAX.0 / 8 * 7);

/// What a refresh store is opened with.
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

    /// The budget of a target, or which targets there are.
    pub(crate) fn budget(&self, target: &TargetId) -> Result<&BudgetConfig, StoreError> {
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

/// What an ask for tokens came to. Spans, because whoever asks has another clock than the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOutcome {
    /// `tokens` calls may be made within `valid_for`, counted from before the store was asked.
    Taken { tokens: u64, valid_for: Millis },
    /// Nothing before `wait` has passed; then something, if nobody else takes it.
    Limited { wait: Millis, by: LimitedBy },
}

/// A backend for the refresh part.
///
/// Every transition of one record is atomic; a batch is not, and answers in its order. After an error nothing is known
/// of the batch: some of it may be done, and all of it may be asked again.
#[async_trait]
pub trait RefreshStore: Send + Sync + fmt::Debug + 'static {
    /// Issues a version where nothing is on its way, and says what the caller has to send.
    async fn request(&self, asks: Vec<(RecordId, RequestParams)>) -> Result<Vec<RequestOutcome>, StoreError>;

    /// The log has these events. False: not waited for any more.
    async fn confirm_sent(&self, sent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError>;

    /// These events could not be sent: what was before them stands. False: there is no such unsent event.
    async fn send_failed(&self, unsent: Vec<(RecordId, Version)>) -> Result<Vec<bool>, StoreError>;

    /// A worker has these events in hand and wants to fetch.
    async fn begin(&self, begun: Vec<(RecordId, BeginParams)>) -> Result<Vec<BeginOutcome>, StoreError>;

    /// Lets claims last longer. False: lost, another worker may be fetching.
    async fn extend(&self, claims: Vec<(RecordId, BeginParams)>) -> Result<Vec<bool>, StoreError>;

    /// Gives claims back without settling. False: it was not held.
    async fn abandon(&self, claims: Vec<(RecordId, Version, Owner)>) -> Result<Vec<bool>, StoreError>;

    /// Refreshes came to their end.
    async fn settle(&self, settled: Vec<(RecordId, SettleParams)>) -> Result<Vec<SettleOutcome>, StoreError>;

    /// What is remembered of records, without what time has ended.
    async fn look(&self, records: Vec<RecordId>) -> Result<Vec<Option<RecordState>>, StoreError>;

    /// Takes 1 to `max_tokens` tokens of a target's budget. Asking for none is a programmer's error.
    async fn take(
        &self,
        target: &TargetId,
        priority: Priority,
        max_tokens: u64,
    ) -> Result<TakeOutcome, StoreError>;

    /// Nobody calls the target for this long, counted on the store's clock, but no longer than its budget allows; for how
    /// long it is. Never shortens a hold.
    async fn hold(&self, target: &TargetId, until_in: Millis) -> Result<Millis, StoreError>;

    /// Ends a hold, for every process. False: there was none.
    async fn lift(&self, target: &TargetId) -> Result<bool, StoreError>;

    /// The budget as it is.
    async fn budget(&self, target: &TargetId) -> Result<BudgetView, StoreError>;

    /// The store's time.
    async fn now(&self) -> Result<Timestamp, StoreError>;
}

/// A version from outside, if it can be counted on from.
fn counted(version: Version) -> Result<(), StoreError> {
    match version <= LAST_VERSION {
        true => Ok(()),
        false => Err(StoreError::Version(version.0)),
    }
}

pub(crate) fn counted_all(versions: impl IntoIterator<Item = Version>) -> Result<(), StoreError> {
    versions.into_iter().try_for_each(counted)
}
