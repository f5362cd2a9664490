//! The embedded store of waiting rooms: every ticket in this process, durable in the data folder.
//!
//! A [`Runner`] owns the rooms and their disk. Memory holds every ticket, read back at start.
//! Everybody who waited then counts as absent: the connections died with the process, the tickets did not.

mod persistence;
mod recover;
pub mod tables;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::time::Timestamp;
use tidegate_durable::{Disk, Durability, DurableError, ReplyAfter, Run, Runner, RunnerOptions, folder};

use self::persistence::RoomPersistence;
use super::{HasNotifier, RoomNotifier, Rooms};
use crate::StoreError;

/// Its sub-folder of the data folder.
const FOLDER: &str = "room";

#[derive(Debug, Clone)]
pub struct EmbeddedRoomOptions {
    /// The data folder, shared with the other parts, which have their own sub-folders.
    pub folder: PathBuf,
    pub durability: Durability,
    pub clock: Arc<dyn Clock>,
}

impl EmbeddedRoomOptions {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            durability: Durability::default(),
            clock: Arc::new(SystemClock),
        }
    }
}

/// Waiting rooms in a data folder.
#[derive(Debug)]
pub struct EmbeddedRoomStore {
    runner: Runner<Rooms>,
    notifier: Arc<RoomNotifier>,
}

impl EmbeddedRoomStore {
    /// Opens the data folder, creates it if it is missing, and reads back every ticket.
    pub fn open(options: EmbeddedRoomOptions) -> Result<Self, StoreError> {
        let disk = folder::open(&options.folder, FOLDER, &tables::ALL)?;
        Self::start(Arc::new(disk), options.clock, options.durability)
    }

    /// Opens on a durable layer whose power a test can cut.
    pub fn open_for_test(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start(disk, clock, Durability::Sync)
    }

    fn start(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, durability: Durability) -> Result<Self, StoreError> {
        let (rooms, numbers) = recover::recover(&*disk, clock.now())?;
        let persistence = RoomPersistence::new(rooms, numbers);
        let options = RunnerOptions {
            durability,
            ..RunnerOptions::new("tidegate-room")
        };
        Ok(Self {
            runner: Runner::start(persistence, disk, clock, options)?,
            notifier: Arc::default(),
        })
    }

    /// Finishes pending calls, syncs and releases the folder. Later calls find the store closed.
    pub async fn close(&self) -> Result<(), StoreError> {
        Ok(self.runner.close().await?)
    }
}

impl HasNotifier for EmbeddedRoomStore {
    fn room_notifier(&self) -> &Arc<RoomNotifier> {
        &self.notifier
    }
}

#[async_trait]
impl Run<Rooms> for EmbeddedRoomStore {
    async fn run<T: Send + 'static>(
        &self,
        work: impl for<'s> FnOnce(&'s mut Rooms, Timestamp) -> (T, ReplyAfter) + Send + 'static,
    ) -> Result<T, DurableError> {
        self.runner.run(work).await
    }
}
