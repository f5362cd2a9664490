//! The whole system: statistics, push targets, the audit log, health.

use tidegate_api::{AuditEntry, Identity, Page, Sample, Samples, Stats, Target};

use crate::address::Address;
use crate::client::reason;
use crate::client::{Call, Client};
use crate::error::ClientError;

impl Client {
    /// Reads the statistics of the whole system. While the store is unavailable, the service answers with the
    /// last ones.
    pub async fn stats(&self) -> Result<Stats, ClientError> {
        self.call(Call::get(Address::of(&["stats"]))).await
    }

    /// Reads the statistics of the last ten minutes: one sample per second, oldest first.
    pub async fn history(&self) -> Result<Vec<Sample>, ClientError> {
        let samples: Samples = self.call(Call::get(Address::of(&["history"]))).await?;
        Ok(samples.samples)
    }

    /// Lists push targets with the results of their calls.
    pub async fn targets(&self) -> Result<Vec<Target>, ClientError> {
        let page: Page<Target> = self.call(Call::get(Address::of(&["targets"]))).await?;
        Ok(page.items)
    }

    /// Enables a push target: the service sends jobs to it again.
    pub async fn enable_target(&self, target: &str, why: Option<&str>) -> Result<Target, ClientError> {
        let call = Call::post(Address::of(&["targets", target, "enable"])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// Disables a push target: its jobs wait.
    pub async fn disable_target(&self, target: &str, why: Option<&str>) -> Result<Target, ClientError> {
        let call = Call::post(Address::of(&["targets", target, "disable"])).idempotent();
        self.call(call.json(&reason(why))?).await
    }

    /// Lists the latest entries of the audit log, the newest first; 100 unless `limit` says otherwise.
    pub async fn audit(&self, limit: Option<u32>) -> Result<Vec<AuditEntry>, ClientError> {
        let address = Address::of(&["audit"]).ask("limit", limit);
        let page: Page<AuditEntry> = self.call(Call::get(address)).await?;
        Ok(page.items)
    }

    /// Reads the identity and the roles of this client's key.
    pub async fn me(&self) -> Result<Identity, ClientError> {
        self.call(Call::get(Address::of(&["me"]))).await
    }

    /// Checks that the service runs, whatever the state of its store. The client does not retry.
    pub async fn healthy(&self) -> Result<(), ClientError> {
        self.asked_once("/healthz").await.map(drop)
    }

    /// Checks that the service can serve requests; the error says why not. The client does not retry.
    pub async fn ready(&self) -> Result<(), ClientError> {
        self.asked_once("/readyz").await.map(drop)
    }

    /// Reads the metrics in the Prometheus text format. The client does not retry.
    pub async fn metrics(&self) -> Result<String, ClientError> {
        self.asked_once("/metrics").await
    }

    /// Reads the OpenAPI document as JSON. The client does not retry.
    pub async fn openapi(&self) -> Result<String, ClientError> {
        self.asked_once("/openapi.json").await
    }

    async fn asked_once(&self, path: &str) -> Result<String, ClientError> {
        let impatient = self.clone().with_retry_for(std::time::Duration::ZERO);
        let body = impatient.fetch(&Call::get(Address::bare(path))).await?;
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
