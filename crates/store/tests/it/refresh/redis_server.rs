//! The refresh store on real Redis servers: several processes on one budget, servers that lose data, lost replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_core::budget::BudgetConfig;
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority;
use tidegate_core::priority::Priority::{High, Low};
use tidegate_core::refresh::coalescer::{
    RequestOutcome, RequestParams, SettleOutcome, SettleParams, Settlement,
};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::StoreError;
use tidegate_store::refresh::{
    RedisRefreshOptions, RedisRefreshStore, RefreshSettings, RefreshStore, TakeOutcome,
};
use tidegate_testkit::servers::{Proxy, RedisCluster, RedisOptions, RedisServer};

const START: Timestamp = Timestamp(1_706_000_000_000);
/// Longer than any machine needs for one step.
const PATIENCE: Duration = Duration::from_secs(180);
/// About four seconds' worth of tokens.
const CALLS: usize = 2_000;

fn record(key: &str) -> RecordId {
    RecordId {
        source: SourceId::new("character").unwrap(),
        key: RecordKey::new(key).unwrap(),
    }
}

fn target() -> TargetId {
    TargetId::new("nexon").unwrap()
}

fn options(url: String, prefix: &str) -> RedisRefreshOptions {
    RedisRefreshOptions {
        prefix: prefix.to_owned(),
        settings: RefreshSettings {
            budgets: [(target(), BudgetConfig::default())].into(),
            ..RefreshSettings::default()
        },
        ..RedisRefreshOptions::new(url)
    }
}

fn ask(key: &str, priority: Priority) -> (RecordId, RequestParams) {
    let params = RequestParams {
        priority,
        snapshot_version: None,
        read_at: Timestamp(u64::MAX),
    };
    (record(key), params)
}

/// Most in any window of one second.
fn worst_second(calls: &[Instant]) -> usize {
    let (mut first, mut worst) = (0, 0);
    for (index, call) in calls.iter().enumerate() {
        while calls[first] + Duration::from_secs(1) <= *call {
            first += 1;
        }
        worst = worst.max(index + 1 - first);
    }
    worst
}

/// Retries until there is an answer. Budget calls fail after two seconds, and a busy machine may take longer.
async fn retry_until_available<T, F: Future<Output = Result<T, StoreError>>>(
    mut call: impl FnMut() -> F,
) -> T {
    let begun = Instant::now();
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_retryable() && begun.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Takes tokens until all together have made enough calls, and uses every valid token at once.
async fn caller(store: RedisRefreshStore, priority: Priority, made: Arc<AtomicUsize>) -> Vec<Instant> {
    let (begun, mut calls) = (Instant::now(), Vec::new());
    while made.load(Ordering::Relaxed) < CALLS {
        let asked = Instant::now();
        assert!(begun.elapsed() < PATIENCE, "the budget hands out too little");
        match store.take(&target(), priority, 10).await {
            // A busy machine may be late: the tokens are void, and nobody uses them.
            Err(error) => assert!(error.is_retryable(), "{error}"),
            Ok(TakeOutcome::Taken { tokens, valid_for }) => {
                for _ in 0..tokens {
                    let now = Instant::now();
                    if now < asked + Duration::from(valid_for) {
                        calls.push(now);
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            Ok(TakeOutcome::Limited { wait, .. }) => tokio::time::sleep(wait.into()).await,
        }
    }
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_several_stores_together_keep_to_one_budget() {
    let mut stores = Vec::new();
    for _ in 0..4 {
        let options = options(RedisServer::shared().url(), "together:");
        stores.push(retry_until_available(|| RedisRefreshStore::open(options.clone())).await);
    }
    let (target, made) = (target(), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    while retry_until_available(|| stores[0].budget(&target)).await.tokens < 25 {
        assert!(begun.elapsed() < PATIENCE, "the bucket fills");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let callers: Vec<_> = stores
        .into_iter()
        .zip([High, High, Low, Low])
        .map(|(store, priority)| tokio::spawn(caller(store, priority, made.clone())))
        .collect();
    let mut calls = Vec::new();
    for caller in callers {
        calls.extend(caller.await.unwrap());
    }
    calls.sort();
    let worst = worst_second(&calls);
    assert!(worst <= 500, "{worst} calls in one second");
}

#[tokio::test]
async fn an_answer_that_was_lost_is_given_again() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = retry_until_available(|| RedisRefreshStore::open(options(proxy.url(), "again:"))).await;

    proxy.drop_next_reply();
    let outcomes = store.request(vec![ask("a", High)]).await.unwrap();
    assert!(
        matches!(outcomes[0], RequestOutcome::Published { .. }),
        "{outcomes:?}"
    );
    assert_eq!(proxy.dropped_replies(), 1, "it was lost");
    let version = outcomes[0].to_send().unwrap();

    proxy.drop_next_reply();
    let params = SettleParams {
        version,
        priority: High,
        settlement: Settlement::Done,
    };
    let settled = store.settle(vec![(record("a"), params)]).await.unwrap();
    assert_eq!(
        (settled, proxy.dropped_replies()),
        (vec![SettleOutcome::Settled], 2)
    );
    assert_eq!(
        store.settle(vec![(record("a"), params)]).await.unwrap(),
        [SettleOutcome::AlreadySettled],
        "once"
    );

    // A whole batch: each record is sent exactly once.
    proxy.drop_next_reply();
    let keys: Vec<String> = (0..100).map(|index| format!("key-{index}")).collect();
    let outcomes = store
        .request(keys.iter().map(|key| ask(key, Low)).collect())
        .await
        .unwrap();
    assert!(
        outcomes.iter().all(|outcome| outcome.to_send().is_some()),
        "{outcomes:?}"
    );
    assert_eq!(proxy.dropped_replies(), 3);
}

/// A store whose time advances only when a test moves it.
async fn still(url: String, prefix: &str, clock: &Arc<ManualClock>) -> RedisRefreshStore {
    let mut options = options(url, prefix);
    options.clock = Some(clock.clone());
    retry_until_available(|| RedisRefreshStore::open(options.clone())).await
}

/// Takes tokens from a full bucket; returns how many, and how many an unanswered call may have taken before.
async fn take_some(store: &RedisRefreshStore, clock: &ManualClock) -> (u64, u64) {
    let (target, mut tries) = (target(), 0);
    let taken = retry_until_available(|| {
        tries += 1;
        clock.advance(Millis(60_000));
        store.take(&target, High, 20)
    })
    .await;
    match taken {
        TakeOutcome::Taken { tokens, .. } => (tokens, (tries - 1) * 20),
        other => panic!("the bucket is full: {other:?}"),
    }
}

#[tokio::test]
async fn tokens_of_before_a_restart_are_not_handed_out_again() {
    let (target, clock) = (target(), Arc::new(ManualClock::at(START)));
    let mut server = RedisServer::start(RedisOptions::durable()).unwrap();
    let store = still(server.url(), "restart:", &clock).await;
    let (tokens, unheard) = take_some(&store, &clock).await;
    server.kill().unwrap();
    server.restart().unwrap();
    let after = retry_until_available(|| store.take(&target, High, 20)).await;
    let TakeOutcome::Limited { wait, .. } = after else {
        panic!("the server may have forgotten its last moments: {after:?}");
    };
    assert!(wait.0 > 900, "{wait}");
    let used = retry_until_available(|| store.budget(&target)).await.day_used;
    assert!(
        (tokens..=tokens + unheard).contains(&used),
        "the day goes on: {used}, not {tokens}"
    );
}

#[tokio::test]
async fn a_budget_that_was_lost_begins_empty_and_its_day_goes_on_from_what_was_seen() {
    let (target, clock) = (target(), Arc::new(ManualClock::at(START)));
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let store = still(server.url(), "lost:", &clock).await;
    let (tokens, unheard) = take_some(&store, &clock).await;
    assert!(server.command(&["FLUSHALL"]).unwrap().is_ok());
    let after = retry_until_available(|| store.take(&target, High, 20)).await;
    assert!(matches!(after, TakeOutcome::Limited { .. }), "{after:?}");
    // Another process learns it from the server.
    let other = still(server.url(), "lost:", &clock).await;
    let used = retry_until_available(|| other.budget(&target)).await.day_used;
    assert!(
        (tokens..=tokens + unheard).contains(&used),
        "{used}, not {tokens}"
    );
}

#[tokio::test]
async fn keys_carry_the_tag_of_their_record_and_end_by_themselves() {
    let cluster = RedisCluster::shared();
    let mut options = options(String::new(), "tags:");
    options.urls = cluster.urls();
    let store = retry_until_available(|| RedisRefreshStore::open(options.clone())).await;
    let asks: Vec<_> = (0..200).map(|index| ask(&format!("{{{index}}}"), Low)).collect();
    store.request(asks).await.unwrap();
    let (mut keys, mut used) = (0, 0);
    for node in cluster.nodes() {
        let here = node.command(&["KEYS", "tags:upd:*"]).unwrap().texts();
        used += usize::from(!here.is_empty());
        for key in here {
            let left = node.command(&["PTTL", &key]).unwrap().int().unwrap();
            // Not sent within 10 s, plus one minute for safety.
            assert!((1..=70_000).contains(&left), "{key}: {left}");
            keys += 1;
        }
    }
    assert_eq!((keys, used), (200, 3), "spread over all masters");
}

#[tokio::test]
async fn a_store_of_another_schema_is_refused() {
    let server = RedisServer::shared();
    let set = server.command(&["SET", "schema:{refresh}:schema", "7"]).unwrap();
    assert!(set.is_ok());
    let refused = RedisRefreshStore::open(options(server.url(), "schema:"))
        .await
        .unwrap_err();
    assert!(matches!(refused, StoreError::Unsuitable { .. }), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("it has schema 7, this program knows schema 1"),
        "{refused}"
    );
    let braces = RedisRefreshStore::open(options(server.url(), "a{b}:"))
        .await
        .unwrap_err();
    assert!(matches!(braces, StoreError::Config(_)), "{braces}");
}

#[tokio::test]
async fn an_unavailable_server_is_distinguished_from_a_refusal() {
    let mut server = RedisServer::start(RedisOptions::default()).unwrap();
    let clock = Arc::new(ManualClock::at(START));
    let store = still(server.url(), "down:", &clock).await;
    server.kill().unwrap();
    let failed = store.take(&target(), High, 1).await.unwrap_err();
    assert!(failed.is_retryable(), "{failed}");
    server.restart().unwrap();
    let outcome = store.request(vec![ask("a", High)]).await.unwrap();
    assert!(outcome[0].to_send().is_some(), "it works again by itself");
}
