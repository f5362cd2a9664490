//! Dead jobs: list, replay, purge.

use tidegate_api::{DeadDone, DeadSelection, DeathReason, Job, Page};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

/// Which dead jobs to list; all if nothing is said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeadFilter {
    pub group: Option<String>,
    pub kind: Option<String>,
    pub reason: Option<DeathReason>,
}

impl Client {
    /// One page of the dead jobs, those accepted last first.
    pub async fn dead(
        &self,
        filter: &DeadFilter,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Page<Job>, ClientError> {
        // As it is written on the wire.
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

    /// All dead jobs that fit, page by page.
    pub fn all_dead(&self, filter: &DeadFilter) -> Items<Job> {
        let (client, filter) = (self.clone(), filter.clone());
        items(move |cursor, limit| {
            let (client, filter) = (client.clone(), filter.clone());
            async move { client.dead(&filter, cursor.as_deref(), Some(limit)).await }
        })
    }

    /// Gives dead jobs another life.
    pub async fn replay_dead(&self, which: &DeadSelection) -> Result<DeadDone, ClientError> {
        self.on_dead("replay", which).await
    }

    /// Forgets dead jobs.
    pub async fn purge_dead(&self, which: &DeadSelection) -> Result<DeadDone, ClientError> {
        self.on_dead("purge", which).await
    }

    async fn on_dead(&self, command: &str, which: &DeadSelection) -> Result<DeadDone, ClientError> {
        // There may be millions of them.
        let call = Call::post(Address::of(&["dead-jobs", command])).endless();
        self.call(call.json(which)?).await
    }
}
