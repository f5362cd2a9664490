//! Hands answers in, as many as have come in one call.

use std::time::Duration;

use tidegate_api::{SettledAs, Settlement};
use tokio::sync::mpsc;

use super::MAX_CALL;
use crate::client::Client;

/// Longer than a lease usually lasts: after that an answer would come too late.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// What came of a worker's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    pub done: u64,
    /// Retried or throttled: they come again.
    pub delayed: u64,
    pub dead: u64,
    /// Given back without having run to an end.
    pub returned: u64,
    /// Answered too late: somebody else has the job. Also what was settled by a call whose answer was lost.
    pub stale: u64,
    /// The service took no answer; the job comes again when its lease has run out.
    pub unanswered: u64,
}

pub(super) async fn run(client: Client, mut inbox: mpsc::Receiver<Settlement>) -> Tally {
    let client = client.with_retry_for(RETRY_FOR);
    let (mut tally, mut answers) = (Tally::default(), Vec::with_capacity(MAX_CALL));
    while inbox.recv_many(&mut answers, MAX_CALL).await > 0 {
        hand_in(&client, &answers, &mut tally).await;
        answers.clear();
    }
    tally
}

async fn hand_in(client: &Client, answers: &[Settlement], tally: &mut Tally) {
    // What is still to be handed in; large results may be too much for one call.
    let mut parts = vec![answers];
    while let Some(part) = parts.pop() {
        match client.settle(part).await {
            Ok(settled) => settled.iter().for_each(|job| tally.count(job.state)),
            Err(error) if error.status() == Some(413) && part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) => {
                tracing::error!(%error, answers = part.len(), "answers could not be handed in; their jobs run again");
                tally.unanswered += part.len() as u64;
            }
        }
    }
}

impl Tally {
    fn count(&mut self, state: SettledAs) {
        match state {
            SettledAs::Completed => self.done += 1,
            SettledAs::Delayed => self.delayed += 1,
            SettledAs::Dead => self.dead += 1,
            SettledAs::Released => self.returned += 1,
            SettledAs::Stale => self.stale += 1,
        }
    }
}
