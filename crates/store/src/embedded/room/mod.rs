//! The embedded store of waiting rooms: every ticket in this process, durable in the data folder.
//!
//! One thread owns the rooms and their disk (`keeper`). Memory holds every ticket; all of it is read back at start, and
//! everybody who waited then counts as absent: the connections died with the process, the places did not.

mod ledger;
mod recover;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::time::Timestamp;

use self::ledger::RoomLedger;
use super::disk::{Disk, Table};
use super::fjall_disk::FjallDisk;
use super::keeper::Keeper;
use super::{Durability, folder};
use crate::machine::{Keep, OnMachine};
use crate::room::{HasBells, RoomBells, Rooms};
use crate::{Clock, StoreError, SystemClock};

/// Where it lies in the data folder.
const FOLDER: &str = "room";

#[derive(Debug, Clone)]
pub struct EmbeddedRoomOptions {
    /// The data folder; shared with the other parts, which have sub-folders of their own.
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
    keeper: Keeper<Rooms>,
    bells: Arc<RoomBells>,
}

impl fmt::Debug for EmbeddedRoomStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedRoomStore").finish_non_exhaustive()
    }
}

impl EmbeddedRoomStore {
    /// Opens the data folder, makes it if it is missing, and reads back every ticket.
    pub fn open(options: EmbeddedRoomOptions) -> Result<Self, StoreError> {
        folder::prepare(&options.folder)?;
        let disk =
            FjallDisk::open(&options.folder.join(FOLDER), Table::ROOM).map_err(|error| match error {
                StoreError::Locked(_) => StoreError::Locked(options.folder.clone()),
                other => other,
            })?;
        Self::start(Arc::new(disk), options.clock, options.durability)
    }

    /// Opens on a durable layer whose power can be cut.
    pub fn open_for_test(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start(disk, clock, Durability::Sync)
    }

    fn start(disk: Arc<dyn Disk>, clock: Arc<dyn Clock>, durability: Durability) -> Result<Self, StoreError> {
        let (rooms, numbers) = recover::recover(&*disk, clock.now())?;
        let ledger = RoomLedger::new(rooms, numbers);
        let keeper = Keeper::start("tidegate-room", ledger, disk, clock, durability)?;
        Ok(Self {
            keeper,
            bells: Arc::default(),
        })
    }

    /// Finishes what was asked, syncs and lets go of the folder. Calls that come later find the store closed.
    pub async fn close(&self) -> Result<(), StoreError> {
        self.keeper.close().await
    }
}

impl HasBells for EmbeddedRoomStore {
    fn room_bells(&self) -> &Arc<RoomBells> {
        &self.bells
    }
}

#[async_trait]
impl OnMachine<Rooms> for EmbeddedRoomStore {
    async fn on_machine<T: Send + 'static>(
        &self,
        keep: Keep,
        work: impl for<'m> FnOnce(&'m mut Rooms, Timestamp) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        self.keeper.run(keep, work).await
    }
}
