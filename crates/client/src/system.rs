//! The whole system: statistics, targets, what was done by whom, health.

use tidegate_api::{AuditEntry, Identity, Page, Sample, Samples, Stats, Target};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::groups::reason;

impl Client {
    /// The whole system at this moment. While its store is away: as it was last seen.
    pub async fn stats(&self) -> Result<Stats, ClientError> {
        self.call(Call::get(Address::of(&["stats"]))).await
    }

    /// The last minutes, a sample per second, oldest first.
    pub async fn history(&self) -> Result<Vec<Sample>, ClientError> {
        let samples: Samples = self.call(Call::get(Address::of(&["history"]))).await?;
        Ok(samples.samples)
    }

    /// Push targets and how their calls go.
    pub async fn targets(&self) -> Result<Vec<Target>, ClientError> {
        let page: Page<Target> = self.call(Call::get(Address::of(&["targets"]))).await?;
        Ok(page.items)
    }

    /// Sends jobs to a target again.
    pub async fn enable_target(&self, target: &str, why: Option<&str>) -> Result<Target, ClientError> {
        let call = Call::post(Address::of(&["targets", target, "enable"])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// Sends no more jobs to a target; they wait.
    pub async fn disable_target(&self, target: &str, why: Option<&str>) -> Result<Target, ClientError> {
        let call = Call::post(Address::of(&["targets", target, "disable"])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// What was done by whom, the latest first.
    pub async fn audit(&self, limit: Option<u32>) -> Result<Vec<AuditEntry>, ClientError> {
        let address = Address::of(&["audit"]).ask("limit", limit);
        let page: Page<AuditEntry> = self.call(Call::get(address)).await?;
        Ok(page.items)
    }

    /// Who the service takes this client for.
    pub async fn me(&self) -> Result<Identity, ClientError> {
        self.call(Call::get(Address::of(&["me"]))).await
    }

    /// The service lives; says nothing of its store. Asked once, whatever the budget for retries.
    pub async fn healthy(&self) -> Result<(), ClientError> {
        self.asked_once("/healthz").await.map(drop)
    }

    /// Requests can be served; if not, the error says why. Asked once, whatever the budget for retries.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.asked_once("/readyz").await.map(drop)
    }

    /// The service's metrics, as a scraper gets them.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.asked_once("/metrics").await
    }

    /// The description of the API, as JSON.
    pub async fn openapi(&self) -> Result<String, ClientError> {
        self.asked_once("/openapi.json").await
    }

    async fn asked_once(&self, path: &str) -> Result<String, ClientError> {
        let impatient = self.clone().with_retry_for(std::time::Duration::ZERO);
        let body = impatient.fetch(&Call::get(Address::bare(path))).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
