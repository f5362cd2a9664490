//! The state of the refresh module, and its dead letters.

use tidegate_api::{
    DeadLetter, DeadLetterName, DeadLetterSelection, DeadOutcome, FailureReason, HoldLifted, Page,
    RefreshOverview,
};

use crate::address::Address;
use crate::client::reason;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

/// Selects dead letters in listings; the default selects all unhandled ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetterFilter {
    /// Selects only dead letters of this source.
    pub source: Option<String>,
    /// Selects only dead letters with this failure.
    pub reason: Option<FailureReason>,
    /// Includes dead letters that an operator replayed or purged.
    pub handled: bool,
}

impl Client {
    /// Reads the state of the refresh module. The service reports an unavailable part as it last saw it.
    pub async fn refresh_overview(&self) -> Result<RefreshOverview, ClientError> {
        self.call(Call::get(Address::of(&["refresh"]))).await
    }

    /// Lifts the hold of a budget: the service calls the provider again although its Retry-After is not over.
    pub async fn release_budget(&self, target: &str, why: Option<&str>) -> Result<HoldLifted, ClientError> {
        let call = Call::post(Address::of(&["refresh", "budgets", target, "release"])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// Reads one page of the dead letters, by partition, the oldest first; 100 unless `limit` says otherwise.
    pub async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<DeadLetter>, ClientError> {
        // The query uses the JSON form of the reason.
        let reason = filter.reason.map(serde_json::to_value).transpose();
        let reason = reason.map_err(|error| ClientError::Input(error.to_string()))?;
        let address = Address::of(&["refresh", "dead-letters"])
            .ask("cursor", cursor)
            .ask("limit", limit)
            .ask("source", filter.source.as_deref())
            .ask("reason", reason.as_ref().and_then(|reason| reason.as_str()))
            .ask("handled", filter.handled.then_some(true));
        self.call(Call::get(address)).await
    }

    /// Streams all matching dead letters, page by page.
    pub fn all_dead_letters(&self, filter: &DeadLetterFilter) -> Items<DeadLetter> {
        let (client, filter) = (self.clone(), filter.clone());
        items(move |cursor, limit| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.dead_letters(&filter, cursor.as_deref(), Some(limit)).await }
        })
    }

    /// Reads one dead letter by its position, `<partition>-<offset>`.
    pub async fn dead_letter(&self, position: &str) -> Result<DeadLetter, ClientError> {
        self.call(Call::get(Address::of(&["refresh", "dead-letters", position])))
            .await
    }

    /// Replays dead letters: the service requests a new refresh of each record. The call has no timeout.
    pub async fn replay_dead_letters(
        &self,
        which: &DeadLetterSelection,
    ) -> Result<DeadOutcome<DeadLetterName>, ClientError> {
        self.on_dead_letters("replay", which).await
    }

    /// Marks dead letters as purged, so that listings leave them out. The call has no timeout.
    pub async fn purge_dead_letters(
        &self,
        which: &DeadLetterSelection,
    ) -> Result<DeadOutcome<DeadLetterName>, ClientError> {
        self.on_dead_letters("purge", which).await
    }

    async fn on_dead_letters(
        &self,
        command: &str,
        which: &DeadLetterSelection,
    ) -> Result<DeadOutcome<DeadLetterName>, ClientError> {
        // A selection may have very many dead letters.
        let call = Call::post(Address::of(&["refresh", "dead-letters", command])).endless();
        self.call(call.json(which)?).await
    }
}
