//! Groups: list, read, change, pause, resume, cancel.

use http::Method;
use tidegate_api::{Cancelled, Group, GroupLimits, Page, PatchGroup, Why};

use crate::address::Address;
use crate::client::{Call, Client, reason};
use crate::error::ClientError;
use crate::pages::{Items, items};

impl Client {
    /// Reads one page of the groups, in order of creation; 100 groups unless `limit` says otherwise.
    pub async fn groups(&self, cursor: Option<&str>, limit: Option<u32>) -> Result<Page<Group>, ClientError> {
        let address = Address::of(&["groups"]).ask("cursor", cursor).ask("limit", limit);
        self.call(Call::get(address)).await
    }

    /// Streams all groups, page by page.
    pub fn all_groups(&self) -> Items<Group> {
        let client = self.clone();
        items(move |cursor, limit| {
            let client = client.clone();
            async move { client.groups(cursor.as_deref(), Some(limit)).await }
        })
    }

    /// Reads one group.
    pub async fn group(&self, group: &str) -> Result<Group, ClientError> {
        self.call(Call::get(Address::of(&["groups", group]))).await
    }

    /// Changes a group's weight and limits.
    pub async fn patch_group(&self, group: &str, patch: &PatchGroup) -> Result<Group, ClientError> {
        let call = Call::new(Method::PATCH, Address::of(&["groups", group]));
        self.call(call.json(patch)?).await
    }

    /// Pauses a group: the service starts no more of its jobs, and running ones continue.
    pub async fn pause_group(&self, group: &str, why: Option<&str>) -> Result<Group, ClientError> {
        self.on_group(group, "pause", why).await
    }

    /// Resumes a paused group.
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

    /// Cancels every job of a group that is not running.
    pub async fn cancel_group(&self, group: &str, why: Option<&str>) -> Result<Cancelled, ClientError> {
        let call = Call::post(Address::of(&["groups", group, "cancel"]));
        self.call(call.json(&reason(why))?).await
    }

    /// Reads the current rate window from a group's point of view.
    pub async fn group_limits(&self, group: &str) -> Result<GroupLimits, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "limits"])))
            .await
    }

    /// Explains why a group's next job waits, and estimates its start.
    pub async fn why_group(&self, group: &str) -> Result<Why, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "why"]))).await
    }
}
