//! Waiting rooms: what visitors, shops and operators send and are told.

use serde::{Deserialize, Deserializer, Serialize};

use crate::Time;

/// Where a visitor stands. The events of the stream carry the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Ticket {
    pub room: String,
    /// Who the visitor is in this room, as the draw and passes name it: a hash.
    #[serde(default)]
    pub person: String,
    /// The place that was given, from 0: smaller goes first. Absent until the draw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    pub state: TicketState,
    pub room_status: RoomStatus,
    /// 1 for the next one; absent unless waiting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// How many wait in all; before the opening, how many have come.
    pub waiting: u64,
    /// How long it takes until the visitor is let in; absent while nobody is, or nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRange>,
    /// When the room opens, if it has not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Time>,
    /// The pass, once let in, until it is redeemed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass: Option<Pass>,
    /// How the ticket ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
    /// Positions are exact as of this moment.
    pub at: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketState {
    /// Came before the opening; the draw gives the position.
    Early,
    Waiting,
    /// Let in: the pass is good until it expires.
    Granted,
    /// The pass was redeemed.
    Inside,
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RoomStatus {
    /// Has not opened yet.
    NotOpen,
    Open,
    Paused,
    SoldOut,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TicketEnd {
    Completed,
    Left,
    /// Was away for longer than the grace time.
    Lost,
    /// Was let in and did not come.
    NoShow,
    /// Stayed inside for too long.
    Expired,
}

/// If it goes on as it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EtaRange {
    pub low_ms: u64,
    pub likely_ms: u64,
    pub high_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pass {
    /// Signed; bound to the room and the visitor.
    pub token: String,
    pub expires_at: Time,
    /// Where to go with it; absent if the room has no shop address.
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

/// Takes a place, or finds the one that the visitor has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct JoinRoom {
    /// Takes a new place at the end if the last ticket has ended.
    pub again: bool,
    /// Who comes, as a token that the shop signed; without it, this browser.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The answer to the room's challenge, where it asks for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<String>,
}

/// A shop shows a pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedeemPass {
    pub pass: String,
    /// What the shop knows the visit by: the same session may ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// With `extend`: for how long from now on, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
}

/// What became of a visit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Visit {
    pub state: TicketState,
    /// The visitor as the pass names it.
    pub person: String,
    /// Until when it may stay inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TicketEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomCapacity {
    /// Seats in all; absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seats: Option<u64>,
    /// People inside at once.
    pub inside: u64,
    /// Admissions in any second.
    pub per_second: u64,
}

/// A room, for operators.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Room {
    pub room: String,
    pub status: RoomStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<Time>,
    pub capacity: RoomCapacity,
    pub configured: RoomCapacity,
    /// Before the opening.
    pub early: u64,
    pub waiting: u64,
    /// Let in, not yet redeemed.
    pub granted: u64,
    pub inside: u64,
    /// Admissions per second lately; absent until somebody was let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admitted_per_second: Option<f64>,
    /// How long somebody who comes now waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRange>,
    /// Streams of this process.
    pub streams: u64,
    /// The latest promotion, and through which one passes are void.
    pub wave: u64,
    pub voided: u64,
    pub counts: RoomCounts,
    /// The latest changes of the limits, the newest last.
    pub changes: Vec<CapacityChange>,
    pub at: Time,
}

/// Since the room was made.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CapacityChange {
    pub at: Time,
    pub by: String,
    pub why: String,
    /// What holds since.
    pub capacity: RoomCapacity,
}

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
    /// `null` for seats that are not counted.
    Set(Option<i64>),
    /// By so many more, or fewer; never below zero.
    Add(i64),
    /// Back to what is configured.
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

/// Changes limits until they are changed again; a restart keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PatchCapacity {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seats: Option<LimitBy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inside: Option<LimitBy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<LimitBy>,
    /// Kept beside the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What the caller knows this change by, at most 200 bytes: the same change by the same name is made once, so that it can
    /// be sent again by whoever heard no answer. The last 20 changes of a room are known again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// What an operator does to the door, and why.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RoomCommand {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// With `void`: passes of this promotion and all before; all so far without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<u64>,
}

/// A room as it was, about once a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomSample {
    pub at: Time,
    pub waiting: u64,
    pub granted: u64,
    pub inside: u64,
    /// Since the room was made.
    pub admitted: u64,
    pub completed: u64,
    pub left: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RoomHistory {
    /// The last minutes that this process has seen, oldest first.
    pub samples: Vec<RoomSample>,
}
