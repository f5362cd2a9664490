//! Bells between processes: scripts publish to two channels, every process listens on a connection of its own. One
//! says in which room there is something to do, the other names people whose newest stream took over from another one.
//!
//! A bell that is missed (the connection was down) is no harm: services also look by themselves, and all bells ring when
//! the connection is back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tidegate_core::ids::{PersonId, RoomId};
use tidegate_core::room::command::{Rings, TakenOver};
use tidegate_core::room::ticket::Stream;

use super::Shared;

const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longest time without a bell before the connection is made anew: a silent connection may be a dead one.
const SILENCE: Duration = Duration::from_secs(30);

pub(super) async fn listen(shared: Arc<Shared>) {
    let mut tries: u32 = 0;
    loop {
        match listen_once(&shared, tries).await {
            Ok(()) => tries = 0,
            Err(error) => tracing::debug!(%error, "bells of other processes are not heard"),
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
        .subscribe(&[shared.keys.bells(), streams.clone()])
        .await?;
    // What rang before this is not known.
    shared.bells.ring_all();
    let mut messages = listener.on_message();
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
        let text = message.get_payload::<String>()?;
        let heard = match message.get_channel_name() == streams {
            true => taken_over(&text),
            false => heard(&text),
        };
        match heard {
            Some((room, rings)) => shared.bells.ring(&room, rings),
            None => shared.bells.ring_all(),
        }
    }
    Ok(())
}

/// Whom a transition rang for, as the scripts say it.
pub(super) fn rings(bits: i64) -> Rings {
    Rings {
        promote: bits & 1 != 0,
        tell: bits & 2 != 0,
        taken_over: Vec::new(),
    }
}

/// `3 name of the room`; none if another version says it in another way.
fn heard(message: &str) -> Option<(RoomId, Rings)> {
    let (bits, room) = message.split_once(' ')?;
    Some((RoomId::new(room).ok()?, rings(bits.parse().ok()?)))
}

/// `["name of the room","person","stream","person","stream",…]`; none if another version says it in another way.
fn taken_over(message: &str) -> Option<(RoomId, Rings)> {
    let mut texts = serde_json::from_str::<Vec<String>>(message).ok()?.into_iter();
    let room = RoomId::new(texts.next()?).ok()?;
    let mut rings = Rings::default();
    while let Some(person) = texts.next() {
        rings.taken_over.push(TakenOver {
            person: PersonId::new(person).ok()?,
            by: Stream(texts.next()?.parse().ok()?),
        });
    }
    Some((room, rings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_is_heard_as_a_whole() {
        let (room, rings) = heard("2 the big room").unwrap();
        assert_eq!(room.as_str(), "the big room");
        assert_eq!((rings.promote, rings.tell), (false, true));
        assert!(heard("odd").is_none());
    }

    #[test]
    fn streams_that_took_over_are_heard_by_name() {
        let message = r#"["the big room","ana","1048578","a\"b\u0000","9007199254740991"]"#;
        let (room, rings) = taken_over(message).unwrap();
        assert_eq!(room.as_str(), "the big room");
        let taken_over: Vec<_> = rings
            .taken_over
            .iter()
            .map(|t| (t.person.as_str(), t.by.0))
            .collect();
        assert_eq!(taken_over, [("ana", 1_048_578), ("a\"b\0", (1 << 53) - 1)]);
        assert!(super::taken_over("2 the big room").is_none());
        assert!(super::taken_over(r#"["room","ana"]"#).is_none());
    }
}
