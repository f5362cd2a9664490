//! One person's ticket: its state and its deadlines.

use serde::{Deserialize, Serialize};

use super::config::RoomConfig;
use crate::ids::SessionId;
use crate::time::Timestamp;

/// The order of a ticket in its room. Smaller goes first; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Index(pub u64);

/// One promotion that admitted people. Passes carry it, so that an operator can void those of a wave together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wave(pub u64);

/// Distinguishes the streams of one ticket: the newest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stream(pub u64);

/// The state of a ticket. The module documentation draws the transitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TicketState {
    /// The room has not opened: the draw will assign an index.
    Early {
        draw: u64,
        present_until: Timestamp,
    },
    Waiting {
        present_until: Timestamp,
    },
    /// Admitted; the pass can be redeemed before `until`.
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
    /// Completed the visit: the seat stays taken.
    Completed,
    /// Left voluntarily.
    Left,
    /// Was absent for longer than the grace time.
    Lost,
    /// Was admitted and never redeemed the pass.
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
    /// Before the draw: the order of arrival.
    pub index: Index,
    pub joined_at: Timestamp,
    pub stream: Stream,
    pub state: TicketState,
}

impl Ticket {
    /// When time alone changes it: lost, no-show, expired, or forgotten.
    pub fn due_at(&self, config: &RoomConfig) -> Timestamp {
        match &self.state {
            TicketState::Early { present_until, .. } | TicketState::Waiting { present_until } => {
                *present_until + config.grace_ms
            }
            TicketState::Granted { until, .. } | TicketState::Inside { until, .. } => *until,
            TicketState::Ended { at, .. } => *at + config.remember_ms,
        }
    }

    /// Whether it waits without a valid heartbeat of any stream.
    pub fn is_absent(&self, now: Timestamp) -> bool {
        match self.state {
            TicketState::Early { present_until, .. } | TicketState::Waiting { present_until } => {
                present_until <= now
            }
            TicketState::Granted { .. } | TicketState::Inside { .. } | TicketState::Ended { .. } => false,
        }
    }

    /// Whether it holds one of the slots.
    pub fn holds_slot(&self) -> bool {
        matches!(
            self.state,
            TicketState::Granted { .. } | TicketState::Inside { .. }
        )
    }
}
