//! Dead jobs: list, replay, purge.

use tidegate_api::{DeadOutcome, DeadSelection, DeathReason, Job, JobName, Page};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

/// Selects dead jobs in listings; the default selects all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFilter {
    /// Selects only jobs of this group.
    pub group: Option<String>,
    /// Selects only jobs of this type.
    pub kind: Option<String>,
    /// Selects only jobs that died for this reason.
    pub reason: Option<DeathReason>,
}

impl Client {
    /// Reads one page of the dead jobs, those that died last first; 100 jobs unless `limit` says otherwise.
    pub async fn dead(
        &self,
        filter: &DeadFilter,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<Job>, ClientError> {
        // The query uses the JSON form of the reason.
        let reason = filter.reason.map(serde_json::to_value).transpose();
        let reason = reason.map_err(|error| ClientError::Input(error.to_string()))?;
        let address = Address::of(&["dead-jobs"])
            .ask("cursor", cursor)
            .ask("limit", limit)
            .ask("group", filter.group.as_deref())
            .ask("type", filter.kind.as_deref())
            .ask("reason", reason.as_ref().and_then(|reason| reason.as_str()));
        self.call(Call::get(address)).await
    }

    /// Streams all matching dead jobs, page by page.
    pub fn all_dead(&self, filter: &DeadFilter) -> Items<Job> {
        let (client, filter) = (self.clone(), filter.clone());
        items(move |cursor, limit| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.dead(&filter, cursor.as_deref(), Some(limit)).await }
        })
    }

    /// Replays dead jobs: each waits again with all its attempts. The call has no timeout.
    pub async fn replay_dead(&self, which: &DeadSelection) -> Result<DeadOutcome<JobName>, ClientError> {
        self.on_dead("replay", which).await
    }

    /// Deletes dead jobs for good. The call has no timeout.
    pub async fn purge_dead(&self, which: &DeadSelection) -> Result<DeadOutcome<JobName>, ClientError> {
        self.on_dead("purge", which).await
    }

    async fn on_dead(
        &self,
        command: &str,
        which: &DeadSelection,
    ) -> Result<DeadOutcome<JobName>, ClientError> {
        // There may be millions of them.
        let call = Call::post(Address::of(&["dead-jobs", command])).endless();
        self.call(call.json(which)?).await
    }
}
