//! The pull protocol: lease, extend, settle. [`Worker`](crate::Worker) runs all of it in a loop.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tidegate_api::{
    ExtendedLease, ExtendedLeases, JobProgress, Lease, LeasedJobs, SettledJob, SettledJobs, Settlement,
};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Extend<'a> {
    leases: &'a [String],
    duration_ms: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    progress: &'a BTreeMap<String, JobProgress>,
}

#[derive(Serialize)]
struct Settle<'a> {
    settlements: &'a [Settlement],
}

impl Client {
    /// Leases jobs of a queue. With `wait_ms` the call waits until there is a job.
    pub async fn lease(&self, asked: &Lease) -> Result<LeasedJobs, ClientError> {
        let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0));
        let call = Call::post(Address::of(&["leases"])).waits(wait);
        self.call(call.json(asked)?).await
    }

    /// Extends leases: each ends this long from now. Takes at most 1,000 leases, and returns results in their
    /// order.
    pub async fn extend(&self, leases: &[String], by: Duration) -> Result<Vec<ExtendedLease>, ClientError> {
        self.extend_with_progress(leases, by, &BTreeMap::new()).await
    }

    /// Extends leases, and reports how far their runs are, by lease. The service shows the latest report with the job.
    pub async fn extend_with_progress(
        &self,
        leases: &[String],
        by: Duration,
        progress: &BTreeMap<String, JobProgress>,
    ) -> Result<Vec<ExtendedLease>, ClientError> {
        let call = Call::post(Address::of(&["leases", "extend"])).idempotent();
        let duration_ms = by.as_millis() as u64;
        let body = Extend {
            leases,
            duration_ms,
            progress,
        };
        let extended: ExtendedLeases = self.call(call.json(&body)?).await?;
        Ok(extended.extended)
    }

    /// Settles leases with the outcomes of their runs. Takes at most 1,000 settlements, and returns results in
    /// their order.
    ///
    /// The client repeats the call if the response is lost. The service then reports as stale what the first
    /// attempt settled.
    pub async fn settle(&self, settlements: &[Settlement]) -> Result<Vec<SettledJob>, ClientError> {
        let call = Call::post(Address::of(&["leases", "settle"])).idempotent();
        let settled: SettledJobs = self.call(call.json(&Settle { settlements })?).await?;
        Ok(settled.settled)
    }
}
