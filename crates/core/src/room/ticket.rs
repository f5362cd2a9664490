//! One person's ticket: where it stands, and until when.

use serde::{Deserialize, Serialize};

use super::config::RoomConfig;
use crate::ids::SessionId;
use crate::time::Timestamp;

/// The place of a ticket in its room. Smaller goes first; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Index(pub u64);

/// One promotion that let people in. Passes carry it, so that those of a wave can be voided together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wave(pub u64);

/// Tells the streams of one ticket apart: the newest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stream(pub u64);

/// Where a ticket stands. The module's drawing shows how it moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TicketState {
    /// The room has not opened: the draw will give a place.
    Early {
        draw: u64,
        present_until: Timestamp,
    },
    Waiting {
        present_until: Timestamp,
    },
    /// Let in; the pass can be redeemed before `until`.
    Granted {
        wave: Wave,
        at: Timestamp,
        until: Timestamp,
    },
    /// The pass was redeemed, by this session if the shop named one.
    Inside {
        wave: Wave,
        until: Timestamp,
        session: Option<SessionId>,
    },
    Ended {
        end: End,
        at: Timestamp,
    },
}

/// How a ticket ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum End {
    /// Has what it came for: the seat stays taken.
    Completed,
    /// Went by itself.
    Left,
    /// Was absent for longer than the grace time.
    Lost,
    /// Was let in and did not come.
    NoShow,
    /// Stayed inside for too long.
    Expired,
}

impl End {
    pub const ALL: [End; 5] = [End::Completed, End::Left, End::Lost, End::NoShow, End::Expired];

    pub fn name(self) -> &'static str {
        match self {
            End::Completed => "completed",
            End::Left => "left",
            End::Lost => "lost",
            End::NoShow => "no_show",
            End::Expired => "expired",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The place. Before the draw: in which order it came.
    pub index: Index,
    pub joined_at: Timestamp,
    pub stream: Stream,
    pub state: TicketState,
}

impl Ticket {
    /// When time alone changes something: it is lost, not redeemed, over, or forgotten.
    pub fn due_at(&self, config: &RoomConfig) -> Timestamp {
        match &self.state {
            TicketState::Early { present_until, .. } | TicketState::Waiting { present_until } => {
                *present_until + config.grace_ms
            }
            TicketState::Granted { until, .. } | TicketState::Inside { until, .. } => *until,
            TicketState::Ended { at, .. } => *at + config.remember_ms,
        }
    }

    /// Whether it waits, and no stream has given a heartbeat that still counts.
    pub fn is_absent(&self, now: Timestamp) -> bool {
        match self.state {
            TicketState::Early { present_until, .. } | TicketState::Waiting { present_until } => {
                present_until <= now
            }
            TicketState::Granted { .. } | TicketState::Inside { .. } | TicketState::Ended { .. } => false,
        }
    }

    /// Whether it keeps one of the slots.
    pub fn holds_slot(&self) -> bool {
        matches!(
            self.state,
            TicketState::Granted { .. } | TicketState::Inside { .. }
        )
    }
}
