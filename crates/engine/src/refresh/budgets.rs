//! Reads the budgets every second, so that whoever shows them need not wait for the store.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::budget::BudgetView;
use tidegate_core::clock::Clock;
use tidegate_core::ids::TargetId;
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;
use tidegate_store::refresh::RefreshStore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_rate::CallRate;
use super::work::token_dispenser::{TokenDispenser, TokensView};

const EVERY: Duration = Duration::from_secs(1);
/// Limit: how long reading one budget may take.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// One budget at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenBudget {
    pub view: BudgetView,
    pub at: Timestamp,
    /// Calls per second that the budget allowed to all processes; none with too few readings.
    pub calls_per_second: Option<f64>,
}

/// The budgets as this process last read them.
#[derive(Debug)]
pub struct Budgets {
    token_dispenser: TokenDispenser,
    store: Arc<dyn RefreshStore>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    budgets: BTreeMap<TargetId, SeenBudget>,
    calls: BTreeMap<TargetId, CallRate>,
    unavailable: bool,
}

impl Budgets {
    /// Reads nothing yet: see [`run`](Self::run).
    pub fn new(token_dispenser: TokenDispenser, store: Arc<dyn RefreshStore>) -> Self {
        Self {
            token_dispenser,
            store,
            seen: Mutex::default(),
        }
    }

    /// The tokens that this process took.
    pub fn taken(&self) -> TokensView {
        self.token_dispenser.view()
    }

    /// One budget; none before the first reading.
    pub fn of(&self, target: &TargetId) -> Option<SeenBudget> {
        self.seen(|seen| seen.budgets.get(target).cloned())
    }

    /// Whether the store did not answer the last reading.
    pub fn is_unavailable(&self) -> bool {
        self.seen(|seen| seen.unavailable)
    }

    fn seen<T>(&self, access: impl FnOnce(&mut Seen) -> T) -> T {
        access(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lifts the hold that a `Retry-After` of the provider set. Returns false if there was none.
    pub async fn lift(&self, target: &TargetId) -> Result<bool, StoreError> {
        let lifted = self.store.lift(target).await?;
        self.seen(|seen| {
            if let Some(budget) = seen.budgets.get_mut(target) {
                budget.view.hold_until = Timestamp(0);
            }
        });
        Ok(lifted)
    }

    /// Reads the budgets of these targets every second until `stop`.
    pub async fn run(
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
                        let calls = seen.calls.entry(target.clone()).or_default();
                        calls.observe(&view, requested, Instant::now());
                        let calls_per_second = calls.per_second();
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

#[cfg(test)]
mod tests {
    use tidegate_core::budget::BudgetConfig;
    use tidegate_core::clock::ManualClock;
    use tidegate_core::priority::Priority;
    use tidegate_core::refresh::config::BreakerConfig;
    use tidegate_core::time::Millis;
    use tidegate_store::refresh::{ModelRefreshStore, RefreshSettings};

    use super::*;

    const NOW: Timestamp = Timestamp(1_706_000_000_000);

    fn target(name: &str) -> TargetId {
        TargetId::new(name).unwrap()
    }

    fn store(targets: &[&str], clock: &Arc<ManualClock>) -> Arc<dyn RefreshStore> {
        let settings = RefreshSettings {
            budgets: targets
                .iter()
                .map(|name| (target(name), BudgetConfig::default()))
                .collect(),
            ..RefreshSettings::default()
        };
        Arc::new(ModelRefreshStore::new(settings, clock.clone()).unwrap())
    }

    fn budgets(store: &Arc<dyn RefreshStore>) -> Budgets {
        let token_dispenser = TokenDispenser::over(store.clone(), BreakerConfig::default());
        Budgets::new(token_dispenser, store.clone())
    }

    #[tokio::test]
    async fn a_reading_shows_what_the_store_has_and_a_lifted_hold_at_once() {
        let clock = Arc::new(ManualClock::at(NOW));
        let (store, api) = (store(&["api"], &clock), target("api"));
        let budgets = budgets(&store);
        assert_eq!(budgets.of(&api), None);
        // A new budget has no tokens yet.
        store.take(&api, Priority::High, 1).await.unwrap();
        clock.advance(Millis(2_000));
        store.take(&api, Priority::High, 1).await.unwrap();
        store.hold(&api, Millis(60_000)).await.unwrap();
        budgets.read(std::slice::from_ref(&api), &*clock).await;
        let seen = budgets.of(&api).unwrap();
        assert_eq!(seen.view.day_used, 1);
        assert!(seen.view.hold_until > seen.at);
        assert_eq!(seen.calls_per_second, None, "one reading is no rate");
        assert!(budgets.lift(&api).await.unwrap());
        assert_eq!(budgets.of(&api).unwrap().view.hold_until, Timestamp(0));
        assert!(!budgets.lift(&api).await.unwrap());
    }

    #[tokio::test]
    async fn a_failed_reading_ends_the_round_and_keeps_what_was_read() {
        let clock = Arc::new(ManualClock::at(NOW));
        let (with_both, with_one) = (store(&["api", "mail"], &clock), store(&["mail"], &clock));
        let (api, mail) = (target("api"), target("mail"));
        let mut budgets = budgets(&with_both);
        budgets.read(&[api.clone(), mail.clone()], &*clock).await;
        assert!(!budgets.is_unavailable());
        let before = (budgets.of(&api), budgets.of(&mail));
        budgets.store = with_one;
        budgets.read(&[api.clone(), mail.clone()], &*clock).await;
        assert!(budgets.is_unavailable());
        assert_eq!((budgets.of(&api), budgets.of(&mail)), before);
        budgets.read(&[mail], &*clock).await;
        assert!(!budgets.is_unavailable());
    }
}
