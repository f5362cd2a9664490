//! The conformance suite of waiting rooms over the model. Nothing survives it, so a restart reuses the same one, like
//! processes that share a store.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::ManualClock;
use tidegate_store::room::ModelRoomStore;
use tidegate_store::room::conformance::{Backend, Guard, Opened};
use tidegate_store::room_conformance_suite;

struct Model;

#[async_trait]
impl Backend for Model {
    async fn open(&self, clock: Arc<ManualClock>) -> Opened {
        let store = Arc::new(ModelRoomStore::new(clock));
        Ok((store.clone(), Box::new(store)))
    }

    async fn restart(&self, guard: Guard, _: Arc<ManualClock>) -> Opened {
        let store = *guard.downcast::<Arc<ModelRoomStore>>().expect("what open gave");
        Ok((store.clone(), Box::new(store)))
    }

    fn restart_ends_connections(&self) -> bool {
        false
    }
}

room_conformance_suite!(Model);
