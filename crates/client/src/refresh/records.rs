//! Records: read, refresh, follow until fresh.

use tidegate_api::{ReadRecords, Record, RecordName, RecordsRead, RefreshRequested, Source};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::follow::{Events, follow_to_last};
use crate::pages::{Items, items};

impl Client {
    /// Reads a record: the stored snapshot at once, however old. The service requests a refresh if it is stale
    /// or missing.
    pub async fn record(&self, source: &str, key: &str) -> Result<Record, ClientError> {
        self.call(Call::get(Address::of(&["records", source, key]))).await
    }

    /// Reads up to 1,000 records, and returns results in their order.
    pub async fn records(&self, records: &[RecordName]) -> Result<RecordsRead, ClientError> {
        let asked = ReadRecords {
            records: records.to_vec(),
        };
        let call = Call::post(Address::of(&["records", "read"])).idempotent();
        self.call(call.json(&asked)?).await
    }

    /// Requests a refresh of a record, also of a fresh one. The service refuses while it cannot queue the
    /// refresh.
    pub async fn refresh_record(&self, source: &str, key: &str) -> Result<RefreshRequested, ClientError> {
        let address = Address::of(&["records", source, key, "refresh"]);
        // A pending refresh absorbs the next request.
        self.call(Call::post(address).idempotent()).await
    }

    /// Follows a record until it is fresh, known to be absent, or failed for good. With the `version` of a
    /// refresh, follows until that one or a later one has ended.
    pub fn follow_record(&self, source: &str, key: &str, version: Option<u64>) -> Events<Record> {
        let address = Address::of(&["records", source, key, "events"]);
        follow_to_last(self, address.ask("version", version), "record")
    }

    /// Streams the configured sources of records.
    pub fn sources(&self) -> Items<Source> {
        let client = self.clone();
        items(move |_, _| {
            let client = client.clone();
            async move { client.call(Call::get(Address::of(&["sources"]))).await }
        })
    }
}
