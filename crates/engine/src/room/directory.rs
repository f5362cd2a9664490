//! Finds rooms that have no settings of their own: in the store, or at the event service, which decides whether a room
//! exists. Rooms with settings are opened at the start, and need no search.

use std::sync::Arc;

use tidegate_core::ids::RoomId;
use tidegate_core::room::config::RoomConfig;
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;

use super::address::AddressBlock;
use super::event_service::{EventFailure, EventLookups};
use super::joins::{Joins, TooMany};
use super::service::RoomsHandle;
use super::state::RoomHandle;

/// Rooms of the store, and those of the event service.
#[derive(Debug)]
pub struct RoomDirectory {
    /// The rooms of the store.
    pub rooms: RoomsHandle,
    /// The rooms of the event service; none without one.
    pub events: Option<EventLookups>,
    /// The settings of a room of the event service, except for what its event decides.
    pub template: RoomConfig,
    /// Limits how many unknown names one address can request.
    pub joins: Arc<Joins>,
}

/// Why there is no room.
#[derive(Debug, thiserror::Error)]
pub enum FindRoomError {
    /// No room has this name.
    #[error("no room has this name")]
    Unknown,
    /// Nobody knows whether the room exists.
    #[error(transparent)]
    Event(EventFailure),
    /// The store failed or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RoomDirectory {
    /// Finds a room for visitors and shops.
    ///
    /// If the store does not have the room, the event service decides whether it exists, and this creates it. Rooms of the
    /// store do not need the event service: their limits hold, and their visitors can return while it is unavailable.
    /// `visitor` is the address of a request without a key, and its time.
    pub async fn find(
        &self,
        room: &RoomId,
        visitor: Option<(AddressBlock, Timestamp)>,
    ) -> Result<RoomHandle, FindRoomError> {
        // Without an event service, a room of the store belongs to earlier settings, and its entry rules are unknown.
        let Some(events) = &self.events else {
            return Err(FindRoomError::Unknown);
        };
        if let Some(found) = self.rooms.find(room).await? {
            return Ok(found);
        }
        let mut counted = None;
        let allow = || -> Result<(), TooMany> {
            if let Some((from, now)) = visitor {
                self.joins.take_unheard(from, now)?;
                counted = visitor;
            }
            Ok(())
        };
        let answer = events.fetch(room, allow).await;
        if let (Ok(_), Some((from, now))) = (&answer, counted) {
            self.joins.give_back_unheard(from, now);
        }
        let event = answer.map_err(|failure| match failure {
            EventFailure::UnknownRoom => FindRoomError::Unknown,
            failure => FindRoomError::Event(failure),
        })?;
        // Another process may have created it meanwhile: then its answer of the event service holds.
        Ok(self.rooms.create(room, event.config(&self.template)).await?)
    }

    /// Finds a room for operators. It may belong to earlier settings, if the store still has it.
    pub async fn find_any(&self, room: &RoomId) -> Result<RoomHandle, FindRoomError> {
        match self.events {
            Some(_) => self.find(room, None).await,
            None => self.rooms.find(room).await?.ok_or(FindRoomError::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tidegate_core::clock::SystemClock;
    use tidegate_store::room::{ModelRoomStore, RoomStore};

    use super::super::event_service::tests::{Shop, event, shop};
    use super::super::joins::JoinLimitsConfig;
    use super::super::service::{RoomOptions, RoomService};
    use super::*;

    const NOW: Timestamp = Timestamp(1_772_357_400_000);

    struct World {
        directory: RoomDirectory,
        shop: Arc<Shop>,
        store: Arc<ModelRoomStore>,
        service: RoomService,
    }

    fn world() -> World {
        let store = Arc::new(ModelRoomStore::new(Arc::new(SystemClock)));
        let service = RoomService::start(store.clone(), RoomOptions::default());
        let (shop, events) = shop(30_000);
        let limits = JoinLimitsConfig {
            per_address: 1,
            address_burst: 2,
            ..JoinLimitsConfig::default()
        };
        World {
            directory: RoomDirectory {
                rooms: service.handle(),
                events: Some(events),
                template: RoomConfig {
                    max_waiting: 11,
                    ..RoomConfig::default()
                },
                joins: Arc::new(Joins::new(&limits)),
            },
            shop,
            store,
            service,
        }
    }

    fn room(name: &str) -> RoomId {
        RoomId::new(name).unwrap()
    }

    /// A visitor at this address.
    fn from(number: u32) -> Option<(AddressBlock, Timestamp)> {
        let address = IpAddr::V4(Ipv4Addr::from_bits(number));
        Some((AddressBlock::of(address), NOW))
    }

    #[tokio::test]
    async fn a_room_of_the_event_service_is_created_once_with_what_the_event_says() {
        let World {
            directory,
            shop,
            store,
            service,
        } = world();
        let concert = room("concert");
        let found = directory.find(&concert, from(1)).await.unwrap();
        assert_eq!(found.name(), &concert);
        let view = store.overview(&concert).await.unwrap();
        let config = event(500).config(&directory.template);
        assert_eq!((view.capacity, view.opens_at), (config.capacity, config.opens_at));
        directory.find(&concert, from(1)).await.unwrap();
        assert_eq!(shop.calls(), 1, "the store knows it");
        service.shutdown().await;
    }

    #[tokio::test]
    async fn a_room_of_the_store_needs_no_event_service() {
        let World {
            directory,
            shop,
            store,
            service,
        } = world();
        store.open(&room("broken"), RoomConfig::default()).await.unwrap();
        directory.find(&room("broken"), from(1)).await.unwrap();
        assert_eq!(shop.calls(), 0);
        let without = RoomDirectory {
            events: None,
            ..directory
        };
        let unknown = without.find(&room("broken"), None).await;
        assert!(
            matches!(unknown, Err(FindRoomError::Unknown)),
            "its entry rules are unknown: {unknown:?}"
        );
        without.find_any(&room("broken")).await.unwrap();
        let unknown = without.find_any(&room("concert")).await;
        assert!(matches!(unknown, Err(FindRoomError::Unknown)), "{unknown:?}");
        service.shutdown().await;
    }

    #[tokio::test]
    async fn an_address_that_makes_names_up_has_to_wait_and_others_do_not() {
        let World {
            directory, service, ..
        } = world();
        directory.find(&room("concert"), from(1)).await.unwrap();
        for name in ["a", "b"] {
            let unknown = directory.find(&room(name), from(1)).await;
            assert!(
                matches!(unknown, Err(FindRoomError::Unknown)),
                "a room that exists does not count: {unknown:?}"
            );
        }
        let refused = directory.find(&room("c"), from(1)).await;
        assert!(
            matches!(refused, Err(FindRoomError::Event(EventFailure::TooMany(_)))),
            "{refused:?}"
        );
        for visitor in [from(2), None] {
            let failed = directory.find(&room("broken"), visitor).await;
            assert!(
                matches!(failed, Err(FindRoomError::Event(EventFailure::Refused(_)))),
                "{failed:?}"
            );
        }
        service.shutdown().await;
    }
}
