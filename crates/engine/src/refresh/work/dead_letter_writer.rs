//! Writes dead letters. A worker abandons an event only after the log has confirmed its dead letter.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::refresh::dead_letter::{DeadLetter, FailureReason, Original};
use tidegate_core::refresh::event::RefreshEvent;
use tidegate_log::LogError;
use tokio_util::sync::CancellationToken;

use crate::refresh::publish::events::{dead_record, log_key};
use crate::refresh::shared::Shared;

/// Limit: bytes kept of the key of an undecodable event, if the log rejects the full dead letter.
const MAX_KEY: usize = 1_000;
/// Limit: characters kept of an error message.
const MAX_MESSAGE: usize = 2_000;
/// Limit: errors of earlier attempts kept; the latest ones win.
const MAX_CAUSES: usize = 10;

/// What becomes a dead letter.
pub(crate) enum Undeliverable<'a> {
    Event(&'a RefreshEvent),
    /// Key and value as they were in the log.
    Raw(Bytes, Bytes),
}

/// Why it becomes a dead letter.
pub(crate) struct Why<'a> {
    pub(crate) reason: FailureReason,
    /// The last error.
    pub(crate) message: &'a str,
    /// Errors of the earlier attempts, in order.
    pub(crate) earlier: &'a [String],
    pub(crate) retries: u32,
}

impl<'a> Why<'a> {
    /// The worker made no attempt.
    pub(crate) fn at_once(reason: FailureReason, message: &'a str) -> Self {
        Self {
            reason,
            message,
            earlier: &[],
            retries: 0,
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct DeadLetterWriter {
    shared: Arc<Shared>,
}

impl DeadLetterWriter {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Retries until the log has confirmed it. None: `lost` fired first.
    pub(crate) async fn write(
        &self,
        undeliverable: Undeliverable<'_>,
        why: Why<'_>,
        lost: &CancellationToken,
    ) -> Option<()> {
        let (key, original) = match undeliverable {
            Undeliverable::Event(event) => {
                (log_key(&event.record()), Original::Event(Box::new(event.clone())))
            }
            Undeliverable::Raw(key, value) => (key, Original::Raw(value)),
        };
        let brief = |message: &str| message.chars().take(MAX_MESSAGE).collect::<String>();
        let earlier = why.earlier.iter().rev().take(MAX_CAUSES);
        let mut dead_letter = DeadLetter {
            original,
            failure_reason: why.reason,
            error_message: brief(why.message),
            causes: earlier.map(|message| brief(message)).collect(),
            retry_count: why.retries,
            failed_at: self.shared.now(),
            worker_id: self.shared.options.owner.clone(),
        };
        let mut record = dead_record(key, &dead_letter);
        loop {
            let append = || async {
                let answers = self.shared.options.log.append(vec![record.clone()]).await;
                answers.into_iter().next().unwrap_or(Err(LogError::Closed))
            };
            match self.shared.log_call(lost, append).await? {
                Ok(_) => break,
                // Only foreign producers append records this long. The partition must move on, so keep as much as
                // the log accepts.
                Err(error @ LogError::TooLarge { .. }) if shorten(&mut dead_letter) => {
                    tracing::warn!(%error, "an undecodable event is too long for a dead letter; it is truncated");
                    let key = record.key.slice(..record.key.len().min(MAX_KEY));
                    record = dead_record(key, &dead_letter);
                }
                Err(error) => {
                    self.shared.fail(error.into());
                    return None;
                }
            }
        }
        self.shared.counters.dead_letter(why.reason);
        tracing::warn!(reason = ?why.reason, message = why.message, "an event was dead-lettered");
        Some(())
    }
}

/// Keeps half of the undecodable bytes and notes the cut. Returns false if nothing is left to cut.
fn shorten(dead_letter: &mut DeadLetter) -> bool {
    let Original::Raw(bytes) = &mut dead_letter.original else {
        return false;
    };
    if bytes.is_empty() {
        return false;
    }
    let cut = format!("; of {} bytes only the first are kept", bytes.len());
    if !dead_letter.error_message.ends_with("only the first are kept") {
        dead_letter.error_message.push_str(&cut);
    }
    bytes.truncate(bytes.len() / 2);
    true
}

#[cfg(test)]
mod tests {
    use tidegate_core::ids::Owner;
    use tidegate_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_dead_letter_that_is_cut_says_what_it_was() {
        let mut dead_letter = DeadLetter {
            original: Original::Raw(Bytes::from_static(b"abcde")),
            failure_reason: FailureReason::ParseError,
            error_message: "no event".into(),
            causes: Vec::new(),
            retry_count: 0,
            failed_at: Timestamp(0),
            worker_id: Owner::new("w").unwrap(),
        };
        let mut cuts = 0;
        while shorten(&mut dead_letter) {
            cuts += 1;
        }
        assert_eq!((cuts, &dead_letter.original), (3, &Original::Raw(Bytes::new())));
        assert_eq!(
            dead_letter.error_message,
            "no event; of 5 bytes only the first are kept"
        );
    }
}
