//! The budget of a provider that both pushes and refreshes call: every call needs a token of it.

use std::time::Duration;

use tidegate_core::budget::asked_hold;
use tidegate_core::bulk::Priority as JobPriority;
use tidegate_core::ids::TargetId;
use tidegate_core::priority::Priority;
use tidegate_core::time::Millis;
use tidegate_engine::refresh::Acquired;
use tidegate_engine::{Job, JobError};
use tokio::time::Instant;

use super::call::Reply;
use crate::refresh::PushBudgets;

/// Limit: how long a worker is kept waiting for a token. Longer, and the job goes back to its line: others, for other
/// targets, may use the worker.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Budget {
    target: TargetId,
    budgets: PushBudgets,
}

impl Budget {
    pub(crate) fn new(target: TargetId, budgets: PushBudgets) -> Self {
        Self { target, budgets }
    }

    /// Waits a little for the right to call, and says until when. Without it the job was not run and uses up no attempt.
    pub(crate) async fn take(&self, job: &Job) -> Result<Instant, JobError> {
        let priority = match job.priority {
            JobPriority::High => Priority::High,
            JobPriority::Normal | JobPriority::Low => Priority::Low,
        };
        let patience = PATIENCE.min(Duration::from(job.timeout) / 4);
        let until = Instant::now() + patience;
        let token_dispenser = &self.budgets.token_dispenser;
        loop {
            let within = Millis(patience.as_millis() as u64);
            let acquire = token_dispenser.acquire_within(&self.target, priority, within);
            match tokio::time::timeout_at(until, acquire).await {
                Ok(Acquired::Token(token)) if token.is_valid() => return Ok(token.use_by()),
                // It came too late to be used.
                Ok(Acquired::Token(_)) => {}
                // A day that is used up, or a provider that wants to be left alone: nothing comes of asking sooner.
                Ok(Acquired::LongWait { wait, .. }) => {
                    return Err(JobError::Throttled {
                        retry_after: Some(wait),
                    });
                }
                Ok(Acquired::Closed) | Err(_) => return Err(JobError::Released),
            }
        }
    }

    /// A provider that says it was too much is left alone by refreshes, too.
    pub(crate) async fn heard(&self, reply: &Reply) {
        let Some(wait) = asked_hold(reply.status.as_u16(), reply.retry_after) else {
            return;
        };
        if let Err(error) = self.budgets.store.hold(&self.target, wait).await {
            tracing::warn!(%error, target = %self.target, "the provider's wish to be left alone could not be noted");
        }
    }
}
