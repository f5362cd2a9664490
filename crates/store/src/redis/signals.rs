//! Signals between processes: scripts publish, every process listens on its own connection.
//!
//! A missed signal (the connection was down) does no harm: services also poll, and every signal fires when the
//! connection is back.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tidegate_core::bulk::Signals;

use super::{Shared, signals};

const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Longest silence before the listener reconnects.
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
    for shard in 0..shared.shards {
        listener.subscribe(shared.keys.signals(shard)).await?;
    }
    // Signals before this may have been missed.
    shared.notifier.notify(Signals {
        work: true,
        aggregate: true,
        timer: true,
    });
    let mut messages = listener.on_message();
    // A silent connection may be dead, so the listener reconnects from time to time.
    while let Ok(Some(message)) = tokio::time::timeout(SILENCE, messages.next()).await {
        let bits: i64 = message.get_payload::<String>()?.parse().unwrap_or(7);
        if bits & 1 != 0 {
            let channel = message.get_channel_name();
            let shard = (0..shared.shards).find(|&shard| shared.keys.signals(shard) == channel);
            shard.inspect(|&shard| shared.known.notified(shard));
        }
        shared.notifier.notify(signals(bits));
    }
    Ok(())
}
