//! Writes dead letters: an event is given up only once the log has confirmed its letter.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::refresh::dead_letter::{DeadLetter, FailureReason, Original};
use tidegate_core::refresh::event::UpdateRequestEvent;
use tidegate_log::LogError;
use tokio_util::sync::CancellationToken;

use super::events::{dead_record, log_key};
use super::shared::Shared;

/// Limit: bytes kept of an event that cannot be read; in a letter each takes two.
const MAX_RAW: usize = 256 << 10;
/// Limit: characters kept of a message.
const MAX_MESSAGE: usize = 2_000;
/// Limit: the pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What is given up.
pub(crate) enum GivenUp<'a> {
    Event(&'a UpdateRequestEvent),
    /// Key and value as they were in the log.
    Raw(Bytes, Bytes),
}

#[derive(Debug, Clone)]
pub(crate) struct Letters {
    shared: Arc<Shared>,
}

impl Letters {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Tries until the log has it. None: `lost` came first.
    pub(crate) async fn give_up(
        &self,
        given_up: GivenUp<'_>,
        failure_reason: FailureReason,
        message: &str,
        retry_count: u32,
        lost: &CancellationToken,
    ) -> Option<()> {
        let (key, original) = match given_up {
            GivenUp::Event(event) => (log_key(&event.record()), Original::Event(Box::new(event.clone()))),
            GivenUp::Raw(key, value) => {
                let kept = value.len().min(MAX_RAW);
                (
                    key.slice(..key.len().min(1_000)),
                    Original::Raw(value.slice(..kept)),
                )
            }
        };
        let letter = DeadLetter {
            original,
            failure_reason,
            error_message: message.chars().take(MAX_MESSAGE).collect(),
            causes: Vec::new(),
            retry_count,
            failed_at: self.shared.now(),
            worker_id: self.shared.options.owner.clone(),
        };
        let record = dead_record(key, &letter);
        let mut tries = 0;
        loop {
            let answer = self.shared.options.log.append(vec![record.clone()]).await;
            match answer.into_iter().next().unwrap_or(Err(LogError::Closed)) {
                Ok(_) => break,
                Err(error) if error.is_retryable() => {
                    if tries == 0 {
                        tracing::warn!(%error, "a dead letter could not be written; it is tried again");
                    }
                }
                Err(error) => {
                    self.shared.fail(error.into());
                    return None;
                }
            }
            tries += 1;
            tokio::select! {
                biased;
                () = lost.cancelled() => return None,
                () = tokio::time::sleep((Duration::from_millis(50) * tries).min(LONGEST_PAUSE)) => {}
            }
        }
        self.shared.counters.dead_letter(failure_reason);
        tracing::warn!(reason = ?failure_reason, message, "an event was given up; its letter is in the log");
        Some(())
    }
}
