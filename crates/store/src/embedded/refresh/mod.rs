//! The embedded store of the refresh part: coalescer and budgets in this process, durable in the data folder.
//!
//! ```text
//!   callers --inbox--> owner thread: run, run, run, write, sync if needed, reply
//! ```
//!
//! One thread owns the machine and its disk. Calls that arrive while it syncs share the next write and the next
//! sync (group commit), so the busier the store, the fewer syncs per request. Memory holds the records that are
//! not idle, read back at start. After a restart budgets start empty and grant nothing for a second, and days
//! continue from their durable count.

mod persistence;
mod recover;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use self::persistence::RefreshPersistence;
use super::disk::{Disk, Table};
use super::fjall_disk::FjallDisk;
use super::runner::Runner;
use super::{Durability, folder};
use crate::machine::{Keep, RunOn};
use crate::refresh::{Machine, RefreshSettings};
use crate::{Clock, StoreError, SystemClock};

/// Its sub-folder of the data folder.
const FOLDER: &str = "refresh";

#[derive(Debug, Clone)]
pub struct EmbeddedRefreshOptions {
    /// The data folder, shared with the other parts, which have their own sub-folders.
    pub folder: PathBuf,
    pub durability: Durability,
    pub settings: RefreshSettings,
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedRefreshOptions {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            durability: Durability::default(),
            settings: RefreshSettings::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

pub struct EmbeddedRefreshStore {
    runner: Runner<Machine>,
}

impl fmt::Debug for EmbeddedRefreshStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedRefreshStore").finish_non_exhaustive()
    }
}

impl EmbeddedRefreshStore {
    /// Opens the data folder, creates it if it is missing, and reads back the records.
    pub fn open(options: EmbeddedRefreshOptions) -> Result<Self, StoreError> {
        options.settings.validate()?;
        folder::prepare(&options.folder)?;
        let disk =
            FjallDisk::open(&options.folder.join(FOLDER), Table::REFRESH).map_err(|error| match error {
                StoreError::Locked(_) => StoreError::Locked(options.folder.clone()),
                other => other,
            })?;
        Self::start(
            Arc::new(disk),
            options.settings,
            options.clock,
            options.durability,
        )
    }

    /// Opens on a durable layer whose power a test can cut.
    pub fn open_for_test(
        disk: Arc<dyn Disk>,
        settings: RefreshSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        settings.validate()?;
        Self::start(disk, settings, clock, Durability::Sync)
    }

    fn start(
        disk: Arc<dyn Disk>,
        settings: RefreshSettings,
        clock: Arc<dyn Clock>,
        durability: Durability,
    ) -> Result<Self, StoreError> {
        let (machine, numbers) = recover::recover(&*disk, settings, clock.now())?;
        let persistence = RefreshPersistence::new(machine, numbers);
        let runner = Runner::start("tidegate-refresh", persistence, disk, clock, durability)?;
        Ok(Self { runner })
    }

    /// Finishes pending calls, syncs and releases the folder. Later calls find the store closed.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.runner.close().await
    }
}

#[async_trait]
impl RunOn<Machine> for EmbeddedRefreshStore {
    async fn run_on<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl for<'m> FnOnce(&'m mut Machine, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.runner.run(keep, work).await
    }
}
