//! Congestion: how much throttling by the downstream delays groups.

use tidegate_api::{Congestion, CongestionPoint, CongestionSummary, Page};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

impl Client {
    /// Reads the congestion of the whole system and one page of its groups; 100 groups unless `limit` says
    /// otherwise.
    pub async fn congestion(
        &self,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<CongestionSummary, ClientError> {
        let address = Address::of(&["congestion"]);
        let address = address.ask("cursor", cursor).ask("limit", limit);
        self.call(Call::get(address)).await
    }

    /// Streams the congestion of every group, page by page.
    pub fn all_congestion(&self) -> Items<Congestion> {
        let client = self.clone();
        items(move |cursor, limit| {
            let client = client.clone();
            async move { Ok(client.congestion(cursor.as_deref(), Some(limit)).await?.groups) }
        })
    }

    /// Reads the congestion of one group.
    pub async fn group_congestion(&self, group: &str) -> Result<Congestion, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "congestion"])))
            .await
    }

    /// Reads the latest entries of a group's congestion history, oldest first; 100 unless `limit` says
    /// otherwise.
    pub async fn congestion_history(
        &self,
        group: &str,
        limit: Option<u32>,
    ) -> Result<Vec<CongestionPoint>, ClientError> {
        let address = Address::of(&["groups", group, "congestion", "history"]).ask("limit", limit);
        let page: Page<CongestionPoint> = self.call(Call::get(address)).await?;
        Ok(page.items)
    }
}
