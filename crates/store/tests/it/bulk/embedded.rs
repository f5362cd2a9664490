//! The conformance suite over the embedded store, each case in data folders of its own.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate_core::config::BulkConfig;
use tidegate_store::conformance::Guard;
use tidegate_store::embedded::{Durability, EmbeddedOptions, EmbeddedStore};
use tidegate_store::{ManualClock, Store, StoreError, conformance_suite};

async fn open(config: BulkConfig, clock: Arc<ManualClock>) -> Result<(Arc<dyn Store>, Guard), StoreError> {
    let folder = TempDir::new().expect("a temporary folder");
    // Durability is proven where the power is cut; here it would only cost time.
    let options = EmbeddedOptions {
        folder: folder.path().to_owned(),
        durability: Durability::Buffered,
        config,
        clock,
    };
    Ok((Arc::new(EmbeddedStore::open(options)?), Box::new(folder)))
}

conformance_suite!(open);
