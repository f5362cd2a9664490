//! Tokens for every caller in a process. In virtual time: a token that expires while the machine stalls would count as
//! wasted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::budget::{BudgetConfig, LimitedBy};
use tidegate_core::clock::Clock;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::config::{BreakerConfig, CoalescerConfig};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{Acquired, TokenDispenser};
use tidegate_store::refresh::{ModelRefreshStore, RefreshSettings, RefreshStore};
use tokio::time::Instant;

use super::faulty::FaultyStore;
use super::world::{target, until};

/// Wall time from tokio's clock.
#[derive(Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_706_000_000_000) + Millis(self.0.elapsed().as_millis() as u64)
    }
}

fn store() -> Arc<FaultyStore> {
    store_with(BudgetConfig {
        rate: 200,
        burst: 10,
        ..BudgetConfig::default()
    })
}

fn store_with(budget: BudgetConfig) -> Arc<FaultyStore> {
    let settings = RefreshSettings {
        budgets: BTreeMap::from([(target(), budget)]),
        coalescer: CoalescerConfig::default(),
    };
    let model = ModelRefreshStore::new(settings, Arc::new(VirtualClock(Instant::now()))).unwrap();
    Arc::new(FaultyStore::new(Arc::new(model)))
}

#[tokio::test(start_paused = true)]
async fn as_many_are_taken_as_are_used_and_each_is_valid() {
    let store = store();
    let token_dispenser = TokenDispenser::over(store.clone(), BreakerConfig::default());
    let begun = Instant::now();
    let target = target();
    let acquired = join_all((0..100).map(|_| token_dispenser.acquire(&target, Priority::High))).await;
    // 10 at once, then 200 per second after the budget's first second.
    assert!(
        begun.elapsed() >= Duration::from_millis(1_400),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        acquired
            .iter()
            .all(|acquired| matches!(acquired, Acquired::Token(_)))
    );
    assert!(store.taken.load(Ordering::SeqCst) < 110, "hardly any was wasted");
    // A caller may hold its token a moment before the counters include it, so stop the takers first.
    token_dispenser.close().await;
    let view = token_dispenser.view();
    let counts = view.tokens[&target];
    assert_eq!((counts.acquired.high, counts.acquired.low), (100, 0));
    assert!(counts.rejected.high > 0 && counts.rejected.low == 0, "{counts:?}");
    assert!((10..=100).contains(&counts.peak), "{counts:?}");
    assert!(view.store_calls.count() > 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_hold_fails_impatient_callers_and_keeps_the_others() {
    let store = store();
    let token_dispenser = TokenDispenser::over(store.clone(), BreakerConfig::default());
    store.hold(&target(), Millis(2_000)).await.unwrap();
    let target = target();
    let (impatient, patient) = tokio::join!(
        token_dispenser.acquire_within(&target, Priority::High, Millis(500)),
        token_dispenser.acquire_within(&target, Priority::High, Millis(60_000)),
    );
    let Acquired::LongWait { wait, by } = impatient else {
        panic!("{impatient:?}")
    };
    assert!(wait > Millis(1_000) && by == LimitedBy::Hold);
    assert!(matches!(patient, Acquired::Token(_)));
}

#[tokio::test(start_paused = true)]
async fn nobody_gets_a_token_and_nobody_fails_while_the_store_is_unavailable() {
    let store = store();
    let token_dispenser = TokenDispenser::over(store.clone(), BreakerConfig::default());
    store.unavailable.store(true, Ordering::SeqCst);
    let target = target();
    let mut waiting = Box::pin(token_dispenser.acquire(&target, Priority::Low));
    let in_vain = until("it was asked in vain", || async {
        store.refused.load(Ordering::SeqCst) > 3
    });
    tokio::select! {
        got = &mut waiting => panic!("{got:?}"),
        () = in_vain => {}
    }
    assert_eq!(store.taken.load(Ordering::SeqCst), 0);
    store.unavailable.store(false, Ordering::SeqCst);
    let got = tokio::time::timeout(Duration::from_secs(60), waiting)
        .await
        .unwrap();
    assert!(matches!(got, Acquired::Token(_)));
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_given_back_goes_to_the_next_waiter() {
    let store = store_with(BudgetConfig {
        rate: 1,
        burst: 1,
        validity_ms: Millis(10_000),
        low_cap: 100,
        ..BudgetConfig::default()
    });
    let token_dispenser = TokenDispenser::over(store.clone(), BreakerConfig::default());
    let target = target();
    let Acquired::Token(first) = token_dispenser.acquire(&target, Priority::High).await else {
        panic!("no token");
    };
    // From here on the store grants no tokens.
    store.unavailable.store(true, Ordering::SeqCst);
    let mut next = Box::pin(token_dispenser.acquire(&target, Priority::High));
    let in_vain = until("it was asked in vain", || async {
        store.refused.load(Ordering::SeqCst) > 0
    });
    tokio::select! {
        got = &mut next => panic!("{got:?}"),
        () = in_vain => {}
    }
    first.give_back();
    let got = tokio::time::timeout(Duration::from_secs(30), next).await.unwrap();
    assert!(matches!(got, Acquired::Token(_)), "{got:?}");
    assert_eq!(store.taken.load(Ordering::SeqCst), 1);
    token_dispenser.close().await;
    assert_eq!(
        token_dispenser.view().tokens[&target].acquired.high,
        1,
        "counted once"
    );
}
