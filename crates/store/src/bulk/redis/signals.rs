//! Signals between processes: scripts publish, every process listens on its own connection.
//!
//! A missed signal (the connection was down) does no harm: services also poll, and every signal fires when the
//! connection is back.

use std::sync::Arc;

use tidegate_core::bulk::Signals;
use tidegate_redis::listener::{self, Heard};

use super::{Shared, signals};

pub(super) async fn listen(shared: Arc<Shared>) {
    let channels: Vec<String> = (0..shared.shards)
        .map(|shard| shared.keys.signals(shard))
        .collect();
    listener::listen(&shared.servers, &channels, |heard| match heard {
        // Signals before this may have been missed.
        Heard::Connected => shared.notifier.notify(Signals {
            work: true,
            aggregate: true,
            timer: true,
        }),
        Heard::Message { channel, text } => {
            let bits: i64 = text.parse().unwrap_or(7);
            if bits & 1 != 0 {
                let shard = (0..).zip(&channels).find(|(_, known)| *known == channel);
                shard.inspect(|(shard, _)| shared.known.notified(*shard));
            }
            shared.notifier.notify(signals(bits));
        }
    })
    .await;
}
