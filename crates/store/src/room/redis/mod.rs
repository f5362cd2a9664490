//! Waiting rooms on Redis: the keys of a room in one slot, a function call per transition.
//!
//! ```text
//!   batch --in parts--> FCALL on <prefix>{<room>}:head --> outcomes in the order of the batch
//!                         +-- PUBLISH <prefix>signals --> every process
//! ```
//!
//! The scripts (`lua/room/`) restate the core; the conformance suite and a differential test hold them equal to
//! it. Settings are stored with the room: they are the same for every process.
//!
//! **Time** is that of the server that has the room, and never goes back for it.
//!
//! **A lost reply** makes the caller retry. If the first attempt redeemed or reissued a pass, the second
//! reports the same outcome. Everything else is idempotent: a person keeps the ticket, and an admitted person
//! stays admitted.

mod decode;
mod encode;
mod keys;
mod scripts;
mod signals;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::clock::Clock;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{
    Control, ExtendParams, InsideOutcome, JoinOutcome, JoinParams, PromoteOutcome, ReapOutcome, ReapParams,
    RedeemOutcome, RedeemParams, RemoveOutcome, ResizeOutcome, ResizeParams, RoomView, Status, TicketView,
    TouchOutcome, TouchParams,
};
use tidegate_core::room::config::{Capacity, MAX_SPAN, RoomConfig};
use tidegate_core::room::ticket::Wave;
use tidegate_core::room::{Head, Overrides, Room, SeatsOverride};
use tidegate_core::time::Timestamp;
use tidegate_redis::keys::check_prefix;
use tidegate_redis::{Args, Call, Caller, Items, Script, Servers, check_schema};

use self::keys::Keys;
use super::run::{new_incarnation, validated};
use super::{RoomNotifier, RoomStore};
use crate::StoreError;

/// The version of the key layout. A store with another version is rejected.
const SCHEMA: u32 = 2;

/// Limits of one function call, because a server does nothing else meanwhile: joins, heartbeats, tickets read
/// or reaped. Larger batches are split.
const JOINS: usize = 128;
const TOUCHES: usize = 512;
const INSPECTED_AT_ONCE: usize = 512;
const REAPS: u64 = 500;
/// Limit: people that one call admits; the outcome says if there may be more to do at once.
const PROMOTES: u64 = 2_000;

#[derive(Debug, Clone)]
pub struct RedisRoomOptions {
    /// One server, or some of a Cluster: `redis://user:password@host:port/number`, `rediss://…`.
    pub urls: Vec<String>,
    /// The prefix of every key.
    pub prefix: String,
    /// The time source, for tests; the server's own clock if absent.
    pub clock: Option<Arc<dyn Clock>>,
}

impl RedisRoomOptions {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            prefix: "room:".to_owned(),
            clock: None,
        }
    }
}

pub struct RedisRoomStore {
    shared: Arc<Shared>,
    listener: tokio::task::JoinHandle<()>,
}

/// What calls and the signal listener share.
struct Shared {
    servers: Servers,
    keys: Keys,
    caller: Caller,
    signals: Arc<RoomNotifier>,
}

impl fmt::Debug for RedisRoomStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRoomStore").finish_non_exhaustive()
    }
}

impl Drop for RedisRoomStore {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl RedisRoomStore {
    /// Connects, and checks the server's version and the schema.
    pub async fn open(options: RedisRoomOptions) -> Result<Self, StoreError> {
        let RedisRoomOptions { urls, prefix, clock } = options;
        check_prefix(&prefix)?;
        let shared = Arc::new(Shared {
            servers: Servers::new(&urls, &scripts::LIBRARY)?,
            keys: Keys::new(&prefix),
            caller: Caller::new(clock),
            signals: Arc::default(),
        });
        check_schema(&shared.servers, &scripts::SCHEMA, shared.keys.schema(), SCHEMA).await?;
        let listener = tokio::spawn(signals::listen(shared.clone()));
        Ok(Self { shared, listener })
    }
}

impl Shared {
    /// A call that concerns no room.
    async fn plain(&self, script: &'static Script, key: String, args: Args) -> Result<Items, StoreError> {
        self.send(Call::function(script, key).args(args)).await
    }

    async fn send(&self, call: Call) -> Result<Items, StoreError> {
        Ok(Items::of(self.servers.run(call.key(), &call).await?)?)
    }

    /// A transition of a room. The signals that it publishes also fire in this process at once.
    async fn on(&self, room: &RoomId, script: &'static Script, args: Args) -> Result<Items, StoreError> {
        let call = Call::function(script, self.keys.head(room))
            .arg(self.caller.time())
            .again()
            .arg(self.caller.request_id())
            .arg(self.keys.signals())
            .arg(room.as_str())
            .args(args);
        let mut items = self.send(call).await?;
        let bits = items.int()?;
        if bits < 0 {
            return Err(StoreError::UnknownRoom(room.to_string()));
        }
        self.signals.notify(room, signals::signals(bits));
        Ok(items)
    }

    /// A batch in parts, one after the other, so that calls of one person keep their order.
    async fn each<P, T>(
        &self,
        room: &RoomId,
        script: &'static Script,
        (batch, most): (&[P], usize),
        put: impl Fn(&mut Args, &P),
        read: impl Fn(&mut Items) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let mut answers = Vec::with_capacity(batch.len());
        // An empty batch makes a call, too: the room may not exist.
        let parts = batch.chunks(most).chain(batch.is_empty().then_some(batch));
        for part in parts {
            let mut args = Args::default();
            part.iter().for_each(|item| put(&mut args, item));
            let mut items = self.on(room, script, args).await?.items()?;
            for _ in part {
                answers.push(read(&mut items)?);
            }
        }
        Ok(answers)
    }

    /// Creates the room, or updates its settings if requested. It exists before it is listed, so every listed
    /// room exists. Returns true if it was created.
    async fn open(
        &self,
        room: &RoomId,
        config: &RoomConfig,
        status: Option<Status>,
    ) -> Result<bool, StoreError> {
        validated(config)?;
        let args = encode::open(new_incarnation(), config, status);
        let made = self.on(room, &scripts::OPEN, args).await?.flag()?;
        self.list(&scripts::ENLIST, room).await?;
        Ok(made)
    }

    /// Adds a room to the list, or removes it.
    async fn list(&self, script: &'static Script, room: &RoomId) -> Result<(), StoreError> {
        let mut args = Args::default();
        args.text(room.as_str());
        self.plain(script, self.keys.rooms(), args).await.map(drop)
    }

    async fn of_person(
        &self,
        room: &RoomId,
        script: &'static Script,
        person: &PersonId,
    ) -> Result<Items, StoreError> {
        let mut args = Args::default();
        args.text(person.as_str());
        self.on(room, script, args).await
    }
}

/// The core's explanation of a change of the limits that a script rejected.
fn refused(params: &ResizeParams, held: Capacity, configured: Capacity) -> Result<ResizeOutcome, StoreError> {
    let config = RoomConfig {
        capacity: configured,
        ..RoomConfig::default()
    };
    let mut head = Head::new(0, config);
    head.overrides = Overrides {
        seats: SeatsOverride::To(held.seats),
        inside: Some(held.inside),
        per_second: Some(held.per_second),
    };
    let begin = Timestamp::default();
    match Room::restored(head, Vec::new(), begin).resize(params, begin) {
        ResizeOutcome::Resized(_) => Err(StoreError::Corrupt(format!(
            "a script refused new limits for {held:?}: {params:?}"
        ))),
        invalid @ ResizeOutcome::Invalid(_) => Ok(invalid),
    }
}

#[async_trait]
impl RoomStore for RedisRoomStore {
    async fn open(&self, room: &RoomId, config: RoomConfig) -> Result<(), StoreError> {
        self.shared.open(room, &config, None).await.map(drop)
    }

    async fn create(&self, room: &RoomId, config: RoomConfig, status: Status) -> Result<bool, StoreError> {
        self.shared.open(room, &config, Some(status)).await
    }

    async fn remove(&self, room: &RoomId) -> Result<RemoveOutcome, StoreError> {
        let removed = self.shared.on(room, &scripts::REMOVE, Args::default()).await;
        let outcome = match removed {
            Ok(mut items) => decode::removed(&mut items),
            Err(error) => Err(error),
        };
        // Also if the room does not exist: an earlier call may have died before it updated the list.
        if !matches!(
            outcome,
            Ok(RemoveOutcome::Removed) | Err(StoreError::UnknownRoom(_))
        ) {
            return outcome;
        }
        self.shared.list(&scripts::DELIST, room).await?;
        // Another process may have created it again in between.
        match self.look(room, Vec::new()).await {
            Ok(_) => self.shared.list(&scripts::ENLIST, room).await?,
            Err(StoreError::UnknownRoom(_)) => {}
            Err(error) => return Err(error),
        }
        outcome
    }

    async fn rooms(&self) -> Result<Vec<RoomId>, StoreError> {
        let key = self.shared.keys.rooms();
        let mut items = self.shared.plain(&scripts::ROOMS, key, Args::default()).await?;
        let mut rooms = Vec::with_capacity(items.len());
        while !items.is_empty() {
            rooms.push(items.name()?);
        }
        rooms.sort_unstable();
        Ok(rooms)
    }

    async fn join(&self, room: &RoomId, joins: Vec<JoinParams>) -> Result<Vec<JoinOutcome>, StoreError> {
        let read = |items: &mut Items| decode::joined(&mut items.items()?);
        self.shared
            .each(room, &scripts::JOIN, (&joins, JOINS), encode::join, read)
            .await
    }

    async fn touch(&self, room: &RoomId, touches: Vec<TouchParams>) -> Result<Vec<TouchOutcome>, StoreError> {
        let batch = (&touches[..], TOUCHES);
        self.shared
            .each(room, &scripts::TOUCH, batch, encode::touch, decode::touched)
            .await
    }

    async fn promote(&self, room: &RoomId, max: u64) -> Result<PromoteOutcome, StoreError> {
        let args = encode::promote(max.min(PROMOTES));
        decode::promoted(&mut self.shared.on(room, &scripts::PROMOTE, args).await?)
    }

    async fn redeem(&self, room: &RoomId, params: RedeemParams) -> Result<RedeemOutcome, StoreError> {
        let args = encode::redeem(&params);
        decode::redeemed(&mut self.shared.on(room, &scripts::REDEEM, args).await?)
    }

    async fn reissue(&self, room: &RoomId, person: &PersonId) -> Result<bool, StoreError> {
        let script = &scripts::REISSUE;
        Ok(self.shared.of_person(room, script, person).await?.flag()?)
    }

    async fn extend(&self, room: &RoomId, params: ExtendParams) -> Result<InsideOutcome, StoreError> {
        let mut args = Args::default();
        args.text(params.person.as_str()).span(params.by.min(MAX_SPAN));
        decode::inside(&mut self.shared.on(room, &scripts::EXTEND, args).await?)
    }

    async fn complete(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError> {
        let script = &scripts::COMPLETE;
        decode::inside(&mut self.shared.of_person(room, script, person).await?)
    }

    async fn leave(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError> {
        let script = &scripts::LEAVE;
        decode::inside(&mut self.shared.of_person(room, script, person).await?)
    }

    async fn reap(&self, room: &RoomId, params: ReapParams) -> Result<ReapOutcome, StoreError> {
        let (mut all, mut left) = (ReapOutcome::default(), params.max);
        loop {
            let part = left.min(REAPS);
            let mut args = Args::default();
            args.big(part).option(params.absent_by, |args, by| {
                args.big(by.0);
            });
            let found = decode::reaped(&mut self.shared.on(room, &scripts::REAP, args).await?)?;
            all = ReapOutcome {
                now: found.now,
                lost: all.lost + found.lost,
                no_shows: all.no_shows + found.no_shows,
                expired: all.expired + found.expired,
                forgotten: all.forgotten + found.forgotten,
                more: found.more,
            };
            left -= part;
            if left == 0 || !found.more {
                return Ok(all);
            }
        }
    }

    async fn resize(&self, room: &RoomId, params: ResizeParams) -> Result<ResizeOutcome, StoreError> {
        let args = encode::resize(&params);
        let mut items = self.shared.on(room, &scripts::RESIZE, args).await?;
        match items.flag()? {
            true => decode::capacity(&mut items).map(ResizeOutcome::Resized),
            false => refused(
                &params,
                decode::capacity(&mut items)?,
                decode::capacity(&mut items)?,
            ),
        }
    }

    async fn control(&self, room: &RoomId, control: Control) -> Result<(), StoreError> {
        let mut args = Args::default();
        args.number(match control {
            Control::Resume => 1,
            Control::Pause => 2,
            Control::Close => 3,
        });
        self.shared.on(room, &scripts::CONTROL, args).await?;
        Ok(())
    }

    async fn void(&self, room: &RoomId, through: Option<Wave>) -> Result<Wave, StoreError> {
        let mut args = Args::default();
        args.option(through, |args, wave| {
            args.big(wave.0);
        });
        let mut items = self.shared.on(room, &scripts::VOID, args).await?;
        Ok(Wave(items.unsigned()?))
    }

    async fn look(
        &self,
        room: &RoomId,
        people: Vec<PersonId>,
    ) -> Result<Vec<Option<TicketView>>, StoreError> {
        let put = |args: &mut Args, person: &PersonId| {
            args.text(person.as_str());
        };
        let read = |items: &mut Items| decode::looked(&mut items.items()?);
        self.shared
            .each(room, &scripts::LOOK, (&people, INSPECTED_AT_ONCE), put, read)
            .await
    }

    async fn overview(&self, room: &RoomId) -> Result<RoomView, StoreError> {
        let items = &mut self.shared.on(room, &scripts::OVERVIEW, Args::default()).await?;
        decode::overview(items)
    }

    fn signals(&self) -> Arc<RoomNotifier> {
        self.shared.signals.clone()
    }
}
