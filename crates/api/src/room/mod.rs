//! Waiting rooms: requests and responses of visitors, shops and operators.

use serde::{Deserialize, Serialize};

use crate::{Nullable, Time};

/// A visitor's entry in a waiting room. Events of the stream carry it, too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    /// The name of the room.
    pub room: String,
    /// The visitor's id in this room, a hash. The draw and passes use it, too.
    #[serde(default)]
    pub person: String,
    /// The number of the ticket, from 0: the smaller number goes first. Absent until the draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The state of the ticket.
    pub state: TicketState,
    /// The state of the room.
    pub room_status: RoomStatus,
    /// The position in the line, 1 for the next visitor; absent unless waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// Visitors who wait ahead; absent unless waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// Visitors who wait behind; absent unless waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Visitors who wait in all; before the opening, visitors who joined early.
    pub waiting: u64,
    /// The estimated time until admission. Absent while the room admits nobody, or while there is no estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRange>,
    /// When the room opens; only with the state EARLY.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Time>,
    /// The pass of an admitted visitor, until the shop redeems it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Pass>,
    /// How the ticket ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
    /// The time at which the positions are exact.
    pub at: Time,
}

/// The state of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketState {
    /// The visitor joined before the opening; the draw decides the position.
    Early,
    /// The visitor waits in line.
    Waiting,
    /// The service has admitted the visitor: the pass is valid until it expires.
    Granted,
    /// The shop redeemed the pass.
    Inside,
    /// The ticket has ended; `end` says how.
    Ended,
}

/// The state of a waiting room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RoomStatus {
    /// The room has not opened yet.
    NotOpen,
    /// The room admits visitors.
    Open,
    /// An operator paused admission.
    Paused,
    /// Every seat is taken.
    SoldOut,
    /// An operator closed the room.
    Closed,
}

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketEnd {
    /// The visitor bought.
    Completed,
    /// The visitor left.
    Left,
    /// The visitor was disconnected for longer than the grace period.
    Lost,
    /// The pass expired before the shop redeemed it.
    NoShow,
    /// The visit inside exceeded its time limit.
    Expired,
}

/// The estimated time until admission, at the current rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EtaRange {
    /// The optimistic estimate, in milliseconds.
    pub low_ms: u64,
    /// The most likely value, in milliseconds.
    pub likely_ms: u64,
    /// The pessimistic estimate, in milliseconds.
    pub high_ms: u64,
}

/// The signed proof of admission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// The signed token, bound to the room and the visitor.
    pub token: String,
    /// The time until which the shop can redeem the pass.
    pub expires_at: Time,
    /// The shop's address with the pass; absent if the room has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_to: Option<String>,
}

/// Why a ticket stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StreamEnd {
    /// An operator closed the room.
    Closed,
    /// Every seat is taken.
    SoldOut,
    /// The waiting room is full.
    Full,
    /// The ticket has ended; `end` says how.
    Ended,
}

/// The last event of a ticket stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StreamClosed {
    /// Why the stream ended.
    pub reason: StreamEnd,
    /// With ENDED: how the ticket ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
}

/// A request to join a room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JoinRoom {
    /// Takes a new ticket at the end of the line if the last one has ended; false if absent.
    pub again: bool,
    /// A token that the shop signed and that identifies the visitor. Without it the browser's cookie identifies
    /// the visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The solution of the room's proof-of-work challenge, if the room requires one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// A pass that a shop presents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedeemPass {
    /// The token of the pass.
    pub pass: String,
    /// The shop's own name for the visit: the same session may redeem the pass again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `extendVisit`: the remaining time of the visit from now on, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// The visit that belongs to a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Visit {
    /// The state of the visitor's ticket.
    pub state: TicketState,
    /// The visitor's id, as in the pass.
    pub person: String,
    /// The time until which the visitor may stay inside, or the shop may redeem the pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// How the visit ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
}

/// The limits of a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomCapacity {
    /// Seats in all; absent means unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seats: Option<u64>,
    /// The most visitors inside at once, admitted ones included.
    pub inside: u64,
    /// The most admissions per second.
    pub per_second: u64,
}

/// A waiting room from an operator's point of view.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// The name of the room.
    pub room: String,
    /// The state of the room.
    pub status: RoomStatus,
    /// The configured opening; absent if the room was open from the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Time>,
    /// The limits in effect.
    pub capacity: RoomCapacity,
    /// The configured limits.
    pub configured: RoomCapacity,
    /// Visitors who joined before the opening.
    pub early: u64,
    /// Visitors who wait in line.
    pub waiting: u64,
    /// Admitted visitors whose pass the shop has not redeemed yet.
    pub granted: u64,
    /// Visitors who are inside.
    pub inside: u64,
    /// Recent admissions per second; absent before the first admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_per_second: Option<f64>,
    /// The estimated time until admission of a visitor who joins now; absent while the room admits nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRange>,
    /// Open ticket streams of this process.
    pub streams: u64,
    /// The number of the latest admission wave.
    pub wave: u64,
    /// The latest admission wave whose passes an operator revoked, with all earlier ones; 0 if none.
    pub voided: u64,
    /// Event counts since the creation of the room.
    pub counts: RoomCounts,
    /// The latest changes of the limits, the newest last.
    pub changes: Vec<CapacityChange>,
    /// When the service read the room.
    pub at: Time,
}

/// Event counts since the creation of the room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomCounts {
    /// Tickets that the room gave out.
    pub joined: u64,
    /// Visitors whom the service admitted.
    pub admitted: u64,
    /// Passes that the shop redeemed.
    pub redeemed: u64,
    /// Visits that ended with a purchase.
    pub completed: u64,
    /// Visitors who left while they waited.
    pub left: u64,
    /// Visitors who left after their admission.
    pub left_inside: u64,
    /// Waiting visitors who were disconnected for longer than the grace period.
    pub lost: u64,
    /// Passes that expired before the shop redeemed them.
    pub no_shows: u64,
    /// Visits inside that exceeded their time limit.
    pub expired: u64,
}

/// A change of a room's limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CapacityChange {
    /// When the change took effect.
    pub at: Time,
    /// The name of the API key that made the change.
    pub by: String,
    /// The reason that the caller gave.
    pub why: String,
    /// The limits after the change.
    pub capacity: RoomCapacity,
}

/// All waiting rooms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Rooms {
    /// Every room that the service knows.
    pub rooms: Vec<Room>,
}

/// A change of one limit: `{"set": 100}`, `{"add": -5}` or `{"reset": true}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", try_from = "GivenLimit")]
pub enum LimitBy {
    /// Sets the limit. `null` means unlimited; only `seats` can be unlimited.
    #[cfg_attr(feature = "openapi", schema(title = "LimitSet"))]
    Set(Option<i64>),
    /// Adds to the limit, or subtracts from it; the limit stays at zero or above.
    #[cfg_attr(feature = "openapi", schema(title = "LimitAdd"))]
    Add(i64),
    /// Restores the configured limit.
    #[cfg_attr(feature = "openapi", schema(title = "LimitReset"))]
    Reset(bool),
}

/// The change in the form of the request: its parse error lists the three valid forms.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "one of {\"set\": 100}, {\"add\": -5} and {\"reset\": true}"
)]
struct GivenLimit {
    #[serde(default)]
    set: Nullable<i64>,
    add: Option<i64>,
    reset: Option<bool>,
}

impl TryFrom<GivenLimit> for LimitBy {
    type Error = &'static str;

    fn try_from(given: GivenLimit) -> Result<Self, Self::Error> {
        match (given.set, given.add, given.reset) {
            (Nullable::Value(set), None, None) => Ok(Self::Set(Some(set))),
            (Nullable::Null, None, None) => Ok(Self::Set(None)),
            (Nullable::Absent, Some(add), None) => Ok(Self::Add(add)),
            (Nullable::Absent, None, Some(reset)) => Ok(Self::Reset(reset)),
            _ => Err("a limit changes in one way: {\"set\": 100}, {\"add\": -5} or {\"reset\": true}"),
        }
    }
}

/// Limits of a room to change. They hold until somebody changes them again, also after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PatchCapacity {
    /// The change of the seats in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seats: Option<LimitBy>,
    /// The change of the most visitors inside at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<LimitBy>,
    /// The change of the most admissions per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<LimitBy>,
    /// The reason, which the service keeps with the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The idempotency key of this change, at most 200 bytes. The service applies the same change under the
    /// same key once, so that the caller may repeat the request. It remembers the last 20 changes of a room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The arguments of an operator's command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RoomCommand {
    /// The reason, for the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// With `voidPasses`: the last admission wave whose passes the service revokes, with all earlier ones; all
    /// passes so far if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<u64>,
}

/// A room at one moment; the service takes a sample about once a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomSample {
    /// When the service read the room.
    pub at: Time,
    /// Visitors who wait in line.
    pub waiting: u64,
    /// Admitted visitors whose pass the shop has not redeemed yet.
    pub granted: u64,
    /// Visitors who are inside.
    pub inside: u64,
    /// Admissions since the creation of the room.
    pub admitted: u64,
    /// Purchases since the creation of the room.
    pub completed: u64,
    /// Visitors who left while they waited, since the creation of the room.
    pub left: u64,
}

/// The last minutes of a room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomHistory {
    /// The samples of this process, oldest first.
    pub samples: Vec<RoomSample>,
}
