//! Congestion: how much the downstream holds groups up.

use tidegate_api::{Congestion, CongestionPoint, CongestionSummary, Page};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::pages::{Items, items};

impl Client {
    /// The whole system, and one page of its groups.
    pub async fn congestion(
        &self,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<CongestionSummary, ClientError> {
        let address = Address::of(&["congestion"]);
        let address = address.ask("cursor", cursor).ask("limit", limit);
        self.call(Call::get(address)).await
    }

    /// Every group's, page by page.
    pub fn all_congestion(&self) -> Items<Congestion> {
        let client = self.clone();
        items(move |cursor, limit| {
            let client = client.clone();
            async move { Ok(client.congestion(cursor.as_deref(), Some(limit)).await?.groups) }
        })
    }

    pub async fn group_congestion(&self, group: &str) -> Result<Congestion, ClientError> {
        self.call(Call::get(Address::of(&["groups", group, "congestion"])))
            .await
    }

    /// The latest points, oldest first.
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
