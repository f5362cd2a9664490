//! The seam itself: what a backend must be able to do.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{
    Control, ExtendParams, InsideOutcome, JoinOutcome, JoinParams, PromoteOutcome, ReapOutcome, ReapParams,
    RedeemOutcome, RedeemParams, RemoveOutcome, ResizeOutcome, ResizeParams, RoomView, Status, TicketView,
    TouchOutcome, TouchParams,
};
use tidegate_core::room::config::RoomConfig;
use tidegate_core::room::ticket::Wave;

use super::signals::RoomNotifier;
use crate::StoreError;

/// A backend for waiting rooms.
///
/// Every transition of one ticket is atomic; a batch is not, and answers in its order. After an error nothing is known of
/// the batch: some of it may be done, and all of it may be asked again. A room that was never opened is
/// [`StoreError::UnknownRoom`].
#[async_trait]
pub trait RoomStore: Send + Sync + fmt::Debug + 'static {
    /// Makes the room if it is not there, or takes over its settings. Limits that were set at run time stay.
    async fn open(&self, room: &RoomId, config: RoomConfig) -> Result<(), StoreError>;

    /// Makes the room if it is not there, with its door in this state. False: it is there, and stays as it is.
    async fn make(&self, room: &RoomId, config: RoomConfig, door: Status) -> Result<bool, StoreError>;

    /// Removes a room that is over, with everything that is remembered in it.
    async fn remove(&self, room: &RoomId) -> Result<RemoveOutcome, StoreError>;

    /// Every room that was opened, in the order of their names.
    async fn rooms(&self) -> Result<Vec<RoomId>, StoreError>;

    /// Gives places, or finds those that people have.
    async fn join(&self, room: &RoomId, joins: Vec<JoinParams>) -> Result<Vec<JoinOutcome>, StoreError>;

    /// Heartbeats of streams, and their ends.
    async fn touch(&self, room: &RoomId, touches: Vec<TouchParams>) -> Result<Vec<TouchOutcome>, StoreError>;

    /// Lets in the next ones, `max` at most, as far as every limit allows.
    async fn promote(&self, room: &RoomId, max: u64) -> Result<PromoteOutcome, StoreError>;

    /// A pass is shown: once.
    async fn redeem(&self, room: &RoomId, params: RedeemParams) -> Result<RedeemOutcome, StoreError>;

    /// Gives another pass to somebody whose pass was voided. True if there was one to give.
    async fn reissue(&self, room: &RoomId, person: &PersonId) -> Result<bool, StoreError>;

    /// Lets somebody stay inside for longer.
    async fn extend(&self, room: &RoomId, params: ExtendParams) -> Result<InsideOutcome, StoreError>;

    /// Has what it came for: the slot is free, the seat stays taken. Said twice, it counts once.
    async fn complete(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError>;

    /// Goes by itself. A slot comes back, once.
    async fn leave(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError>;

    /// Does what time asks for, as far as it may.
    async fn reap(&self, room: &RoomId, params: ReapParams) -> Result<ReapOutcome, StoreError>;

    /// Changes the limits, once per request.
    async fn resize(&self, room: &RoomId, params: ResizeParams) -> Result<ResizeOutcome, StoreError>;

    async fn control(&self, room: &RoomId, control: Control) -> Result<(), StoreError>;

    /// Passes of this wave and all before are void; of all so far if none is named. Answers through which wave they are.
    async fn void(&self, room: &RoomId, through: Option<Wave>) -> Result<Wave, StoreError>;

    /// Tickets with their positions as of now.
    async fn look(&self, room: &RoomId, people: Vec<PersonId>)
    -> Result<Vec<Option<TicketView>>, StoreError>;

    /// The room with everybody's position, in one read.
    async fn survey(&self, room: &RoomId) -> Result<RoomView, StoreError>;

    /// Notifier that notify when there may be something to do.
    fn signals(&self) -> Arc<RoomNotifier>;
}
