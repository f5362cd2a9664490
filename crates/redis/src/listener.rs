//! Signals between processes: scripts publish, every process listens on its own connection.
//!
//! A missed signal (the connection was down) does no harm: services also poll, and the listener reports when it is back.

use std::time::Duration;

use futures_util::StreamExt;
use tidegate_core::retry::pause;

use crate::Servers;

/// Longest silence before the listener reconnects: a silent connection may be dead.
const SILENCE: Duration = Duration::from_secs(30);

/// What the listener hears.
#[derive(Debug)]
pub enum Heard<'a> {
    /// It subscribed. Signals before this may have been missed.
    Connected,
    /// A message.
    Message {
        /// Its channel.
        channel: &'a str,
        /// What was published.
        text: &'a str,
    },
}

/// Listens to these channels until it is dropped.
pub async fn listen(servers: &Servers, channels: &[String], mut heard: impl FnMut(Heard<'_>)) {
    let mut tries: u32 = 0;
    loop {
        match listen_once(servers, channels, tries, &mut heard).await {
            Ok(()) => tries = 0,
            Err(error) => tracing::debug!(%error, "cannot subscribe to the signals of other processes"),
        }
        tries += 1;
        tokio::time::sleep(pause(tries)).await;
    }
}

async fn listen_once(
    servers: &Servers,
    channels: &[String],
    tries: u32,
    heard: &mut impl FnMut(Heard<'_>),
) -> Result<(), redis::RedisError> {
    let server = servers.any(tries as usize).map_err(|error| {
        redis::RedisError::from((redis::ErrorKind::Client, "no server", error.to_string()))
    })?;
    let mut listener = server.client.get_async_pubsub().await?;
    listener.subscribe(channels).await?;
    heard(Heard::Connected);
    let mut messages = listener.on_message();
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
        heard(Heard::Message {
            channel: message.get_channel_name(),
            text: &message.get_payload::<String>()?,
        });
    }
    Ok(())
}
