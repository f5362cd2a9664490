//! Records when records were last used: sparsely, in batches, and never on the read path.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::ids::RecordId;
use tidegate_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::refresh::shared::{Shared, record_ref};

/// Limit: notes that wait. The queue drops further ones; the next use of the record notes it again.
const QUEUE: usize = 4_096;
/// Limit: notes in one call.
const BATCH: usize = 500;
/// Longest time a note waits for its batch to fill.
const EVERY: Duration = Duration::from_millis(500);

type Note = (RecordId, Timestamp);

#[derive(Debug, Clone)]
pub(crate) struct Activity {
    notes: mpsc::Sender<Note>,
}

impl Activity {
    pub(crate) fn new(
        shared: Arc<Shared>,
        stop: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (notes, queue) = mpsc::channel(QUEUE);
        (Self { notes }, run(shared, queue, stop))
    }

    pub(crate) fn note(&self, record: &RecordId, at: Timestamp) {
        let _ = self.notes.try_send((record.clone(), at));
    }
}

async fn run(shared: Arc<Shared>, mut queue: mpsc::Receiver<Note>, stop: CancellationToken) {
    let mut notes = Vec::new();
    loop {
        let ended = tokio::select! {
            got = queue.recv_many(&mut notes, BATCH) => got == 0,
            () = stop.cancelled() => true,
        };
        if ended {
            return;
        }
        if notes.len() < BATCH {
            // Wait for a few more notes, so that one call carries them all.
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = stop.cancelled() => {}
            }
            while notes.len() < BATCH
                && let Ok(note) = queue.try_recv()
            {
                notes.push(note);
            }
        }
        let mut latest: HashMap<RecordId, Timestamp> = HashMap::new();
        for (record, at) in notes.drain(..) {
            let entry = latest.entry(record).or_insert(at);
            *entry = at.max(*entry);
        }
        let seen: Vec<_> = latest
            .iter()
            .map(|(record, at)| (record_ref(record), *at))
            .collect();
        if let Err(error) = shared.options.snapshots.mark_active(&seen).await {
            tracing::debug!(%error, "failed to record activity; the next use records it");
        }
    }
}
