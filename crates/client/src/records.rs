//! Records: read, ask for a refresh, follow until fresh.

use tidegate_api::{ReadRecords, Record, RecordName, RecordsRead, RefreshRequested, Source};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;
use crate::follow::{Events, follow_to_last};
use crate::pages::{Items, items};

impl Client {
    /// The stored answer at once, however old; asks for a refresh if it is stale or missing.
    pub async fn record(&self, source: &str, key: &str) -> Result<Record, ClientError> {
        self.call(Call::get(Address::of(&["records", source, key]))).await
    }

    /// Several at once, at most 1,000; one answer for each, in their order.
    pub async fn records(&self, records: &[RecordName]) -> Result<RecordsRead, ClientError> {
        let asked = ReadRecords {
            records: records.to_vec(),
        };
        let call = Call::post(Address::of(&["records", "read"])).idempotent();
        self.call(call.json(&asked)?).await
    }

    /// Asks for a refresh, also of what is fresh. Refused while it cannot be queued.
    pub async fn refresh_record(&self, source: &str, key: &str) -> Result<RefreshRequested, ClientError> {
        let address = Address::of(&["records", source, key, "refresh"]);
        // One that is on its way absorbs the next.
        self.call(Call::post(address).idempotent()).await
    }

    /// Follows a record until it is fresh, known to be absent, or given up; with the version of a refresh, until that
    /// one or a later one came to its end.
    pub fn follow_record(&self, source: &str, key: &str, version: Option<u64>) -> Events<Record> {
        let address = Address::of(&["records", source, key, "events"]);
        follow_to_last(self, address.ask("version", version), "record")
    }

    /// Where records come from.
    pub fn sources(&self) -> Items<Source> {
        let client = self.clone();
        items(move |_, _| {
            let client = client.clone();
            async move { client.call(Call::get(Address::of(&["sources"]))).await }
        })
    }
}
