//! The budget of a provider that pushes and refreshes share: every call needs a token of it.

use std::time::Duration;

use tidegate_core::budget::asked_hold;
use tidegate_core::bulk::Priority as JobPriority;
use tidegate_core::ids::TargetId;
use tidegate_core::priority::Priority;
use tidegate_core::time::Millis;
use tidegate_engine::bulk::{Job, JobError};
use tidegate_engine::refresh::Acquired;
use tokio::time::Instant;

use super::call::Reply;
use crate::refresh::PushBudgets;

/// Limit: how long a worker waits for a token. After it the job returns to its flow, so that other jobs can use the worker.
const MAX_WAIT: Duration = Duration::from_secs(1);

pub(crate) struct Budget {
    target: TargetId,
    budgets: PushBudgets,
}

impl Budget {
    pub(crate) fn new(target: TargetId, budgets: PushBudgets) -> Self {
        Self { target, budgets }
    }

    /// Waits for a token, and returns until when it is valid. Without a token the job does not run and uses no attempt.
    pub(crate) async fn take(&self, job: &Job) -> Result<Instant, JobError> {
        let priority = match job.priority {
            JobPriority::High => Priority::High,
            JobPriority::Normal | JobPriority::Low => Priority::Low,
        };
        let longest = MAX_WAIT.min(Duration::from(job.timeout) / 4);
        let until = Instant::now() + longest;
        let token_dispenser = &self.budgets.token_dispenser;
        loop {
            let within = Millis(longest.as_millis() as u64);
            let acquire = token_dispenser.acquire_within(&self.target, priority, within);
            match tokio::time::timeout_at(until, acquire).await {
                Ok(Acquired::Token(token)) if token.is_valid() => return Ok(token.use_by()),
                // The token came too late: acquire another one.
                Ok(Acquired::Token(_)) => {}
                // The day's calls are used up, or the provider sent Retry-After: an earlier attempt cannot succeed.
                Ok(Acquired::LongWait { wait, .. }) => {
                    return Err(JobError::throttled(Some(wait)));
                }
                Ok(Acquired::Closed) | Err(_) => return Err(JobError::Released),
            }
        }
    }

    /// Records the `Retry-After` of a response, so that refreshes respect it, too.
    pub(crate) async fn observe(&self, reply: &Reply) {
        let Some(wait) = asked_hold(reply.status.as_u16(), reply.retry_after) else {
            return;
        };
        if let Err(error) = self.budgets.store.hold(&self.target, wait).await {
            tracing::warn!(%error, target = %self.target, "failed to record Retry-After");
        }
    }
}
