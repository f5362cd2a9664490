//! The [`RoomStore`] trait: what a backend must be able to do.

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

use super::notifier::RoomNotifier;
use crate::StoreError;

/// A backend for waiting rooms.
///
/// Every transition of one ticket is atomic. A batch is not, and returns outcomes in its order. After an error
/// the state of the batch is unknown: parts of it may be done, and the caller may retry all of it. A room that
/// was never opened is [`StoreError::UnknownRoom`].
#[async_trait]
pub trait RoomStore: Send + Sync + fmt::Debug + 'static {
    /// Creates the room if it does not exist, or updates its settings. Limits set at run time stay.
    async fn open(&self, room: &RoomId, config: RoomConfig) -> Result<(), StoreError>;

    /// Creates the room with this status. Returns false if it exists already, and leaves it as it is.
    async fn create(&self, room: &RoomId, config: RoomConfig, status: Status) -> Result<bool, StoreError>;

    /// Removes a room that is over, with everything it remembers.
    async fn remove(&self, room: &RoomId) -> Result<RemoveOutcome, StoreError>;

    /// Every opened room, in order of name.
    async fn rooms(&self) -> Result<Vec<RoomId>, StoreError>;

    /// Issues tickets, or finds those that people have.
    async fn join(&self, room: &RoomId, joins: Vec<JoinParams>) -> Result<Vec<JoinOutcome>, StoreError>;

    /// Heartbeats of streams, and their ends.
    async fn touch(&self, room: &RoomId, touches: Vec<TouchParams>) -> Result<Vec<TouchOutcome>, StoreError>;

    /// Admits the next people, at most `max`, within every limit.
    async fn promote(&self, room: &RoomId, max: u64) -> Result<PromoteOutcome, StoreError>;

    /// Redeems a pass, once.
    async fn redeem(&self, room: &RoomId, params: RedeemParams) -> Result<RedeemOutcome, StoreError>;

    /// Issues another pass to a person whose pass was voided. Returns true if there was one to issue.
    async fn reissue(&self, room: &RoomId, person: &PersonId) -> Result<bool, StoreError>;

    /// Extends a visit.
    async fn extend(&self, room: &RoomId, params: ExtendParams) -> Result<InsideOutcome, StoreError>;

    /// Completes a visit: frees the slot, the seat stays taken. Idempotent.
    async fn complete(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError>;

    /// The person leaves. Frees the slot, once.
    async fn leave(&self, room: &RoomId, person: &PersonId) -> Result<InsideOutcome, StoreError>;

    /// Ends and forgets what is due, within the given bounds.
    async fn reap(&self, room: &RoomId, params: ReapParams) -> Result<ReapOutcome, StoreError>;

    /// Changes the limits, once per request.
    async fn resize(&self, room: &RoomId, params: ResizeParams) -> Result<ResizeOutcome, StoreError>;

    async fn control(&self, room: &RoomId, control: Control) -> Result<(), StoreError>;

    /// Voids the passes of this wave and all earlier ones; all passes so far if none is named. Returns the last
    /// void wave.
    async fn void(&self, room: &RoomId, through: Option<Wave>) -> Result<Wave, StoreError>;

    /// Tickets with their current positions.
    async fn look(&self, room: &RoomId, people: Vec<PersonId>)
    -> Result<Vec<Option<TicketView>>, StoreError>;

    /// The room with everybody's position, in one read.
    async fn overview(&self, room: &RoomId) -> Result<RoomView, StoreError>;

    /// The notifier that signals when there may be work.
    fn signals(&self) -> Arc<RoomNotifier>;
}
