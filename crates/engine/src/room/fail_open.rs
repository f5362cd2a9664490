//! Failing open: while the store is unavailable, a room admits nobody. An operator can permit the opposite until a certain
//! time. It then applies to rooms that were open when this process last read them.
//!
//! Such passes name no ticket: shops can verify them offline, and this service redeems them without the store.

use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{RoomView, Status};
use tidegate_core::room::ticket::{Index, Wave};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;

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

/// Whether the store could not serve the caller. A room that does not exist, and a service that shuts down, are no reason
/// to fail open.
pub(super) fn is_outage(error: &StoreError) -> bool {
    !matches!(error, StoreError::UnknownRoom(_) | StoreError::Closed)
}

/// Whether a pass was issued while failing open: it has neither ticket nor slot.
pub(super) fn issued(claims: &Claims) -> bool {
    claims.incarnation == NEVER
}

#[cfg(test)]
mod tests {
    use tidegate_core::room::Room;
    use tidegate_core::room::command::Control;
    use tidegate_core::room::config::{Capacity, RoomConfig};

    use super::*;

    const NOW: Timestamp = Timestamp(1_772_357_400_000);

    fn permission(until: Option<Timestamp>) -> FailOpen {
        FailOpen {
            until,
            pass_ms: Millis(5_000),
            inside_ms: Millis(60_000),
        }
    }

    fn view(config: RoomConfig) -> RoomView {
        Room::new(7, config).overview(NOW)
    }

    fn opens_at(at: Timestamp) -> RoomConfig {
        RoomConfig {
            opens_at: Some(at),
            ..RoomConfig::default()
        }
    }

    #[test]
    fn only_a_room_that_was_open_fails_open_and_only_for_as_long_as_permitted() {
        let (open, lasting) = (view(RoomConfig::default()), permission(Some(NOW + Millis(1))));
        assert!(lasting.holds(Some(&open), NOW));
        assert!(
            !lasting.holds(Some(&open), NOW + Millis(1)),
            "the permission ends"
        );
        assert!(!permission(None).holds(Some(&open), NOW));
        assert!(!lasting.holds(None, NOW), "nobody knows whether it was open");
        assert!(!lasting.holds(Some(&view(opens_at(NOW + Millis(1)))), NOW));
        assert!(lasting.holds(Some(&view(opens_at(NOW))), NOW));
        let sold_out = RoomConfig {
            capacity: Capacity {
                seats: Some(0),
                ..Capacity::default()
            },
            ..RoomConfig::default()
        };
        assert!(!lasting.holds(Some(&view(sold_out)), NOW));
        for control in [Control::Pause, Control::Close] {
            let mut room = Room::new(7, RoomConfig::default());
            room.control(control);
            assert!(!lasting.holds(Some(&room.overview(NOW)), NOW), "{control:?}");
        }
    }

    #[test]
    fn a_pass_without_a_ticket_lasts_no_longer_than_itself_and_the_permission() {
        let (open, fail_open) = (view(RoomConfig::default()), permission(Some(NOW + Millis(3_000))));
        let person = PersonId::new("ada").unwrap();
        let claims = fail_open.admit(&person, Some(&open), NOW).unwrap();
        assert_eq!((claims.at, claims.until), (NOW, NOW + Millis(5_000)));
        assert!(issued(&claims));
        let inside = Ok(Some(NOW + Millis(60_000)));
        assert_eq!(fail_open.visit(&claims, NOW), inside);
        assert_eq!(fail_open.visit(&claims, NOW), inside, "nobody counts them");
        let later = fail_open.visit(&claims, NOW + Millis(3_000));
        assert_eq!(later, Err(PassRefused::Expired));
        let longer = permission(Some(NOW + Millis(60_000)));
        assert!(longer.visit(&claims, NOW + Millis(4_999)).is_ok());
        let expired = longer.visit(&claims, NOW + Millis(5_000));
        assert_eq!(expired, Err(PassRefused::Expired));
        let with_a_ticket = Claims {
            incarnation: 7,
            ..claims
        };
        assert!(!issued(&with_a_ticket));
        assert_eq!(fail_open.visit(&with_a_ticket, NOW), Ok(None));
        assert_eq!(fail_open.admit(&person, None, NOW), None);
    }

    #[test]
    fn only_an_outage_lets_a_room_fail_open() {
        let unavailable = StoreError::Unavailable {
            server: "Redis at nowhere".into(),
            reason: "a test".into(),
        };
        assert!(is_outage(&unavailable));
        assert!(is_outage(&StoreError::Corrupt("a test".into())));
        assert!(!is_outage(&StoreError::UnknownRoom("concert".into())));
        assert!(!is_outage(&StoreError::Closed));
    }
}
