//! Signals between processes: scripts publish to two channels, every process listens on its own connection. One
//! channel names rooms with something to do, the other people whose newest stream superseded another one.
//!
//! A missed signal (the connection was down) does no harm: services also poll, and every signal fires when the
//! connection is back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{Signals, TakenOver};
use tidegate_core::room::ticket::Stream;

use super::Shared;

const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longest silence before the listener reconnects: a silent connection may be dead.
const SILENCE: Duration = Duration::from_secs(30);

pub(super) async fn listen(shared: Arc<Shared>) {
    let mut tries: u32 = 0;
    loop {
        match listen_once(&shared, tries).await {
            Ok(()) => tries = 0,
            Err(error) => tracing::debug!(%error, "signals of other processes are not heard"),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(u64::from(tries) * 50).min(LONGEST_PAUSE)).await;
    }
}

async fn listen_once(shared: &Shared, tries: u32) -> Result<(), redis::RedisError> {
    let server = shared.servers.any(tries as usize).map_err(|error| {
        redis::RedisError::from((redis::ErrorKind::Client, "no server", error.to_string()))
    })?;
    let mut listener = server.client.get_async_pubsub().await?;
    let streams = shared.keys.streams();
    listener
        .subscribe(&[shared.keys.signals(), streams.clone()])
        .await?;
    // Signals before this may have been missed.
    shared.signals.notify_all();
    let mut messages = listener.on_message();
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
        let text = message.get_payload::<String>()?;
        let heard = match message.get_channel_name() == streams {
            true => taken_over(&text),
            false => heard(&text),
        };
        match heard {
            Some((room, signals)) => shared.signals.notify(&room, signals),
            None => shared.signals.notify_all(),
        }
    }
    Ok(())
}

/// Decodes whom a transition notified.
pub(super) fn signals(bits: i64) -> Signals {
    Signals {
        promote: bits & 1 != 0,
        tell: bits & 2 != 0,
        taken_over: Vec::new(),
    }
}

/// `3 name of the room`; none if another version uses another format.
fn heard(message: &str) -> Option<(RoomId, Signals)> {
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
        let (room, signals) = heard("2 the big room").unwrap();
        assert_eq!(room.as_str(), "the big room");
        assert_eq!((signals.promote, signals.tell), (false, true));
        assert!(heard("odd").is_none());
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
