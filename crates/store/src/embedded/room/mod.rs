//! The embedded store of waiting rooms: every ticket in this process, durable in the data folder.
//!
//! One thread owns the rooms and their disk (`runner`). Memory holds every ticket, read back at start.
//! Everybody who waited then counts as absent: the connections died with the process, the tickets did not.

mod persistence;
mod recover;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use self::persistence::RoomPersistence;
use super::disk::{Disk, Table};
use super::fjall_disk::FjallDisk;
use super::runner::Runner;
use super::{Durability, folder};
use crate::machine::{Keep, RunOn};
use crate::room::{HasNotifier, RoomNotifier, Rooms};
use crate::{Clock, StoreError, SystemClock};

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

pub struct EmbeddedRoomStore {
    runner: Runner<Rooms>,
    signals: Arc<RoomNotifier>,
}

impl fmt::Debug for EmbeddedRoomStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedRoomStore").finish_non_exhaustive()
    }
}

impl EmbeddedRoomStore {
    /// Opens the data folder, creates it if it is missing, and reads back every ticket.
    pub fn open(options: EmbeddedRoomOptions) -> Result<Self, StoreError> {
        folder::prepare(&options.folder)?;
        let disk =
            FjallDisk::open(&options.folder.join(FOLDER), Table::ROOM).map_err(|error| match error {
                StoreError::Locked(_) => StoreError::Locked(options.folder.clone()),
                other => other,
            })?;
        Self::start(Arc::new(disk), options.clock, options.durability)
    }

    /// Opens on a durable layer whose power a test can cut.
    pub fn open_for_test(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start(disk, clock, Durability::Sync)
    }

    fn start(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, durability: Durability) -> Result<Self, StoreError> {
        let (rooms, numbers) = recover::recover(&*disk, clock.now())?;
        let persistence = RoomPersistence::new(rooms, numbers);
        let runner = Runner::start("tidegate-room", persistence, disk, clock, durability)?;
        Ok(Self {
            runner,
            signals: Arc::default(),
        })
    }

    /// Finishes pending calls, syncs and releases the folder. Later calls find the store closed.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.runner.close().await
    }
}

impl HasNotifier for EmbeddedRoomStore {
    fn room_notifier(&self) -> &Arc<RoomNotifier> {
        &self.signals
    }
}

#[async_trait]
impl RunOn<Rooms> for EmbeddedRoomStore {
    async fn run_on<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl for<'m> FnOnce(&'m mut Rooms, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.runner.run(keep, work).await
    }
}
