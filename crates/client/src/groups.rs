//! Groups: list, read, weigh, pause, resume, cancel.

use http::Method;
use tidegate_api::{Cancelled, Group, GroupLimits, Page, PatchGroup, Reason, Why};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

pub(crate) fn reason(why: Option<&str>) -> Reason {
    Reason {
        why: why.map(str::to_owned),
    }
}

impl Client {
    /// One page of the groups, in the order in which they came.
    pub async fn groups(&self, cursor: Option<&str>, limit: Option<u32>) -> Result<Page<Group>, ClientError> {
        let address = Address::of(&["groups"]).ask("cursor", cursor).ask("limit", limit);
        self.call(Call::get(address)).await
    }

    /// All groups, page by page.
    pub fn all_groups(&self) -> Items<Group> {
        let client = self.clone();
        items(move |cursor, limit| {
            let client = client.clone();
            async move { client.groups(cursor.as_deref(), Some(limit)).await }
        })
    }

    pub async fn group(&self, group: &str) -> Result<Group, ClientError> {
        self.call(Call::get(Address::of(&["groups", group]))).await
    }

    /// Changes a group's weight and ceilings.
    pub async fn patch_group(&self, group: &str, patch: &PatchGroup) -> Result<Group, ClientError> {
        let call = Call::new(Method::PATCH, Address::of(&["groups", group]));
        self.call(call.json(patch)?).await
    }

    /// Takes a group out of the order; its running jobs go on.
    pub async fn pause_group(&self, group: &str, why: Option<&str>) -> Result<Group, ClientError> {
        self.on_group(group, "pause", why).await
    }

    /// Puts a group back into the order.
    pub async fn resume_group(&self, group: &str, why: Option<&str>) -> Result<Group, ClientError> {
        self.on_group(group, "resume", why).await
    }

    /// Clears a group's congestion statistics.
    pub async fn reset_group_stats(&self, group: &str, why: Option<&str>) -> Result<Group, ClientError> {
        self.on_group(group, "reset-stats", why).await
    }

    async fn on_group(&self, group: &str, command: &str, why: Option<&str>) -> Result<Group, ClientError> {
        let call = Call::post(Address::of(&["groups", group, command])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// Ends every job of a group that is not running.
    pub async fn cancel_group(&self, group: &str, why: Option<&str>) -> Result<Cancelled, ClientError> {
        let call = Call::post(Address::of(&["groups", group, "cancel"]));
        self.call(call.json(&reason(why))?).await
    }

    /// The current window as a group sees it.
    pub async fn group_limits(&self, group: &str) -> Result<GroupLimits, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "limits"])))
            .await
    }

    /// What keeps a group's next job from starting, and when it should start.
    pub async fn why_group(&self, group: &str) -> Result<Why, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "why"]))).await
    }
}
