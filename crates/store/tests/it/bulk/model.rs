//! The conformance suite over the model, which also proves its own invariants after every command.

use std::sync::Arc;

use tidegate_core::config::BulkConfig;
use tidegate_store::conformance::Guard;
use tidegate_store::model::ModelStore;
use tidegate_store::{ManualClock, Store, StoreError, conformance_suite};

async fn open(config: BulkConfig, clock: Arc<ManualClock>) -> Result<(Arc<dyn Store>, Guard), StoreError> {
    Ok((Arc::new(ModelStore::new(config, clock)?), Box::new(())))
}

conformance_suite!(open);
