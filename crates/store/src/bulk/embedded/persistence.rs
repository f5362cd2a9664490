//! The state machine with the encoder of its changes.

use std::sync::Arc;

use tidegate_core::bulk::Bulk;
use tidegate_durable::{Changes, Persist, ReplyNeeds};

use super::super::BulkNotifier;
use super::encoder::ChangeEncoder;

pub(super) struct BulkPersistence {
    pub(super) bulk: Bulk,
    pub(super) encoder: ChangeEncoder,
    pub(super) notifier: Arc<BulkNotifier>,
    /// Proves the state machine's invariants after every batch. For tests: it visits every job.
    pub(super) checked: bool,
}

impl Persist for BulkPersistence {
    type State = Bulk;

    fn state(&mut self) -> &mut Bulk {
        &mut self.bulk
    }

    /// The encoder knows which changes need a sync.
    fn changes(&self) -> u64 {
        0
    }

    fn take_changes(&mut self, needs: ReplyNeeds) -> Changes {
        if self.checked {
            self.bulk.check();
        }
        self.encoder.add(self.bulk.take_changes());
        let changes = self.encoder.take(needs.mark, &self.bulk);
        // Signal before the sync: a woken service sends its command to this thread, which replies after the commit. So a
        // caller that has its reply has also seen its signal.
        self.notifier.notify(self.bulk.take_signals());
        changes
    }
}
