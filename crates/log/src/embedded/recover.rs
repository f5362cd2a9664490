//! Start-up: reads back what the partitions hold and what was committed, and records the layout of a new log.

use std::collections::{BTreeMap, HashMap};

use tidegate_durable::disk::scan_all;
use tidegate_durable::{Disk, DiskError, DurableError, Op, codec as plain};

use super::codec::{self, Committed};
use super::place::{Head, Place};
use super::tables::{HEADS, LAYOUT, OFFSETS};
use crate::{LogError, LogSettings, Topic};

/// What a log reads when it opens.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) heads: BTreeMap<Place, Head>,
    /// The committed offsets, each with its number on disk.
    pub(super) offsets: HashMap<(Place, String), (u64, u64)>,
}

pub(super) fn recover(disk: &dyn Disk, settings: &LogSettings) -> Result<Loaded, LogError> {
    check_layout(disk, settings)?;
    let mut loaded = Loaded::default();
    let known = |place: Place| match place.partition < settings.partitions(place.topic) {
        true => Ok(place),
        false => Err(DiskError(format!(
            "{} has a partition {}",
            place.topic, place.partition
        ))),
    };
    scan_all(disk, HEADS, |key, value| {
        let place = codec::place_of(key).and_then(known)?;
        loaded.heads.insert(place, codec::read_head(value)?);
        Ok(())
    })
    .map_err(DurableError::from)?;
    scan_all(disk, OFFSETS, |key, value| {
        let committed: Committed = plain::decode("a committed offset", value)?;
        let place = codec::place_of(committed.place).and_then(known)?;
        loaded
            .offsets
            .insert((place, committed.group), (key, committed.next));
        Ok(())
    })
    .map_err(DurableError::from)?;
    Ok(loaded)
}

fn check_layout(disk: &dyn Disk, settings: &LogSettings) -> Result<(), LogError> {
    let mut found = HashMap::new();
    scan_all(disk, LAYOUT, |key, value| {
        found.insert(codec::topic_of(key)?, plain::decode::<u32>("a layout", value)?);
        Ok(())
    })
    .map_err(DurableError::from)?;
    let mut ops = Vec::new();
    for topic in Topic::ALL {
        let configured = settings.partitions(topic);
        match found.get(&topic) {
            None => ops.push(Op::Put(
                LAYOUT,
                codec::topic_number(topic),
                plain::encode(&configured),
            )),
            Some(found) if *found == configured => {}
            Some(&found) => {
                return Err(LogError::Layout {
                    topic: settings.name(topic),
                    configured,
                    found,
                });
            }
        }
    }
    if !ops.is_empty() {
        let written = disk.commit(ops).and_then(|()| disk.sync());
        written.map_err(|error| DurableError::Poisoned(error.to_string()))?;
    }
    Ok(())
}
