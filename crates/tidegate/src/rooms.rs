//! Waiting rooms as a library: people wait in a strict order, are let in as far as the limits allow, and carry a signed
//! pass.
//!
//! ```no_run
//! use tidegate::rooms::{Capacity, Join, RoomConfig, Rooms, VisitEvent};
//!
//! # async fn example() -> Result<(), tidegate::rooms::RoomsError> {
//! let concert = RoomConfig {
//!     capacity: Capacity { seats: Some(5_000), inside: 300, per_second: 20 },
//!     ..RoomConfig::default()
//! };
//! let rooms = Rooms::open("data").room("concert", concert)?.start().await?;
//!
//! let Join::Visit(mut visit) = rooms.visit("concert", "anna").await? else {
//!     return Ok(()); // closed, sold out, or her last ticket has ended
//! };
//! while let Some(told) = visit.next().await {
//!     match told {
//!         VisitEvent::Waiting { position, eta, .. } => println!("{position}, {eta:?}"),
//!         VisitEvent::Granted { pass, .. } => {
//!             rooms.redeem("concert", &pass, None).await?; // the shop's part: lets her in, once
//!             rooms.complete("concert", &pass).await?;     // she has bought: the slot is free again
//!         }
//!         other => println!("{other:?}"),
//!     }
//! }
//! drop(visit);
//! rooms.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! A person is a name that the caller vouches for: one name has one ticket per room, however often it comes, and its
//! newest visit wins. Dropping a visit is a connection that broke: the place is kept for the grace time. Everything is in
//! one data folder, or on Redis ([`RoomsSetup::on_redis`]), where several processes share rooms. What operators do, like
//! new limits or a pause, is in the store behind [`Rooms::handle`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_core::ids::{IdError, PersonId, RoomId, SessionId};
use tidegate_core::room::command::{JoinOutcome, JoinParams, TicketView};
use tidegate_core::room::ticket::TicketState;
use tidegate_engine::room::{RoomHandle, RoomOptions, RoomService, Seen, Update, Visit};
use tidegate_server::passes::{DrawSecret, PresentedPass, draw};
use tidegate_store::StoreError;
use tidegate_store::room::{
    EmbeddedRoomOptions, EmbeddedRoomStore, RedisRoomOptions, RedisRoomStore, RoomStore,
};

pub use tidegate_core::config::ConfigError;
pub use tidegate_core::room::command::{Change, Control, Refused, ResizeParams, RoomView, Status};
pub use tidegate_core::room::config::{Capacity, RoomConfig};
pub use tidegate_core::room::eta::Eta;
pub use tidegate_core::room::ticket::End;
pub use tidegate_core::time::{Millis, Timestamp};
pub use tidegate_engine::room::RoomsHandle;
pub use tidegate_server::passes::{Claims, PassKeysConfig, PassRefused, ShopError, Signer, Visited};

/// What can go wrong. Refusals of people are no errors: see [`Join`].
#[derive(Debug, thiserror::Error)]
pub enum RoomsError {
    #[error("room {room:?}: {error}")]
    Config { room: String, error: ConfigError },
    #[error("the keys of passes: {0}")]
    Keys(String),
    #[error("there is no room {0:?}: call `room` before `start`, or open it by the handle")]
    UnknownRoom(String),
    #[error(transparent)]
    Id(#[from] IdError),
    #[error(transparent)]
    Shop(#[from] ShopError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RoomsError {
    /// Whether the same call may work later without anyone stepping in.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) | Self::Shop(ShopError::Store(error)) => error.is_retryable(),
            _ => false,
        }
    }
}

/// Rooms and their settings, before anything runs.
#[derive(Debug)]
pub struct RoomsSetup {
    folder: PathBuf,
    redis: Option<RedisRoomOptions>,
    keys: PassKeysConfig,
    rooms: BTreeMap<RoomId, RoomConfig>,
}

impl RoomsSetup {
    /// A room. One that the store has already goes on where it was, with these settings.
    pub fn room(mut self, name: &str, config: RoomConfig) -> Result<Self, RoomsError> {
        config.validate().map_err(|error| RoomsError::Config {
            room: name.to_owned(),
            error,
        })?;
        self.rooms.insert(RoomId::new(name)?, config);
        Ok(self)
    }

    /// On Redis, shared with every process that names the same addresses: those of one server, or some of a Cluster. The
    /// folder then holds the keys of passes only, and every process needs the same.
    pub fn on_redis<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        let mut options = RedisRoomOptions::new("");
        options.urls = urls.into_iter().map(Into::into).collect();
        self.redis = Some(options);
        self
    }

    /// Which keys sign passes; one is made in the folder if nothing else is said.
    pub fn pass_keys(mut self, keys: PassKeysConfig) -> Self {
        self.keys = keys;
        self
    }

    /// Opens the store and begins to let people in.
    pub async fn start(self) -> Result<Rooms, RoomsError> {
        let Self {
            folder,
            redis,
            keys,
            rooms,
        } = self;
        let (store, embedded): (Arc<dyn RoomStore>, _) = match redis {
            Some(options) => (Arc::new(RedisRoomStore::open(options).await?), None),
            None => {
                let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions::new(&folder))?);
                (store.clone(), Some(store))
            }
        };
        let signer = Signer::open(&keys, &folder).map_err(RoomsError::Keys)?;
        let service = RoomService::start(store, RoomOptions::default());
        for (name, config) in rooms {
            service.handle().open(&name, config).await?;
        }
        Ok(Rooms {
            service,
            signer: Arc::new(signer),
            embedded,
        })
    }
}

/// Running waiting rooms. End them with [`Rooms::shutdown`].
pub struct Rooms {
    service: RoomService,
    signer: Arc<Signer>,
    embedded: Option<Arc<EmbeddedRoomStore>>,
}

impl fmt::Debug for Rooms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rooms").field("service", &self.service).finish()
    }
}

/// What becomes of somebody who comes.
#[derive(Debug)]
pub enum Join {
    /// Has a place, or has been let in.
    Visit(Visitor),
    /// The last ticket has ended; [`Rooms::visit_again`] takes another one.
    Ended(End),
    Refused(Refused),
}

/// What a visitor is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitEvent {
    /// The room opens at this time, and the order is drawn then.
    Early { opens_at: Option<Timestamp> },
    Waiting {
        /// From 1 on.
        position: u64,
        /// How many wait in all.
        waiting: u64,
        /// None while nobody can tell.
        eta: Option<Eta>,
        /// Whether people are let in at all.
        door: Status,
    },
    /// Let in. The same ticket has the same pass however often it is told.
    Granted { pass: String, until: Timestamp },
    /// The pass was redeemed.
    Inside { until: Timestamp },
    /// Nothing more comes.
    Ended(End),
    /// A newer visit of the same person took over; nothing more comes, and nothing changes.
    Superseded,
}

impl Rooms {
    /// In a data folder, which is made if it is missing.
    pub fn open(folder: impl Into<PathBuf>) -> RoomsSetup {
        RoomsSetup {
            folder: folder.into(),
            redis: None,
            keys: PassKeysConfig::default(),
            rooms: BTreeMap::new(),
        }
    }

    /// Takes a place for a person, or finds the one that it has, and follows it.
    pub async fn visit(&self, room: &str, person: &str) -> Result<Join, RoomsError> {
        self.come(room, person, false).await
    }

    /// The same, at the end of the line for somebody whose last ticket has ended.
    pub async fn visit_again(&self, room: &str, person: &str) -> Result<Join, RoomsError> {
        self.come(room, person, true).await
    }

    async fn come(&self, room: &str, person: &str, again: bool) -> Result<Join, RoomsError> {
        let room = self.room(room)?;
        let person = PersonId::new(person)?;
        let secret = self.signer.draw_secret(room.name());
        let opens_at = room.seen_or_look().await?.view.opens_at;
        let seed = DrawSecret::new(secret, room.name()).seed(opens_at);
        let params = JoinParams {
            draw: draw(&seed, &person),
            person,
            stream: true,
            again,
        };
        Ok(match room.visit(params).await? {
            Ok(visit) => Join::Visit(Visitor {
                visit,
                room,
                signer: self.signer.clone(),
            }),
            Err(JoinOutcome::Refused(refused)) => Join::Refused(refused),
            Err(JoinOutcome::Ended(view) | JoinOutcome::Placed { ticket: view, .. }) => {
                match view.ticket.state {
                    TicketState::Ended { end, .. } => Join::Ended(end),
                    _ => Join::Ended(End::Lost),
                }
            }
        })
    }

    /// Gives up the place or the slot.
    pub async fn leave(&self, room: &str, person: &str) -> Result<(), RoomsError> {
        let room = self.room(room)?;
        room.store().leave(room.name(), &PersonId::new(person)?).await?;
        Ok(())
    }

    /// Lets the visitor of a pass in, once; the same session may ask again.
    pub async fn redeem(&self, room: &str, pass: &str, session: Option<&str>) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        let session = session.map(SessionId::new).transpose()?;
        Ok(PresentedPass::new(&room, &claims).redeem(session).await?)
    }

    /// What a pass is worth, without redeeming it.
    pub async fn check(&self, room: &str, pass: &str) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).check().await?)
    }

    /// Lets the visitor of a pass stay for so long from now on; never shorter.
    pub async fn extend(&self, room: &str, pass: &str, by: Millis) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).extend(by).await?)
    }

    /// The visitor of a pass has bought: the slot is free, the seat stays taken. Said twice, it counts once.
    pub async fn complete(&self, room: &str, pass: &str) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).complete().await?)
    }

    /// The visitor of a pass goes without having bought: slot and seat come back, once.
    pub async fn release(&self, room: &str, pass: &str) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).release().await?)
    }

    /// A room as it is.
    pub async fn view(&self, room: &str) -> Result<RoomView, RoomsError> {
        let room = self.room(room)?;
        Ok(room.store().survey(room.name()).await?)
    }

    /// Verifies passes, and tells the keys with which others can.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Everything else: rooms opened later, new limits, pauses, the last minutes.
    pub fn handle(&self) -> RoomsHandle {
        self.service.handle()
    }

    /// Stops letting people in. Places and slots are there at the next start; the folder is free for it when all visits
    /// and handles are gone, too.
    pub async fn shutdown(self) -> Result<(), RoomsError> {
        self.service.shutdown().await;
        if let Some(embedded) = self.embedded {
            embedded.close().await?;
        }
        Ok(())
    }

    fn room(&self, name: &str) -> Result<RoomHandle, RoomsError> {
        let room = self.service.handle().room(&RoomId::new(name)?);
        room.ok_or_else(|| RoomsError::UnknownRoom(name.to_owned()))
    }

    fn shown(&self, room: &str, pass: &str) -> Result<(RoomHandle, Claims), RoomsError> {
        let room = self.room(room)?;
        let claims = self.signer.identify(pass, room.name());
        Ok((room, claims.map_err(ShopError::from)?))
    }
}

/// One person's visit. Dropped, it is a connection that broke.
pub struct Visitor {
    visit: Visit,
    room: RoomHandle,
    signer: Arc<Signer>,
}

impl fmt::Debug for Visitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Visitor").field("visit", &self.visit).finish()
    }
}

impl Visitor {
    /// The next thing to tell; the first comes at once. None when nothing more comes.
    pub async fn next(&mut self) -> Option<VisitEvent> {
        let view = loop {
            match self.visit.next().await? {
                Update::Superseded => return Some(VisitEvent::Superseded),
                Update::Ticket(view) => break view,
                Update::Quiet => {}
            }
        };
        let seen = match self.visit.seen() {
            Some(seen) => seen,
            None => self.room.seen_or_look().await.ok()?,
        };
        Some(self.told(&view, &seen))
    }

    fn told(&self, view: &TicketView, seen: &Seen) -> VisitEvent {
        match view.ticket.state {
            TicketState::Early { .. } => VisitEvent::Early {
                opens_at: seen.view.opens_at,
            },
            TicketState::Waiting { .. } => VisitEvent::Waiting {
                position: view.ahead + 1,
                waiting: view.waiting,
                eta: match seen.view.status {
                    Status::Open => seen.eta(view.ahead),
                    Status::Paused | Status::Closed => None,
                },
                door: seen.view.status,
            },
            TicketState::Granted { wave, at, until } => {
                let claims = Claims {
                    person: self.visit.person().clone(),
                    born: seen.view.born,
                    wave,
                    index: view.ticket.index,
                    at,
                    until,
                };
                VisitEvent::Granted {
                    pass: self.signer.sign(self.room.name(), &claims),
                    until,
                }
            }
            TicketState::Inside { until, .. } => VisitEvent::Inside { until },
            TicketState::Ended { end, .. } => VisitEvent::Ended(end),
        }
    }
}
