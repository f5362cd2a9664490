//! The conformance suite of waiting rooms over the embedded store, each case in a data folder of its own.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_core::clock::ManualClock;
use tidegate_durable::Durability;
use tidegate_store::room::conformance::{Backend, Guard, Opened};
use tidegate_store::room::{EmbeddedRoomOptions, EmbeddedRoomStore};
use tidegate_store::room_conformance_suite;

struct Embedded;

type Kept = (Arc<EmbeddedRoomStore>, TempDir);

fn open_in(folder: TempDir, clock: Arc<ManualClock>) -> Opened {
    // Durability is proven where the power is cut; here it would only cost time.
    let options = EmbeddedRoomOptions {
        folder: folder.path().to_owned(),
        durability: Durability::Buffered,
        clock,
    };
    let store = Arc::new(EmbeddedRoomStore::open(options)?);
    let kept: Kept = (store.clone(), folder);
    Ok((store, Box::new(kept)))
}

#[async_trait]
impl Backend for Embedded {
    async fn open(&self, clock: Arc<ManualClock>) -> Opened {
        open_in(TempDir::new().expect("a temporary folder"), clock)
    }

    async fn restart(&self, guard: Guard, clock: Arc<ManualClock>) -> Opened {
        let (store, folder) = *guard.downcast::<Kept>().expect("what open gave");
        store.close().await?;
        open_in(folder, clock)
    }

    fn restart_ends_connections(&self) -> bool {
        true
    }
}

room_conformance_suite!(Embedded);
