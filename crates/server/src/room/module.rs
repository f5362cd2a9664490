//! The rooms of this service: their store, the services that let people in, and what every request about them needs.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Client;
use sha2::{Digest, Sha256};
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::RemoveOutcome;
use tidegate_core::time::Timestamp;
use tidegate_engine::room::{RoomHandle, RoomOptions, RoomService, RoomsHandle};
use tidegate_store::embedded::Durability;
use tidegate_store::room::{
    EmbeddedRoomOptions, EmbeddedRoomStore, RedisRoomOptions, RedisRoomStore, RoomStore,
};
use tokio::sync::Semaphore;

use super::address::{Block, Proxies};
use super::draw;
use super::event_service::{EventFailure, EventService};
use super::identity_cookie::CookieSigner;
use super::joins::{Joins, TooMany};
use super::page::{Lang, OwnTexts, Texts};
use super::pass::Signer;
use super::proof::Proofs;
use super::visitor::ShopKeys;
use crate::config::{Config, DurabilityConfig, RoomSettings, StoreKind};
use crate::problem::{ApiError, ApiResult, CONFLICT, EVENT_SERVICE, NO_ROOMS, TOO_MANY_JOINS, UNKNOWN_ROOM};
use crate::service::ServiceError;
use crate::state::App;

/// Started and ended by the service.
pub(crate) struct RoomModule {
    service: RoomService,
    rooms: Arc<Rooms>,
    folder: Option<Arc<EmbeddedRoomStore>>,
}

/// What requests reach.
pub(crate) struct Rooms {
    pub(crate) handle: RoomsHandle,
    pub(crate) signer: Signer,
    pub(crate) proxies: Proxies,
    pub(crate) joins: Joins,
    pub(crate) proofs: Proofs,
    pub(crate) seal: CookieSigner,
    pub(crate) streams: Arc<Semaphore>,
    events: Option<EventService>,
    defaults: RoomSettings,
    configured: BTreeMap<RoomId, Arc<ServedRoom>>,
    /// Those of the store that are not configured, with the settings of the template.
    found: Mutex<HashMap<RoomId, Arc<ServedRoom>>>,
}

impl std::fmt::Debug for Rooms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rooms").finish_non_exhaustive()
    }
}

/// One room, with its settings.
#[derive(Debug)]
pub(crate) struct ServedRoom {
    pub(crate) room: RoomHandle,
    pub(crate) settings: RoomSettings,
    pub(crate) shop_keys: ShopKeys,
    texts: [(Lang, Texts); 2],
    /// What the seed of every draw is made from.
    draws: draw::Secret,
    /// Passes that this process gave without the store.
    pub(crate) failed_open: AtomicU64,
}

impl ServedRoom {
    fn new(room: RoomHandle, settings: RoomSettings, signer: &Signer) -> Result<Self, String> {
        let own = |lang: Lang| settings.texts.get(lang.code()).cloned().unwrap_or_default();
        let texts = |lang: Lang, own: &OwnTexts| (lang, Texts::new(lang, own));
        let name = room.name().clone();
        let secret = match &settings.draw_seed {
            Some(secret) => Sha256::digest(secret.expose()).into(),
            None => signer.draw_secret(&name),
        };
        Ok(Self {
            shop_keys: ShopKeys::open(&format!("rooms.{name}.signed_by"), &settings.signed_by)?,
            texts: [texts(Lang::En, &own(Lang::En)), texts(Lang::Ko, &own(Lang::Ko))],
            draws: draw::Secret::new(secret, &name),
            failed_open: AtomicU64::new(0),
            room,
            settings,
        })
    }

    pub(crate) fn texts(&self, lang: Lang) -> &Texts {
        let found = self.texts.iter().find(|(known, _)| *known == lang);
        &found.unwrap_or(&self.texts[0]).1
    }

    /// Decides the place if the room opens at this time. Without one it decides nothing, and cannot be guessed either: the
    /// room may have been given a time that is not seen yet.
    pub(crate) fn draw(&self, person: &PersonId, opens_at: Option<Timestamp>) -> u64 {
        draw::draw(&self.seed(opens_at), person)
    }

    /// The seed of the draw of an opening.
    pub(crate) fn seed(&self, opens_at: Option<Timestamp>) -> [u8; 32] {
        self.draws.seed(opens_at)
    }
}

impl RoomModule {
    /// None without rooms.
    pub(crate) async fn start(config: &Config, client: &Client) -> Result<Option<Self>, ServiceError> {
        if !config.has_rooms() {
            return Ok(None);
        }
        let section = &config.room;
        let signer = Signer::open(&section.keys, &config.store.data).map_err(ServiceError::Setting)?;
        let events = section.event_service.as_ref();
        let events = events
            .map(|events| EventService::new(client, "room.event_service", events))
            .transpose()
            .map_err(ServiceError::Setting)?;
        let proxies = Proxies::new(&section.visitors).map_err(ServiceError::Setting)?;
        let (store, folder) = open(config).await?;
        let options = RoomOptions {
            sweep_ms: section.sweep_ms,
            ..RoomOptions::default()
        };
        let service = RoomService::start(store, options);
        let handle = service.handle();
        let mut configured = BTreeMap::new();
        for (name, settings) in &config.rooms {
            let room = handle.open(name, settings.core()).await?;
            let door = ServedRoom::new(room, settings.clone(), &signer).map_err(ServiceError::Setting)?;
            configured.insert(name.clone(), Arc::new(door));
        }
        let rooms = Rooms {
            handle,
            proofs: Proofs::new(signer.secrets_for("proof")),
            seal: CookieSigner::new(&signer.secrets_for("named")),
            joins: Joins::new(&section.joins),
            streams: Arc::new(Semaphore::new(section.max_streams as usize)),
            defaults: config.room_template(),
            found: Mutex::default(),
            proxies,
            signer,
            events,
            configured,
        };
        Ok(Some(Self {
            service,
            rooms: Arc::new(rooms),
            folder,
        }))
    }

    pub(crate) fn rooms(&self) -> Arc<Rooms> {
        self.rooms.clone()
    }

    /// Resolves when the store has failed for good.
    pub(crate) async fn failed(&self) {
        self.service.failed().await;
    }

    pub(crate) async fn shutdown(self) -> Result<(), ServiceError> {
        self.service.shutdown().await;
        drop(self.rooms);
        match self.folder {
            Some(folder) => Ok(folder.close().await?),
            None => Ok(()),
        }
    }
}

async fn open(config: &Config) -> Result<(Arc<dyn RoomStore>, Option<Arc<EmbeddedRoomStore>>), ServiceError> {
    match config.store.kind {
        StoreKind::Embedded => {
            let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions {
                durability: match config.store.durability {
                    DurabilityConfig::Sync => Durability::Sync,
                    DurabilityConfig::Buffered => Durability::Buffered,
                },
                ..EmbeddedRoomOptions::new(&config.store.data)
            })?);
            Ok((store.clone(), Some(store)))
        }
        StoreKind::Redis => {
            let store = RedisRoomStore::open(RedisRoomOptions {
                urls: config.redis.urls(),
                prefix: format!("{}room:", config.redis.key_prefix),
                clock: None,
            });
            Ok((Arc::new(store.await?), None))
        }
    }
}

impl Rooms {
    /// The room of this name. One that is not configured and that the store does not have is asked for where rooms are
    /// known, and made. What the store has is not asked for again: its limits hold, and those who wait in it can come
    /// back whether or not anybody answers. `visitor`: from where somebody asks who has no key, and when. Such a one may not
    /// make up many names.
    pub(crate) async fn door(
        &self,
        name: &str,
        visitor: Option<(Block, Timestamp)>,
    ) -> ApiResult<Arc<ServedRoom>> {
        let unknown = || unknown(name);
        let id = RoomId::new(name).map_err(|_| unknown())?;
        if let Some(door) = self.configured.get(&id) {
            return Ok(door.clone());
        }
        // Without it, a room of the store is one of a former configuration: who may come in is not known.
        let Some(events) = &self.events else {
            return Err(unknown());
        };
        if let Some(door) = self.stored(&id).await? {
            return Ok(door);
        }
        let mut counted = None;
        let may = || -> Result<(), TooMany> {
            if let Some((from, now)) = visitor {
                self.joins.take_unheard(from, now)?;
                counted = visitor;
            }
            Ok(())
        };
        let asked = events.ask(&id, may).await;
        if let (Ok(_), Some((from, now))) = (&asked, counted) {
            self.joins.give_back_unheard(from, now);
        }
        let event = asked.map_err(|failure| match failure {
            EventFailure::UnknownRoom => unknown(),
            EventFailure::TooMany(TooMany { wait }) => {
                let detail = format!("{failure} within a minute; try again later");
                ApiError::new(TOO_MANY_JOINS, detail).after(wait)
            }
            failure => {
                tracing::warn!(room = name, %failure, "a room cannot be opened");
                let detail = format!("how many seats the room has cannot be told now: {failure}");
                ApiError::new(EVENT_SERVICE, detail)
            }
        })?;
        let mut settings = self.defaults.clone();
        let capacity = &mut settings.capacity;
        capacity.seats = Some(event.seats);
        capacity.inside = event.inside.unwrap_or(capacity.inside);
        capacity.per_second = event.per_second.unwrap_or(capacity.per_second);
        let opens_at = event.opens_at.map(|at| tidegate_api::Time(at.0));
        settings.opens_at = opens_at.or(settings.opens_at);
        // Another process may have made it meanwhile: then that one's answer holds.
        let room = self.handle.make(&id, settings.core()).await?;
        self.of_template(room)
    }

    /// The room of this name for operators: also one of a former configuration that the store still has.
    pub(crate) async fn any_door(&self, name: &str) -> ApiResult<Arc<ServedRoom>> {
        let id = RoomId::new(name).map_err(|_| unknown(name))?;
        match self.configured.contains_key(&id) || self.events.is_some() {
            true => self.door(name, None).await,
            false => self.stored(&id).await?.ok_or_else(|| unknown(name)),
        }
    }

    /// A room that is not configured, if the store has it.
    async fn stored(&self, id: &RoomId) -> ApiResult<Option<Arc<ServedRoom>>> {
        let known = self.found().get(id).cloned();
        if let Some(door) = known.filter(|door| !door.room.is_gone()) {
            return Ok(Some(door));
        }
        let room = self.handle.find(id).await?;
        room.map(|room| self.of_template(room)).transpose()
    }

    /// A room with the settings of the template; what the state machine needs is in the store.
    fn of_template(&self, room: RoomHandle) -> ApiResult<Arc<ServedRoom>> {
        let name = room.name().clone();
        let mut found = self.found();
        if let Some(known) = found.get(&name).filter(|door| !door.room.is_gone()) {
            return Ok(known.clone());
        }
        room.set_presence(self.defaults.presence_ms);
        let door = ServedRoom::new(room, self.defaults.clone(), &self.signer).map_err(|reason| {
            tracing::error!(room = %name, reason, "a room cannot be opened");
            unknown(name.as_str())
        })?;
        let door = Arc::new(door);
        found.insert(name, door.clone());
        Ok(door)
    }

    fn found(&self) -> MutexGuard<'_, HashMap<RoomId, Arc<ServedRoom>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every room that is served here, in the order of their names.
    pub(crate) fn doors(&self) -> Vec<Arc<ServedRoom>> {
        let served = self.handle.rooms().into_iter();
        served
            .filter_map(|room| match self.configured.get(room.name()) {
                Some(door) => Some(door.clone()),
                None => self.of_template(room).ok(),
            })
            .collect()
    }

    /// Removes a room that is over and not configured.
    pub(crate) async fn remove(&self, name: &str) -> ApiResult<()> {
        let id = RoomId::new(name).map_err(|_| unknown(name))?;
        if self.configured.contains_key(&id) {
            let detail = format!("room {name:?} is in the configuration: take it out of [rooms] first");
            return Err(ApiError::new(CONFLICT, detail));
        }
        match self.handle.remove(&id).await? {
            RemoveOutcome::Removed => {
                self.found().remove(&id);
                Ok(())
            }
            RemoveOutcome::Open => Err(ApiError::new(
                CONFLICT,
                format!("room {name:?} is neither closed nor sold out: close it first"),
            )),
            RemoveOutcome::Used { waiting, inside } => Err(ApiError::new(
                CONFLICT,
                format!(
                    "in room {name:?} {waiting} people wait and {inside} are let in or inside: wait until they have gone"
                ),
            )),
        }
    }
}

fn unknown(name: &str) -> ApiError {
    ApiError::new(UNKNOWN_ROOM, format!("there is no room {name:?}"))
}

impl App {
    /// The rooms, if there are any.
    pub(crate) fn rooms(&self) -> ApiResult<&Arc<Rooms>> {
        self.rooms.as_ref().ok_or_else(|| {
            let detail = "no room is configured; add one to [rooms] of the settings, or [room.event_service]";
            ApiError::new(NO_ROOMS, detail)
        })
    }
}
