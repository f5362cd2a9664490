//! Waiting rooms: what visitors, shops and operators send and are told.

use serde::{Deserialize, Deserializer, Serialize};

use crate::Time;

/// A visitor's entry in a waiting room. Events of the stream carry the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    pub room: String,
    /// The visitor in this room, a hash. The draw and passes use it, too.
    #[serde(default)]
    pub person: String,
    /// The number of the ticket, from 0: the smaller number goes first. Absent until the draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    pub state: TicketState,
    pub room_status: RoomStatus,
    /// 1 for the visitor who is next; absent unless waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// How many wait ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// How many wait behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// How many wait in all; before the opening, how many have come.
    pub waiting: u64,
    /// How long it takes until the visitor is let in. Absent while the room lets nobody in, or while nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRange>,
    /// When the room opens, if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Time>,
    /// The pass of a visitor who is let in, until it is redeemed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Pass>,
    /// How the ticket ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
    /// The time at which the positions are exact.
    pub at: Time,
}

/// Where a visitor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketState {
    /// The visitor came before the opening; the draw decides the position.
    Early,
    /// The visitor waits in line.
    Waiting,
    /// The visitor is let in: the pass is good until it expires.
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
    /// The room lets visitors in.
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
    /// The visitor was away for longer than the grace period.
    Lost,
    /// The visitor was let in and did not come.
    NoShow,
    /// The visitor stayed inside for too long.
    Expired,
}

/// How long it takes if it goes on as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EtaRange {
    /// At best.
    pub low_ms: u64,
    /// Most likely.
    pub likely_ms: u64,
    /// At worst.
    pub high_ms: u64,
}

/// The right to be inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// The signed proof, bound to the room and the visitor.
    pub token: String,
    pub expires_at: Time,
    /// The shop's address with the pass; absent if the room has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub go_to: Option<String>,
}

/// Why a stream is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StreamEnd {
    /// The operator closed the room.
    Closed,
    /// Every seat is taken.
    SoldOut,
    /// The waiting room is full.
    Full,
    /// The ticket has ended; `end` says how.
    Ended,
}

/// The last event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StreamClosed {
    pub reason: StreamEnd,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
}

/// How to join a room.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JoinRoom {
    /// Takes a new ticket at the end of the line if the last one has ended.
    pub again: bool,
    /// A token that the shop signed and that names the visitor. Without it the browser's cookie identifies the visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The solution of the room's challenge, if it asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// A pass that a shop presents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedeemPass {
    /// The pass's token.
    pub pass: String,
    /// The shop's own name for the visit: the same session may redeem the pass again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `extendVisit`: how long the visitor may stay from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// Where the visitor of a pass is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Visit {
    pub state: TicketState,
    /// The visitor as the pass names it.
    pub person: String,
    /// Until when the visitor may stay, or redeem the pass.
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
    /// Seats in all; absent if the room counts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seats: Option<u64>,
    /// Visitors inside at once.
    pub inside: u64,
    /// Admissions per second.
    pub per_second: u64,
}

/// A waiting room, for operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Room {
    /// The room's name.
    pub room: String,
    pub status: RoomStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Time>,
    /// The limits that hold now.
    pub capacity: RoomCapacity,
    /// The configured limits.
    pub configured: RoomCapacity,
    /// Visitors who came before the opening.
    pub early: u64,
    /// Visitors who wait.
    pub waiting: u64,
    /// Visitors who are let in and have not redeemed their pass.
    pub granted: u64,
    /// Visitors who are inside.
    pub inside: u64,
    /// Recent admissions per second; absent until somebody was let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_per_second: Option<f64>,
    /// How long somebody who joins now waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRange>,
    /// Open streams of this process.
    pub streams: u64,
    /// The number of the latest admission wave.
    pub wave: u64,
    /// Passes of this wave and all before are revoked.
    pub voided: u64,
    pub counts: RoomCounts,
    /// The latest changes of the limits, the newest last.
    pub changes: Vec<CapacityChange>,
    pub at: Time,
}

/// Counts since the room was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomCounts {
    pub joined: u64,
    pub admitted: u64,
    pub redeemed: u64,
    pub completed: u64,
    pub left: u64,
    pub left_inside: u64,
    pub lost: u64,
    pub no_shows: u64,
    pub expired: u64,
}

/// A change of a room's limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CapacityChange {
    pub at: Time,
    /// The name of the key.
    pub by: String,
    /// The reason that it gave.
    pub why: String,
    /// The limits after the change.
    pub capacity: RoomCapacity,
}

/// Every room.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Rooms {
    pub rooms: Vec<Room>,
}

/// How one limit changes: `{"set": 100}`, `{"add": -5}` or `{"reset": true}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", try_from = "GivenLimit")]
pub enum LimitBy {
    /// Sets the limit. `null` means seats that are not counted.
    #[cfg_attr(feature = "openapi", schema(title = "LimitSet"))]
    Set(Option<i64>),
    /// Adds to the limit, or subtracts from it; never below zero.
    #[cfg_attr(feature = "openapi", schema(title = "LimitAdd"))]
    Add(i64),
    /// Restores the configured limit.
    #[cfg_attr(feature = "openapi", schema(title = "LimitReset"))]
    Reset(bool),
}

/// A change as it is written, so that one that cannot be read is told how it should be.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "one of {\"set\": 100}, {\"add\": -5} and {\"reset\": true}"
)]
struct GivenLimit {
    #[serde(default, deserialize_with = "given")]
    set: Option<Option<i64>>,
    add: Option<i64>,
    reset: Option<bool>,
}

/// Tells an absent value from a null.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl TryFrom<GivenLimit> for LimitBy {
    type Error = &'static str;

    fn try_from(given: GivenLimit) -> Result<Self, Self::Error> {
        match (given.set, given.add, given.reset) {
            (Some(set), None, None) => Ok(Self::Set(set)),
            (None, Some(add), None) => Ok(Self::Add(add)),
            (None, None, Some(reset)) => Ok(Self::Reset(reset)),
            _ => Err("a limit changes in one way: {\"set\": 100}, {\"add\": -5} or {\"reset\": true}"),
        }
    }
}

/// Limits to change. They hold until somebody changes them again, also after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PatchCapacity {
    /// Seats in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seats: Option<LimitBy>,
    /// Visitors inside at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<LimitBy>,
    /// Admissions per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<LimitBy>,
    /// The reason, kept with the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The caller's own name for this change, at most 200 bytes. The service makes the same change by the same name once,
    /// so that the caller may repeat the request. It remembers the last 20 changes of a room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// An operator's command, and the reason for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RoomCommand {
    /// The reason, for the audit log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// With `voidPasses`: revokes passes of this admission wave and all before; all so far if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<u64>,
}

/// A room at one moment; the service takes a sample about once a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomSample {
    pub at: Time,
    pub waiting: u64,
    pub granted: u64,
    pub inside: u64,
    /// Admissions since the room was created.
    pub admitted: u64,
    pub completed: u64,
    pub left: u64,
}

/// A room's last minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomHistory {
    /// What this process saw, oldest first.
    pub samples: Vec<RoomSample>,
}
