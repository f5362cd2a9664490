//! The conformance suite over the model, which also proves its own invariants after every command.

use std::sync::Arc;

use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::clock::ManualClock;
use tidegate_store::bulk::conformance::Guard;
use tidegate_store::bulk::{BulkStore, ModelBulkStore};
use tidegate_store::{StoreError, bulk_conformance_suite};

async fn open(
    config: BulkConfig,
    clock: Arc<ManualClock>,
) -> Result<(Arc<dyn BulkStore>, Guard), StoreError> {
    Ok((Arc::new(ModelBulkStore::new(config, clock)?), Box::new(())))
}

bulk_conformance_suite!(open);
