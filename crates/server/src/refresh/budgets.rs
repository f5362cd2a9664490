//! Reads the budgets every second, so that pages and metrics need not wait for the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::budget::BudgetView;
use tidegate_core::clock::Clock;
use tidegate_core::ids::TargetId;
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::{TokenDispenser, TokensView};
use tidegate_store::StoreError;
use tidegate_store::refresh::RefreshStore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pace::Pace;

const EVERY: Duration = Duration::from_secs(1);
/// Limit: how long reading one budget may take.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// One budget at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenBudget {
    pub(crate) view: BudgetView,
    pub(crate) at: Timestamp,
    /// Calls per second that the budget allowed to all processes; `None` with too few readings.
    pub(crate) calls_per_second: Option<f64>,
}

#[derive(Debug)]
pub(crate) struct Budgets {
    token_dispenser: TokenDispenser,
    store: Arc<dyn RefreshStore>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    budgets: BTreeMap<TargetId, SeenBudget>,
    paces: BTreeMap<TargetId, Pace>,
    unavailable: bool,
}

impl Budgets {
    pub(crate) fn new(token_dispenser: TokenDispenser, store: Arc<dyn RefreshStore>) -> Self {
        Self {
            token_dispenser,
            store,
            seen: Mutex::default(),
        }
    }

    /// The tokens that this process took.
    pub(crate) fn taken(&self) -> TokensView {
        self.token_dispenser.view()
    }

    /// One budget; `None` before the first reading.
    pub(crate) fn of(&self, target: &TargetId) -> Option<SeenBudget> {
        self.seen(|seen| seen.budgets.get(target).cloned())
    }

    /// Whether the store did not answer the last reading.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.seen(|seen| seen.unavailable)
    }

    fn seen<T>(&self, access: impl FnOnce(&mut Seen) -> T) -> T {
        access(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lifts the hold that a `Retry-After` of the provider set. Returns false if there was none.
    pub(crate) async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        let lifted = self.store.lift(target).await?;
        self.seen(|seen| {
            if let Some(budget) = seen.budgets.get_mut(target) {
                budget.view.hold_until = Timestamp(0);
            }
        });
        Ok(lifted)
    }

    /// Reads the budgets every second until `stop`.
    pub(crate) async fn run(
        self: Arc<Self>,
        targets: Vec<TargetId>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) {
        loop {
            let read = self.read(&targets, &*clock);
            tokio::select! {
                () = read => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn read(&self, targets: &[TargetId], clock: &dyn Clock) {
        for target in targets {
            let requested = Instant::now();
            let view = tokio::time::timeout(READ_TIMEOUT, self.store.budget(target)).await;
            let at = clock.now();
            let available = match view {
                Ok(Ok(view)) => {
                    self.seen(|seen| {
                        let pace = seen.paces.entry(target.clone()).or_default();
                        pace.observe(&view, requested, Instant::now());
                        let calls_per_second = pace.rate();
                        let budget = SeenBudget {
                            view,
                            at,
                            calls_per_second,
                        };
                        seen.budgets.insert(target.clone(), budget);
                    });
                    true
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, %target, "failed to read a budget");
                    false
                }
                Err(_) => false,
            };
            self.seen(|seen| seen.unavailable = !available);
            // The store would not answer for the other budgets either.
            if !available {
                return;
            }
        }
    }
}
