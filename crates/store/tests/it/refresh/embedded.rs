//! The conformance suite of the refresh part over the embedded store, each case in a data folder of its own.

use std::sync::Arc;

use async_trait::async_trait;
use tempfile::TempDir;
use tidegate_core::clock::ManualClock;
use tidegate_durable::Durability;
use tidegate_store::refresh::conformance::{Backend, Guard, Opened};
use tidegate_store::refresh::{EmbeddedRefreshOptions, EmbeddedRefreshStore, RefreshSettings};
use tidegate_store::refresh_conformance_suite;

struct Embedded;

type Kept = (Arc<EmbeddedRefreshStore>, TempDir);

fn open_in(folder: TempDir, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
    // Durability is proven where the power is cut; here it would only cost time.
    let options = EmbeddedRefreshOptions {
        folder: folder.path().to_owned(),
        durability: Durability::Buffered,
        settings,
        clock,
    };
    let store = Arc::new(EmbeddedRefreshStore::open(options)?);
    let kept: Kept = (store.clone(), folder);
    Ok((store, Box::new(kept)))
}

#[async_trait]
impl Backend for Embedded {
    async fn open(&self, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        open_in(TempDir::new().expect("a temporary folder"), settings, clock)
    }

    async fn restart(&self, guard: Guard, settings: RefreshSettings, clock: Arc<ManualClock>) -> Opened {
        let (store, folder) = *guard.downcast::<Kept>().expect("what open gave");
        store.close().await?;
        open_in(folder, settings, clock)
    }
}

refresh_conformance_suite!(Embedded);
