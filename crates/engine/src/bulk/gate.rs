//! The gate of a queue: while it is closed, this process leases nothing from the queue.
//!
//! For a downstream that is unavailable or wants no more work: its jobs wait in their flows instead of failing one
//! by one. A gate belongs to one process; other processes that work in the same queue find out for themselves.

use tokio::sync::watch;

/// Opens and closes a queue of one engine, before or while it runs. Clones are the same gate. A gate starts open.
///
/// Closing stops no running job. A job that finds its downstream unavailable closes the gate and returns
/// [`Released`](super::JobError::Released), so that it is the first to run when the gate opens.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Why it is closed.
    closed: watch::Sender<Option<String>>,
}

impl Gate {
    pub fn open(&self) {
        self.closed.send_if_modified(|closed| closed.take().is_some());
    }

    /// Closes the gate; the latest reason wins.
    pub fn close(&self, reason: impl Into<String>) {
        self.closed.send_replace(Some(reason.into()));
    }

    pub fn is_open(&self) -> bool {
        self.closed.borrow().is_none()
    }

    /// Why it is closed; none if it is open.
    pub fn reason(&self) -> Option<String> {
        self.closed.borrow().clone()
    }

    /// Resolves when the gate is open.
    pub(crate) async fn opened(&self) {
        // Fails only without a sender, and `self` holds one.
        let _ = self.closed.subscribe().wait_for(Option::is_none).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clones_are_one_gate() {
        let gate = Gate::default();
        let other = gate.clone();
        assert!(gate.is_open());
        gate.opened().await;
        other.close("gone");
        other.close("still gone");
        assert_eq!(gate.reason().as_deref(), Some("still gone"));
        let opened = tokio::spawn({
            let gate = gate.clone();
            async move { gate.opened().await }
        });
        other.open();
        opened.await.unwrap();
        assert_eq!((gate.is_open(), gate.reason()), (true, None));
    }
}
