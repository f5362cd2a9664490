//! Sends settlements, as many per call as have arrived.

use std::time::Duration;

use tidegate_api::{SettledAs, Settlement};
use tokio::sync::mpsc;

use super::MAX_CALL;
use crate::client::Client;

/// Longer than most leases last: a later settlement would be stale.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// The totals of a worker's run, by the effect of each settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Jobs that completed.
    pub completed: u64,
    /// Jobs that run again later, after a retry or a throttle.
    pub delayed: u64,
    /// Jobs that are dead.
    pub dead: u64,
    /// Jobs that the worker released.
    pub released: u64,
    /// Settlements whose lease had ended, so that another worker may have the job. Also settlements of a call
    /// whose response was lost.
    pub stale: u64,
    /// Settlements that the service did not take; their jobs run again when the leases expire.
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
    // Large results may exceed the size of one call: the loop then sends halves.
    let mut parts = vec![answers];
    while let Some(part) = parts.pop() {
        match client.settle(part).await {
            Ok(settled) => settled.iter().for_each(|job| tally.count(job.state)),
            Err(error) if error.status() == Some(413) && part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) => {
                tracing::error!(%error, settlements = part.len(), "failed to settle jobs; they run again when their leases expire");
                tally.unanswered += part.len() as u64;
            }
        }
    }
}

impl Tally {
    fn count(&mut self, state: SettledAs) {
        match state {
            SettledAs::Completed => self.completed += 1,
            SettledAs::Delayed => self.delayed += 1,
            SettledAs::Dead => self.dead += 1,
            SettledAs::Released => self.released += 1,
            SettledAs::Stale => self.stale += 1,
        }
    }
}
