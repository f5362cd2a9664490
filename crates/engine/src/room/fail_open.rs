//! Failing open: while the store is unavailable, a room admits nobody. An operator can permit the opposite until a certain
//! time. It then applies to rooms that were open when this process last read them.
//!
//! Such passes name no ticket: shops can verify them offline, and this service redeems them without the store.

use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{RoomView, Status};
use tidegate_core::room::ticket::{Index, Wave};
use tidegate_core::time::{Millis, Timestamp};

use super::pass::{Claims, PassRefused};

/// No room has this incarnation.
const NEVER: u64 = 0;

/// An operator's permission to admit everybody while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FailOpen {
    /// Until when; `None`: never.
    pub until: Option<Timestamp>,
    /// How long a pass can be redeemed.
    pub pass_ms: Millis,
    /// How long a visit lasts.
    pub inside_ms: Millis,
}

impl FailOpen {
    /// Whether the permission is valid now.
    fn lasts(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Whether the room admits everybody. A room that this process never read stays closed: nobody knows whether it was
    /// open.
    pub fn holds(&self, seen: Option<&RoomView>, now: Timestamp) -> bool {
        let open = seen.is_some_and(|view| {
            view.status == Status::Open && !view.sold_out() && view.opens_at.is_none_or(|at| at <= now)
        });
        self.lasts(now) && open
    }

    /// A pass for a visitor without a ticket; `None` unless the room was open when this process last read it.
    pub fn admit(&self, person: &PersonId, seen: Option<&RoomView>, now: Timestamp) -> Option<Claims> {
        self.holds(seen, now).then(|| Claims {
            person: person.clone(),
            incarnation: NEVER,
            wave: Wave(0),
            index: Index(0),
            at: now,
            until: now + self.pass_ms,
        })
    }

    /// How long the visitor with such a pass may stay; `None` for a pass with a ticket. Nobody counts these passes, so a
    /// visitor can present one more than once, but not after its expiry or that of the permission. As with any pass,
    /// closing the room does not void it.
    pub fn visit(&self, claims: &Claims, now: Timestamp) -> Result<Option<Timestamp>, PassRefused> {
        match issued(claims) {
            false => Ok(None),
            true if self.lasts(now) && now < claims.until => Ok(Some(now + self.inside_ms)),
            true => Err(PassRefused::Expired),
        }
    }
}

/// Whether a pass was issued while failing open: it has neither ticket nor slot.
pub fn issued(claims: &Claims) -> bool {
    claims.incarnation == NEVER
}
