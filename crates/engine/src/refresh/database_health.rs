//! Probes whether the database responds. Reads of records need nothing else.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::shared::Shared;

/// Shortest time between two probes, however many callers ask.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Presence {
    /// Time and result of the last probe. The probe runs under this lock.
    seen: Mutex<Option<(Instant, bool)>>,
}

impl Presence {
    /// Waits no longer than a read of a record does.
    pub(crate) async fn look(&self, shared: &Shared) -> bool {
        let mut seen = self.seen.lock().await;
        if let Some((at, answered)) = *seen
            && at.elapsed() < EVERY
        {
            return answered;
        }
        let limit = Duration::from(shared.options.query.read_timeout_ms);
        let answered = match tokio::time::timeout(limit, shared.options.snapshots.check()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the database does not respond");
                false
            }
            Err(_) => false,
        };
        *seen = Some((Instant::now(), answered));
        answered
    }
}
