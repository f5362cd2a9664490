//! The embedded store of the refresh part: coalescer and budgets in this process, durable in the data folder.
//!
//! A [`Runner`] owns the machine and its disk. Memory holds the records that are not idle, read back at start. After a
//! restart budgets start empty and grant nothing for a second, and days continue from their durable count.

mod persistence;
mod recover;
mod tables;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::time::Timestamp;
use tidegate_durable::{Disk, Durability, DurableError, ReplyAfter, Run, Runner, RunnerOptions, folder};

use self::persistence::RefreshPersistence;
use super::{Machine, RefreshSettings};
use crate::StoreError;

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

/// Coalescer and budgets in a data folder.
#[derive(Debug)]
pub struct EmbeddedRefreshStore {
    runner: Runner<Machine>,
}

impl EmbeddedRefreshStore {
    /// Opens the data folder, creates it if it is missing, and reads back the records.
    pub fn open(options: EmbeddedRefreshOptions) -> Result<Self, StoreError> {
        options.settings.validate()?;
        let disk = folder::open(&options.folder, FOLDER, &tables::ALL)?;
        let EmbeddedRefreshOptions {
            settings,
            clock,
            durability,
            ..
        } = options;
        Self::start(Arc::new(disk), settings, clock, durability)
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
        let options = RunnerOptions {
            durability,
            ..RunnerOptions::new("tidegate-refresh")
        };
        let runner = Runner::start(persistence, disk, clock, options)?;
        Ok(Self { runner })
    }

    /// Finishes pending calls, syncs and releases the folder. Later calls find the store closed.
    pub async fn close(&self) -> Result<(), StoreError> {
        Ok(self.runner.close().await?)
    }
}

#[async_trait]
impl Run<Machine> for EmbeddedRefreshStore {
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut Machine, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        self.runner.run(work).await
    }
}
