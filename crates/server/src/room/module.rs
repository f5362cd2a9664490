//! The room module of the service: its store, its engine service, and the state that requests about rooms share.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Client;
use sha2::{Digest, Sha256};
use tidegate_core::ids::RoomId;
use tidegate_core::room::command::RemoveOutcome;
use tidegate_core::time::Timestamp;
use tidegate_engine::room::identity::{CookieSigner, Identifier, ShopKeys};
use tidegate_engine::room::{
    AddressBlock, Claims, DrawSecret, Entry, EventFailure, FailOpen, FindRoomError, Joins, PresentedPass,
    Proofs, RoomDirectory, RoomHandle, RoomOptions, RoomService, RoomsHandle, Signer, TooMany,
};
use tidegate_store::room::{
    EmbeddedRoomOptions, EmbeddedRoomStore, RedisRoomOptions, RedisRoomStore, RoomStore,
};
use tokio::sync::Semaphore;

use super::event_service;
use super::page::{Lang, OwnTexts, Texts};
use super::proxies::Proxies;
use crate::config::{Config, RoomSettings, StoreKind};
use crate::problem::{ApiError, ApiResult, CONFLICT, EVENT_SERVICE, NO_ROOMS, TOO_MANY_JOINS, UNKNOWN_ROOM};
use crate::service::ServiceError;
use crate::state::App;

/// The running room module. The service starts it and shuts it down.
pub(crate) struct RoomModule {
    service: RoomService,
    rooms: Arc<Rooms>,
    folder: Option<Arc<EmbeddedRoomStore>>,
}

/// The state that requests share.
pub(crate) struct Rooms {
    pub(crate) handle: RoomsHandle,
    pub(crate) signer: Signer,
    pub(crate) proxies: Proxies,
    pub(crate) joins: Arc<Joins>,
    pub(crate) proofs: Proofs,
    pub(crate) cookies: CookieSigner,
    pub(crate) streams: Arc<Semaphore>,
    /// Finds rooms that the configuration does not have.
    directory: RoomDirectory,
    /// The settings of such rooms.
    template: RoomSettings,
    configured: BTreeMap<RoomId, Arc<ServedRoom>>,
    /// Rooms that the configuration does not have, with the settings of the template.
    found: Mutex<HashMap<RoomId, Arc<ServedRoom>>>,
}

impl std::fmt::Debug for Rooms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rooms").finish_non_exhaustive()
    }
}

/// A room that this process serves, with its settings.
#[derive(Debug)]
pub(crate) struct ServedRoom {
    pub(crate) room: RoomHandle,
    pub(crate) settings: RoomSettings,
    pub(crate) shop_keys: ShopKeys,
    texts: [(Lang, Texts); 2],
    /// Derives the seed of every draw.
    draws: DrawSecret,
    /// Passes that this process issued without the store.
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
            draws: DrawSecret::new(secret, &name),
            failed_open: AtomicU64::new(0),
            room,
            settings,
        })
    }

    pub(crate) fn texts(&self, lang: Lang) -> &Texts {
        let found = self.texts.iter().find(|(known, _)| *known == lang);
        &found.unwrap_or(&self.texts[0]).1
    }

    /// The rules by which a request identifies a visitor.
    pub(crate) fn identifier<'a>(&'a self, rooms: &'a Rooms) -> Identifier<'a> {
        Identifier {
            room: self.room.name(),
            shop_keys: &self.shop_keys,
            anonymous: self.settings.anonymous,
            cookies: &rooms.cookies,
        }
    }

    /// The rules by which a visitor takes a ticket.
    pub(crate) fn entry<'a>(&'a self, app: &'a App, rooms: &'a Rooms) -> Entry<'a> {
        Entry {
            room: &self.room,
            joins: &rooms.joins,
            proofs: &rooms.proofs,
            proof: self.settings.proof.as_ref(),
            again: self.settings.again,
            draws: &self.draws,
            fail_open: self.fail_open(),
            clock: &*app.clock,
        }
    }

    /// A pass that a shop presents.
    pub(crate) fn presented<'a>(&'a self, claims: &'a Claims, app: &'a App) -> PresentedPass<'a> {
        PresentedPass::new(&self.room, claims).with_service(self.fail_open(), &*app.clock)
    }

    /// The settings for failing open while the store is unavailable.
    fn fail_open(&self) -> FailOpen {
        FailOpen {
            until: self.settings.fail_open_until.map(|at| Timestamp(at.0)),
            pass_ms: self.settings.pass_ms,
            inside_ms: self.settings.inside_ms,
        }
    }

    /// The seed of the draw of an opening.
    pub(crate) fn seed(&self, opens_at: Option<Timestamp>) -> [u8; 32] {
        self.draws.seed(opens_at)
    }
}

impl RoomModule {
    /// Starts the module; returns `None` without rooms.
    pub(crate) async fn start(config: &Config, client: &Client) -> Result<Option<Self>, ServiceError> {
        if !config.has_rooms() {
            return Ok(None);
        }
        let section = &config.room;
        let signer = Signer::open(&section.keys, &config.store.data).map_err(ServiceError::Setting)?;
        let events = section.event_service.as_ref();
        let events = events
            .map(|events| event_service::open(client, "room.event_service", events))
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
            let served = ServedRoom::new(room, settings.clone(), &signer).map_err(ServiceError::Setting)?;
            configured.insert(name.clone(), Arc::new(served));
        }
        let (template, joins) = (config.room_template(), Arc::new(Joins::new(&section.joins)));
        let rooms = Rooms {
            proofs: Proofs::new(signer.secrets_for("proof")),
            cookies: CookieSigner::new(&signer.secrets_for("named")),
            streams: Arc::new(Semaphore::new(section.max_streams as usize)),
            directory: RoomDirectory {
                rooms: handle.clone(),
                events,
                template: template.core(),
                joins: joins.clone(),
            },
            found: Mutex::default(),
            handle,
            joins,
            proxies,
            signer,
            template,
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

    /// Resolves when the store has failed permanently.
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
                durability: config.store.durability,
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
    /// Returns the room of this name for visitors and shops. `visitor` is the address of a request without a key, and its
    /// time.
    pub(crate) async fn room(
        &self,
        name: &str,
        visitor: Option<(AddressBlock, Timestamp)>,
    ) -> ApiResult<Arc<ServedRoom>> {
        let id = RoomId::new(name).map_err(|_| unknown(name))?;
        if let Some(served) = self.configured.get(&id) {
            return Ok(served.clone());
        }
        let found = self.directory.find(&id, visitor).await;
        self.of_template(found.map_err(|error| not_found(name, error))?)
    }

    /// Returns the room of this name for operators. It may belong to an earlier configuration, if the store still has it.
    pub(crate) async fn any_room(&self, name: &str) -> ApiResult<Arc<ServedRoom>> {
        let id = RoomId::new(name).map_err(|_| unknown(name))?;
        if let Some(served) = self.configured.get(&id) {
            return Ok(served.clone());
        }
        let found = self.directory.find_any(&id).await;
        self.of_template(found.map_err(|error| not_found(name, error))?)
    }

    /// Serves a room with the settings of the template. The store has the settings of the state machine.
    fn of_template(&self, room: RoomHandle) -> ApiResult<Arc<ServedRoom>> {
        let name = room.name().clone();
        let mut found = self.found();
        if let Some(known) = found.get(&name).filter(|served| !served.room.is_gone()) {
            return Ok(known.clone());
        }
        room.set_presence(self.template.presence_ms);
        let served = ServedRoom::new(room, self.template.clone(), &self.signer).map_err(|reason| {
            tracing::error!(room = %name, reason, "failed to open a room");
            unknown(name.as_str())
        })?;
        let served = Arc::new(served);
        found.insert(name, served.clone());
        Ok(served)
    }

    fn found(&self) -> MutexGuard<'_, HashMap<RoomId, Arc<ServedRoom>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every room that this process serves, in the order of their names.
    pub(crate) fn served_rooms(&self) -> Vec<Arc<ServedRoom>> {
        let rooms = self.handle.rooms().into_iter();
        rooms
            .filter_map(|room| match self.configured.get(room.name()) {
                Some(served) => Some(served.clone()),
                None => self.of_template(room).ok(),
            })
            .collect()
    }

    /// Removes a room that is over and that the configuration does not have.
    pub(crate) async fn remove(&self, name: &str) -> ApiResult<()> {
        let id = RoomId::new(name).map_err(|_| unknown(name))?;
        if self.configured.contains_key(&id) {
            let detail = format!("room {name:?} is in the configuration: remove it from [rooms] first");
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
                    "room {name:?} is in use: {waiting} people wait and {inside} are admitted or inside; wait until they have left"
                ),
            )),
        }
    }
}

fn unknown(name: &str) -> ApiError {
    ApiError::new(UNKNOWN_ROOM, format!("there is no room {name:?}"))
}

fn not_found(name: &str, error: FindRoomError) -> ApiError {
    match error {
        FindRoomError::Unknown => unknown(name),
        FindRoomError::Store(error) => error.into(),
        FindRoomError::Event(failure @ EventFailure::TooMany(TooMany { wait })) => {
            ApiError::new(TOO_MANY_JOINS, format!("{failure}; try again later")).after(wait)
        }
        FindRoomError::Event(failure) => {
            tracing::warn!(room = name, %failure, "failed to open a room");
            let detail = format!("the seats of room {name:?} are unknown: {failure}; try again later");
            ApiError::new(EVENT_SERVICE, detail)
        }
    }
}

impl App {
    /// The rooms; a problem without any.
    pub(crate) fn rooms(&self) -> ApiResult<&Arc<Rooms>> {
        self.rooms.as_ref().ok_or_else(|| {
            let detail = "the configuration has no rooms; add one to [rooms], or add [room.event_service]";
            ApiError::new(NO_ROOMS, detail)
        })
    }
}
