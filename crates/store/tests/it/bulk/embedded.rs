//! The conformance suite over the embedded store, each case in data folders of its own.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::clock::ManualClock;
use tidegate_durable::Durability;
use tidegate_store::bulk::conformance::Guard;
use tidegate_store::bulk::{BulkStore, EmbeddedBulkOptions, EmbeddedBulkStore};
use tidegate_store::{StoreError, bulk_conformance_suite};

async fn open(
    config: BulkConfig,
    clock: Arc<ManualClock>,
) -> Result<(Arc<dyn BulkStore>, Guard), StoreError> {
    let folder = TempDir::new().expect("a temporary folder");
    // Durability is proven where the power is cut; here it would only cost time.
    let options = EmbeddedBulkOptions {
        folder: folder.path().to_owned(),
        durability: Durability::Buffered,
        config,
        clock,
    };
    Ok((Arc::new(EmbeddedBulkStore::open(options)?), Box::new(folder)))
}

bulk_conformance_suite!(open);
