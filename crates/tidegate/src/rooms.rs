//! Waiting rooms as a library: people wait in a strict order, the room admits them within its limits, and each
//! admitted person carries a signed pass.
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
//!     return Ok(()); // closed, sold out or full, or her last ticket has ended
//! };
//! while let Some(event) = visit.next().await {
//!     match event {
//!         VisitEvent::Waiting { position, eta, .. } => println!("{position}, {eta:?}"),
//!         VisitEvent::Granted { pass, .. } => {
//!             rooms.redeem("concert", &pass, None).await?; // the shop lets her in, once
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
//! A person is a name that the caller vouches for. One name has one ticket per room, and its newest visit wins.
//! Dropping a visit counts as a broken connection: the room keeps the ticket for the grace period.
//!
//! Everything is in one data folder, or on Redis ([`RoomsSetup::on_redis`]), where several processes share
//! rooms. Operator commands, like new limits or a pause, are in the store behind [`Rooms::handle`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tidegate_core::ids::{IdError, PersonId, RoomId, SessionId};
use tidegate_core::room::command::{JoinOutcome, JoinParams, TicketView};
use tidegate_core::room::ticket::TicketState;
use tidegate_engine::room::{
    DrawSecret, PresentedPass, RoomHandle, RoomOptions, RoomService, Seen, Update, Visit, draw,
};
use tidegate_store::StoreError;
use tidegate_store::room::{EmbeddedRoomOptions, EmbeddedRoomStore, RoomStore};
#[cfg(feature = "redis")]
use tidegate_store::room::{RedisRoomOptions, RedisRoomStore};

pub use tidegate_core::config::ConfigError;
pub use tidegate_core::room::command::{Change, Control, Refused, ResizeParams, RoomView, Status};
pub use tidegate_core::room::config::{Capacity, RoomConfig};
pub use tidegate_core::room::eta::Eta;
pub use tidegate_core::room::ticket::End;
pub use tidegate_core::time::{Millis, Timestamp};
pub use tidegate_engine::room::RoomsHandle;
pub use tidegate_engine::room::{Claims, PassKeysConfig, PassRefused, ShopError, Signer, Visited};

/// Why a call failed. A refused person is not an error: see [`Join`].
#[derive(Debug, thiserror::Error)]
pub enum RoomsError {
    /// The settings of a room are invalid.
    #[error("room {room:?}: {error}")]
    Config {
        /// The name of the room.
        room: String,
        /// The invalid value, and what would be right.
        error: ConfigError,
    },
    /// The keys that sign passes are unusable, for this reason.
    #[error("the keys of passes: {0}")]
    Keys(String),
    /// No room has this name.
    #[error("there is no room {0:?}: call `room` before `start`, or open it by the handle")]
    UnknownRoom(String),
    /// The name of a room, a person or a session is invalid.
    #[error(transparent)]
    Id(#[from] IdError),
    /// The pass does not allow the call.
    #[error(transparent)]
    Shop(#[from] ShopError),
    /// The store failed or is unavailable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl RoomsError {
    /// Returns whether the same call may succeed later without an operator.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) | Self::Shop(ShopError::Store(error)) => error.is_retryable(),
            _ => false,
        }
    }
}

/// The rooms and their settings, before the service runs.
#[derive(Debug)]
pub struct RoomsSetup {
    folder: PathBuf,
    #[cfg(feature = "redis")]
    redis: Option<RedisRoomOptions>,
    keys: PassKeysConfig,
    rooms: BTreeMap<RoomId, RoomConfig>,
}

impl RoomsSetup {
    /// Adds a room. A room that the store already has continues with these settings.
    pub fn room(mut self, name: &str, config: RoomConfig) -> Result<Self, RoomsError> {
        config.validate().map_err(|error| RoomsError::Config {
            room: name.to_owned(),
            error,
        })?;
        self.rooms.insert(RoomId::new(name)?, config);
        Ok(self)
    }

    /// Keeps the rooms on Redis, shared by every process with the same addresses: those of one server, or of
    /// some nodes of a Cluster. The folder then holds only the keys of passes, and every process needs the same
    /// keys.
    #[cfg(feature = "redis")]
    pub fn on_redis<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        let mut options = RedisRoomOptions::new("");
        options.urls = urls.into_iter().map(Into::into).collect();
        self.redis = Some(options);
        self
    }

    /// Sets the keys that sign passes. Default: a key that the first start creates in the folder.
    pub fn pass_keys(mut self, keys: PassKeysConfig) -> Self {
        self.keys = keys;
        self
    }

    /// Opens the store and starts to admit people.
    pub async fn start(self) -> Result<Rooms, RoomsError> {
        // The store first: it takes only a folder that is empty or its own, and the signer writes its key there.
        let (store, embedded) = self.store().await?;
        let signer = Signer::open(&self.keys, &self.folder).map_err(RoomsError::Keys)?;
        let service = RoomService::start(store, RoomOptions::default());
        for (name, config) in self.rooms {
            service.handle().open(&name, config).await?;
        }
        Ok(Rooms {
            service,
            signer: Arc::new(signer),
            embedded,
        })
    }

    /// Returns the store, and a second reference if it is an embedded one, which the shutdown closes.
    async fn store(&self) -> Result<(Arc<dyn RoomStore>, Option<Arc<EmbeddedRoomStore>>), RoomsError> {
        #[cfg(feature = "redis")]
        if let Some(options) = &self.redis {
            return Ok((Arc::new(RedisRoomStore::open(options.clone()).await?), None));
        }
        let store = Arc::new(EmbeddedRoomStore::open(EmbeddedRoomOptions::new(&self.folder))?);
        Ok((store.clone(), Some(store)))
    }
}

/// Running waiting rooms. Stop them with [`Rooms::shutdown`].
///
/// The part of a shop, which redeems the pass that a visitor brings:
///
/// ```no_run
/// use tidegate::rooms::{Millis, Rooms, Visited};
///
/// # async fn example(rooms: Rooms, pass: &str) -> Result<(), tidegate::rooms::RoomsError> {
/// // The same session may redeem the pass again.
/// if let Visited::Inside { until } = rooms.redeem("concert", pass, Some("basket-42")).await? {
///     println!("inside until {until:?}");
/// }
/// rooms.extend("concert", pass, Millis(5 * 60_000)).await?;
/// rooms.complete("concert", pass).await?; // or `release`, without a purchase
///
/// let view = rooms.view("concert").await?;
/// println!("{} inside, {} purchases", view.inside, view.counts.completed);
/// # Ok(())
/// # }
/// ```
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

/// The outcome of joining a room.
#[derive(Debug)]
pub enum Join {
    /// The person has a ticket that has not ended.
    Visit(Visitor),
    /// The person's last ticket has ended; [`Rooms::visit_again`] takes a new one.
    Ended(End),
    /// The room is closed, sold out or full.
    Refused(Refused),
}

/// An event of a visit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VisitEvent {
    /// The room has not opened yet; the draw at the opening decides the position.
    Early {
        /// When the room opens.
        opens_at: Option<Timestamp>,
    },
    /// The person waits in line.
    Waiting {
        /// The position in the line, 1 for the next person.
        position: u64,
        /// People who wait in all.
        waiting: u64,
        /// The estimated time until admission; none without an estimate, and while the room admits nobody.
        eta: Option<Eta>,
        /// Whether the room admits people.
        status: Status,
    },
    /// The room admitted the person. One ticket has one pass, however often the person joins.
    Granted {
        /// The signed pass, for the shop.
        pass: String,
        /// The time until which the shop can redeem the pass.
        until: Timestamp,
    },
    /// The shop redeemed the pass.
    Inside {
        /// The time until which the visit may last.
        until: Timestamp,
    },
    /// The ticket has ended. This is the last event.
    Ended(End),
    /// A newer visit of the same person took over the ticket. This is the last event.
    Superseded,
}

impl Rooms {
    /// Starts the setup in a data folder, which [`start`](RoomsSetup::start) creates if it is missing.
    pub fn open(folder: impl Into<PathBuf>) -> RoomsSetup {
        RoomsSetup {
            folder: folder.into(),
            #[cfg(feature = "redis")]
            redis: None,
            keys: PassKeysConfig::default(),
            rooms: BTreeMap::new(),
        }
    }

    /// Joins a room, or finds the person's ticket, and follows it.
    pub async fn visit(&self, room: &str, person: &str) -> Result<Join, RoomsError> {
        self.join(room, person, false).await
    }

    /// Joins a room as [`visit`](Self::visit) does, but takes a new ticket at the end of the line if the last
    /// one has ended.
    pub async fn visit_again(&self, room: &str, person: &str) -> Result<Join, RoomsError> {
        self.join(room, person, true).await
    }

    async fn join(&self, room: &str, person: &str, again: bool) -> Result<Join, RoomsError> {
        let room = self.room(room)?;
        let person = PersonId::new(person)?;
        let secret = self.signer.draw_secret(room.name());
        let opens_at = room.seen_or_read().await?.view.opens_at;
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

    /// Gives up the person's ticket or slot.
    pub async fn leave(&self, room: &str, person: &str) -> Result<(), RoomsError> {
        let room = self.room(room)?;
        room.store().leave(room.name(), &PersonId::new(person)?).await?;
        Ok(())
    }

    /// Redeems a pass, once: its visitor is inside from then on. The same session may repeat the call.
    pub async fn redeem(&self, room: &str, pass: &str, session: Option<&str>) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        let session = session.map(SessionId::new).transpose()?;
        Ok(PresentedPass::new(&room, &claims).redeem(session).await?)
    }

    /// Reads the state of a pass's visit without redeeming the pass.
    pub async fn check(&self, room: &str, pass: &str) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).check().await?)
    }

    /// Extends a visit: it may last this long from now, never shorter than before.
    pub async fn extend(&self, room: &str, pass: &str, by: Millis) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).extend(by).await?)
    }

    /// Completes a visit with a purchase: the slot is free again, and the seat stays taken. Repeating the call
    /// changes nothing.
    pub async fn complete(&self, room: &str, pass: &str) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).complete().await?)
    }

    /// Ends a visit without a purchase: slot and seat are free again. Repeating the call changes nothing.
    pub async fn release(&self, room: &str, pass: &str) -> Result<Visited, RoomsError> {
        let (room, claims) = self.shown(room, pass)?;
        Ok(PresentedPass::new(&room, &claims).release().await?)
    }

    /// Reads a room: its state, limits and counts.
    pub async fn view(&self, room: &str) -> Result<RoomView, RoomsError> {
        let room = self.room(room)?;
        Ok(room.store().overview(room.name()).await?)
    }

    /// Returns the signer, which verifies passes and exports the public keys as a JWK Set.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Returns the handle for everything else: more rooms, new limits, pauses, history.
    pub fn handle(&self) -> RoomsHandle {
        self.service.handle()
    }

    /// Stops to admit people; the store keeps tickets and slots for the next start. Drop all visits and
    /// handles, too: they hold the folder.
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

/// The visit of one person. Dropping it counts as a broken connection: the room keeps the ticket for the grace
/// period.
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
    /// Returns the next event, the first at once; none after the last one.
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
            None => self.room.seen_or_read().await.ok()?,
        };
        Some(self.event(&view, &seen))
    }

    fn event(&self, view: &TicketView, seen: &Seen) -> VisitEvent {
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
                status: seen.view.status,
            },
            TicketState::Granted { wave, at, until } => {
                let claims = Claims {
                    person: self.visit.person().clone(),
                    incarnation: seen.view.incarnation,
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
