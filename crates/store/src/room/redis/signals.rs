//! Signals between processes: scripts publish to two channels, every process listens on its own connection. One
//! channel names rooms with something to do, the other people whose newest stream superseded another one.
//!
//! A missed signal (the connection was down) does no harm: services also poll, and every signal fires when the
//! connection is back.

use std::sync::Arc;

use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{Signals, TakenOver};
use tidegate_core::room::ticket::Stream;
use tidegate_redis::listener::{self, Heard};

use super::Shared;

pub(super) async fn listen(shared: Arc<Shared>) {
    let streams = shared.keys.streams();
    let channels = [shared.keys.signals(), streams.clone()];
    listener::listen(&shared.servers, &channels, |heard| {
        let known = match heard {
            // Signals before this may have been missed.
            Heard::Connected => None,
            Heard::Message { channel, text } if channel == streams => taken_over(text),
            Heard::Message { text, .. } => signalled(text),
        };
        match known {
            Some((room, signals)) => shared.signals.notify(&room, signals),
            None => shared.signals.notify_all(),
        }
    })
    .await;
}

/// Decodes whom a transition notified.
pub(super) fn signals(bits: i64) -> Signals {
    Signals {
        promote: bits & 1 != 0,
        update: bits & 2 != 0,
        taken_over: Vec::new(),
    }
}

/// `3 name of the room`; none if another version uses another format.
fn signalled(message: &str) -> Option<(RoomId, Signals)> {
    let (bits, room) = message.split_once(' ')?;
    Some((RoomId::new(room).ok()?, signals(bits.parse().ok()?)))
}

/// `["name of the room","person","stream","person","stream",…]`; none if another version uses another format.
fn taken_over(message: &str) -> Option<(RoomId, Signals)> {
    let mut texts = serde_json::from_str::<Vec<String>>(message).ok()?.into_iter();
    let room = RoomId::new(texts.next()?).ok()?;
    let mut signals = Signals::default();
    while let Some(person) = texts.next() {
        signals.taken_over.push(TakenOver {
            person: PersonId::new(person).ok()?,
            by: Stream(texts.next()?.parse().ok()?),
        });
    }
    Some((room, signals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_is_heard_as_a_whole() {
        let (room, signals) = signalled("2 the big room").unwrap();
        assert_eq!(room.as_str(), "the big room");
        assert_eq!((signals.promote, signals.update), (false, true));
        assert!(signalled("odd").is_none());
    }

    #[test]
    fn streams_that_took_over_are_heard_by_name() {
        let message = r#"["the big room","ana","1048578","a\"b\u0000","9007199254740991"]"#;
        let (room, signals) = taken_over(message).unwrap();
        assert_eq!(room.as_str(), "the big room");
        let taken_over: Vec<_> = signals
            .taken_over
            .iter()
            .map(|t| (t.person.as_str(), t.by.0))
            .collect();
        assert_eq!(taken_over, [("ana", 1_048_578), ("a\"b\0", (1 << 53) - 1)]);
        assert!(super::taken_over("2 the big room").is_none());
        assert!(super::taken_over(r#"["room","ana"]"#).is_none());
    }
}
