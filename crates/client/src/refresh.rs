//! The refresh part as a whole, and its dead letters.

use tidegate_api::{
    DeadLetter, DeadLetterSelection, DeadLettersDone, FailureReason, HoldLifted, Page, RefreshOverview,
};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::groups::reason;
use crate::pages::{Items, items};

/// Which dead letters to list; all that nobody has handled if nothing is said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadLetterFilter {
    pub source: Option<String>,
    pub reason: Option<FailureReason>,
    /// Also those that were replayed or purged.
    pub handled: bool,
}

impl Client {
    /// The refresh part at this moment; what is away is told as it was last seen.
    pub async fn refresh_overview(&self) -> Result<RefreshOverview, ClientError> {
        self.call(Call::get(Address::of(&["refresh"]))).await
    }

    /// Calls a provider again although it asked to be left alone.
    pub async fn release_budget(&self, target: &str, why: Option<&str>) -> Result<HoldLifted, ClientError> {
        let call = Call::post(Address::of(&["refresh", "budgets", target, "release"])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// One page of the dead letters, by partition, the oldest first.
    pub async fn dead_letters(
        &self,
        filter: &DeadLetterFilter,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<DeadLetter>, ClientError> {
        // As it is written on the wire.
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

    /// All dead letters that fit, page by page.
    pub fn all_dead_letters(&self, filter: &DeadLetterFilter) -> Items<DeadLetter> {
        let (client, filter) = (self.clone(), filter.clone());
        items(move |cursor, limit| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.dead_letters(&filter, cursor.as_deref(), Some(limit)).await }
        })
    }

    pub async fn dead_letter(&self, position: &str) -> Result<DeadLetter, ClientError> {
        self.call(Call::get(Address::of(&["refresh", "dead-letters", position])))
            .await
    }

    /// Asks for the records of dead letters again.
    pub async fn replay_dead_letters(
        &self,
        which: &DeadLetterSelection,
    ) -> Result<DeadLettersDone, ClientError> {
        self.on_dead_letters("replay", which).await
    }

    /// Puts dead letters away.
    pub async fn purge_dead_letters(
        &self,
        which: &DeadLetterSelection,
    ) -> Result<DeadLettersDone, ClientError> {
        self.on_dead_letters("purge", which).await
    }

    async fn on_dead_letters(
        &self,
        command: &str,
        which: &DeadLetterSelection,
    ) -> Result<DeadLettersDone, ClientError> {
        // There may be many of them.
        let call = Call::post(Address::of(&["refresh", "dead-letters", command])).endless();
        self.call(call.json(which)?).await
    }
}
