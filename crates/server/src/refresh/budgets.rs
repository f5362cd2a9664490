//! The budgets as they were last seen: whoever shows them does not wait for the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::budget::BudgetView;
use tidegate_core::ids::TargetId;
use tidegate_core::time::Timestamp;
use tidegate_engine::refresh::{TokenDispenser, TokensView};
use tidegate_store::refresh::RefreshStore;
use tidegate_store::{Clock, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::pace::Pace;

const EVERY: Duration = Duration::from_secs(1);
/// Limit: how long one look may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// One budget at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SeenBudget {
    pub(crate) view: BudgetView,
    pub(crate) at: Timestamp,
    /// Calls per second that were let through, by all processes; none if it was not seen often enough.
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
    away: bool,
}

impl Budgets {
    pub(super) fn new(token_dispenser: TokenDispenser, store: Arc<dyn RefreshStore>) -> Self {
        Self {
            token_dispenser,
            store,
            seen: Mutex::default(),
        }
    }

    /// What this process took of them.
    pub(crate) fn taken(&self) -> TokensView {
        self.token_dispenser.view()
    }

    /// One budget; none before it was seen for the first time.
    pub(crate) fn of(&self, target: &TargetId) -> Option<SeenBudget> {
        self.seen(|seen| seen.budgets.get(target).cloned())
    }

    /// Whether the store did not answer when it was last asked.
    pub(crate) fn away(&self) -> bool {
        self.seen(|seen| seen.away)
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls are made again although the provider asked to be left alone. False if it had not.
    pub(crate) async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        let lifted = self.store.lift(target).await?;
        self.seen(|seen| {
            if let Some(budget) = seen.budgets.get_mut(target) {
                budget.view.hold_until = Timestamp(0);
            }
        });
        Ok(lifted)
    }

    /// Looks every second, until it is told to stop.
    pub(super) async fn run(
        self: Arc<Self>,
        targets: Vec<TargetId>,
        clock: Arc<dyn Clock>,
        stop: CancellationToken,
    ) {
        loop {
            let look = self.look(&targets, &*clock);
            tokio::select! {
                () = look => {}
                () = stop.cancelled() => return,
            }
            tokio::select! {
                () = tokio::time::sleep(EVERY) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    async fn look(&self, targets: &[TargetId], clock: &dyn Clock) {
        for target in targets {
            let asked = Instant::now();
            let view = tokio::time::timeout(PATIENCE, self.store.budget(target)).await;
            let at = clock.now();
            let is_there = match view {
                Ok(Ok(view)) => {
                    self.seen(|seen| {
                        let pace = seen.paces.entry(target.clone()).or_default();
                        pace.saw(&view, asked, Instant::now());
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
                    tracing::debug!(%error, %target, "a budget could not be looked at");
                    false
                }
                Err(_) => false,
            };
            self.seen(|seen| seen.away = !is_there);
            // The others would not be told either.
            if !is_there {
                return;
            }
        }
    }
}
