//! Supervised tasks: they end together, and when one fails or panics, all stop.

use std::any::Any;
use std::time::Duration;

use tidegate_store::StoreError;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Tasks of one service.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: JoinSet<Result<(), StoreError>>,
    failed: CancellationToken,
}

impl Tasks {
    /// No tasks yet. The first failure cancels `failed`.
    pub(crate) fn new(failed: &CancellationToken) -> Self {
        Self {
            tasks: JoinSet::new(),
            failed: failed.clone(),
        }
    }

    /// Adds a task that ends by itself.
    pub(crate) fn add(&mut self, task: impl Future<Output = Result<(), StoreError>> + Send + 'static) {
        let failed = self.failed.clone();
        self.tasks.spawn(async move {
            // Fires also when the task panics.
            let failed = failed.drop_guard();
            let result = task.await;
            match &result {
                Ok(()) => {
                    failed.disarm();
                }
                Err(error) => tracing::error!(%error, "a service ended"),
            }
            result
        });
    }

    /// Adds a task that cannot fail.
    pub(crate) fn add_sure(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.add(async move {
            task.await;
            Ok(())
        });
    }

    /// Adds a task that is dropped at `stop`.
    pub(crate) fn add_until(
        &mut self,
        stop: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = stop.clone();
        self.add_sure(async move {
            tokio::select! {
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    }

    /// Waits for all, and returns the first error.
    pub(crate) async fn join(&mut self) -> Result<(), StoreError> {
        let mut first = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            // Propagate the panic of a task to the caller that waits.
            let result = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
            first = first.and(result);
        }
        first
    }

    /// Waits for all, but not forever: leaves behind a handler that blocks its thread, or a callback that never
    /// returns.
    pub(crate) async fn join_within(&mut self, longest: Duration) -> Result<(), StoreError> {
        match tokio::time::timeout(longest, self.join()).await {
            Ok(result) => result,
            Err(_) => {
                tracing::error!("services did not stop in time; their leases expire");
                self.tasks.abort_all();
                Ok(())
            }
        }
    }
}

/// The message of a panic in user code.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
