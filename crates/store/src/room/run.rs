//! [`RoomStore`] over anything that runs [`Rooms`].

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::Room;
use tidegate_core::room::command::{
    Control, ExtendParams, InsideOutcome, JoinOutcome, JoinParams, PromoteOutcome, ReapOutcome, ReapParams,
    RedeemOutcome, RedeemParams, RemoveOutcome, ResizeOutcome, ResizeParams, RoomView, Status, TicketView,
    TouchOutcome, TouchParams,
};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::room::ticket::Wave;
use tidegate_core::time::Timestamp;
use tidegate_durable::{ReplyAfter, Run};

use super::{RoomNotifier, RoomStore, Rooms};
use crate::StoreError;

/// The incarnation of a room: distinguishes it from a lost room of the same name. The randomness comes from the
/// standard library's hasher keys; 52 bits, because some backends have no larger integers.
pub(super) fn new_incarnation() -> u64 {
    RandomState::new().build_hasher().finish() >> 12
}

pub(super) trait HasNotifier {
    fn room_notifier(&self) -> &Arc<RoomNotifier>;
}

/// Runs a transition, and signals once it is persisted.
async fn step<S: Run<Rooms> + HasNotifier, T: Send + 'static>(
    store: &S,
    room: &RoomId,
    after: ReplyAfter,
    work: impl FnOnce(&mut Room, Timestamp) -> T + Send + 'static,
) -> Result<T, StoreError> {
    let name = room.clone();
    let run = move |rooms: &mut Rooms, wall: Timestamp| (rooms.on(&name, wall, work), after);
    let (outcome, signals) = store.run(run).await??;
    store.room_notifier().notify(room, signals);
    Ok(outcome)
}

pub(super) fn validated(config: &RoomConfig) -> Result<(), StoreError> {
    config
        .validate()
        .map_err(|error| StoreError::Config(error.to_string()))
}

/// What a power cut may lose, and why that is harmless: heartbeats, because after a restart everybody counts as
/// absent; and what a reap ended, because the next reap ends it again.
#[async_trait]
impl<S: Run<Rooms> + HasNotifier> RoomStore for S {
    async fn open(&self, room: &RoomId, config: RoomConfig) -> Result<(), StoreError> {
        validated(&config)?;
        let name = room.clone();
        let run = move |rooms: &mut Rooms, wall| {
            (
                rooms.open(&name, new_incarnation(), config, wall),
                ReplyAfter::Sync,
            )
        };
        let signals = self.run(run).await?;
        self.room_notifier().notify(room, signals);
        Ok(())
    }

    async fn create(&self, room: &RoomId, config: RoomConfig, status: Status) -> Result<bool, StoreError> {
        validated(&config)?;
        let name = room.clone();
        let run = move |rooms: &mut Rooms, wall| {
            (
                rooms.create(&name, new_incarnation(), config, status, wall),
                ReplyAfter::Sync,
            )
        };
        Ok(self.run(run).await?)
    }

    async fn remove(&self, room: &RoomId) -> Result<RemoveOutcome, StoreError> {
        let name = room.clone();
        let run = move |rooms: &mut Rooms, wall| (rooms.remove(&name, wall), ReplyAfter::Sync);
        self.run(run).await?
    }

    async fn rooms(&self) -> Result<Vec<RoomId>, StoreError> {
        let run = |rooms: &mut Rooms, _: Timestamp| (rooms.names(), ReplyAfter::Write);
        Ok(self.run(run).await?)
    }

    async fn join(&self, room: &RoomId, joins: Vec<JoinParams>) -> Result<Vec<JoinOutcome>, StoreError> {
        let work = move |room: &mut Room, now| joins.iter().map(|join| room.join(join, now)).collect();
        step(self, room, ReplyAfter::Sync, work).await
    }

    async fn touch(&self, room: &RoomId, touches: Vec<TouchParams>) -> Result<Vec<TouchOutcome>, StoreError> {
        let work = move |room: &mut Room, now| touches.iter().map(|touch| room.touch(touch, now)).collect();
        step(self, room, ReplyAfter::Write, work).await
    }

    async fn promote(&self, room: &RoomId, max: u64) -> Result<PromoteOutcome, StoreError> {
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.promote(max, now)
        })
        .await
    }

    async fn redeem(&self, room: &RoomId, params: RedeemParams) -> Result<RedeemOutcome, StoreError> {
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.redeem(&params, now)
        })
        .await
    }

    async fn reissue(&self, room: &RoomId, person: &PersonId) -> Result<bool, StoreError> {
        let person = person.clone();
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.reissue(&person, now)
        })
        .await
    }

    async fn extend(&self, room: &RoomId, params: ExtendParams) -> Result<InsideOutcome, StoreError> {
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.extend(&params, now)
        })
        .await
    }

    async fn complete(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError> {
        let person = person.clone();
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.complete(&person, now)
        })
        .await
    }

    async fn leave(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError> {
        let person = person.clone();
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.leave(&person, now)
        })
        .await
    }

    async fn reap(&self, room: &RoomId, params: ReapParams) -> Result<ReapOutcome, StoreError> {
        step(self, room, ReplyAfter::Write, move |room, now| {
            room.reap(params, now)
        })
        .await
    }

    async fn resize(&self, room: &RoomId, params: ResizeParams) -> Result<ResizeOutcome, StoreError> {
        step(self, room, ReplyAfter::Sync, move |room, now| {
            room.resize(&params, now)
        })
        .await
    }

    async fn control(&self, room: &RoomId, control: Control) -> Result<(), StoreError> {
        step(self, room, ReplyAfter::Sync, move |room, _| room.control(control)).await
    }

    async fn void(&self, room: &RoomId, through: Option<Wave>) -> Result<Wave, StoreError> {
        step(self, room, ReplyAfter::Sync, move |room, _| room.void(through)).await
    }

    async fn look(
        &self,
        room: &RoomId,
        people: Vec<PersonId>,
    ) -> Result<Vec<Option<TicketView>>, StoreError> {
        step(self, room, ReplyAfter::Write, move |room, _| room.look(&people)).await
    }

    async fn overview(&self, room: &RoomId) -> Result<RoomView, StoreError> {
        step(self, room, ReplyAfter::Write, |room, now| room.overview(now)).await
    }

    fn signals(&self) -> Arc<RoomNotifier> {
        self.room_notifier().clone()
    }
}
