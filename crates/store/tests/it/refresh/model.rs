//! The conformance suite of the refresh part over the model.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::ManualClock;
use tidegate_store::refresh::conformance::{Backend, Guard, Opened};
use tidegate_store::refresh::{ModelRefreshStore, RefreshSettings};
use tidegate_store::refresh_conformance_suite;

struct Model;

#[async_trait]
impl Backend for Model {
    async fn open(&self, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        Ok((Arc::new(ModelRefreshStore::new(settings, clock)?), Box::new(())))
    }

    async fn restart(&self, _: Guard, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        self.open(settings, clock).await
    }
}

refresh_conformance_suite!(Model);
