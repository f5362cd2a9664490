//! The refresh part on real Redis servers: several processes on one budget, servers that forget, answers that are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_core::budget::BudgetConfig;
use tidegate_core::ids::{RecordId, RecordKey, SourceId, TargetId};
use tidegate_core::priority::Priority::{self, High, Low};
use tidegate_core::refresh::coalescer::{RequestOutcome, RequestParams};
use tidegate_core::time::Timestamp;
use tidegate_store::refresh::{
    RedisRefreshOptions, RedisRefreshStore, RefreshSettings, RefreshStore, TakeOutcome,
};
use tidegate_store::{ManualClock, StoreError};
use tidegate_testkit::servers::{Proxy, RedisCluster, RedisOptions, RedisServer};

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

/// Takes what it can for a while, and uses every token that is still valid at once.
async fn caller(store: RedisRefreshStore, priority: Priority, until: Instant) -> Vec<Instant> {
    let mut calls = Vec::new();
    while Instant::now() < until {
        let asked = Instant::now();
        match store.take(&target(), priority, 10).await {
            // A busy machine may be late: what was taken is lost, and nobody uses it.
            Err(error) => assert!(error.is_retryable(), "{error}"),
            Ok(TakeOutcome::Taken { tokens, valid_for }) => {
                for _ in 0..tokens {
                    let now = Instant::now();
                    if now < asked + Duration::from(valid_for) {
                        calls.push(now);
                    }
                }
            }
            Ok(TakeOutcome::Limited { wait, .. }) => tokio::time::sleep(wait.into()).await,
        }
    }
    calls
}

/// Four stores for five seconds: all calls that were made, in order.
async fn together() -> Vec<Instant> {
    let mut stores = Vec::new();
    for _ in 0..4 {
        let store = RedisRefreshStore::open(options(RedisServer::shared().url(), "together:"));
        stores.push(store.await.unwrap());
    }
    full_bucket(&stores[0]).await;
    let until = Instant::now() + Duration::from_secs(5);
    let callers: Vec<_> = stores
        .into_iter()
        .zip([High, High, Low, Low])
        .map(|(store, priority)| tokio::spawn(caller(store, priority, until)))
        .collect();
    let mut calls = Vec::new();
    for caller in callers {
        calls.extend(caller.await.unwrap());
    }
    calls.sort();
    calls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_of_several_stores_together_keep_to_one_budget() {
    let mut best = 0.0_f64;
    // A machine that stalls for longer than a burst lasts loses tokens: then once more.
    for _ in 0..3 {
        let calls = together().await;
        let worst = worst_second(&calls);
        assert!(worst <= 500, "{worst} calls in one second");
        best = best.max(calls.len() as f64 / 5.0);
        if best >= 440.0 {
            return;
        }
    }
    // A machine that stalls every time still makes most of them.
    assert!(best >= 300.0, "{best} calls per second of 450 that there were");
}

#[tokio::test]
async fn an_answer_that_was_lost_is_given_again() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let store = RedisRefreshStore::open(options(proxy.url(), "again:"))
        .await
        .unwrap();

    proxy.drop_next_reply();
    let outcomes = store.request(vec![ask("a", High)]).await.unwrap();
    assert!(
        matches!(outcomes[0], RequestOutcome::Published { .. }),
        "{outcomes:?}"
    );
    assert_eq!(proxy.dropped_replies(), 1, "it was lost");
    let version = outcomes[0].to_send().unwrap();

    proxy.drop_next_reply();
    let released = store.release(vec![(record("a"), version)]).await.unwrap();
    assert_eq!((released, proxy.dropped_replies()), (vec![true], 2));
    assert_eq!(
        store.release(vec![(record("a"), version)]).await.unwrap(),
        [false],
        "once"
    );

    // A whole batch: each record is told to send exactly once.
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

async fn full_bucket(store: &RedisRefreshStore) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while store.budget(&target()).await.unwrap().tokens < 25 {
        assert!(Instant::now() < deadline, "the bucket fills");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn tokens_of_before_a_restart_are_not_handed_out_again() {
    let mut server = RedisServer::start(RedisOptions::durable()).unwrap();
    let store = RedisRefreshStore::open(options(server.url(), "restart:"))
        .await
        .unwrap();
    full_bucket(&store).await;
    let TakeOutcome::Taken { tokens, .. } = store.take(&target(), High, 20).await.unwrap() else {
        panic!("the bucket is full");
    };
    server.kill().unwrap();
    server.restart().unwrap();
    let after = store.take(&target(), High, 20).await.unwrap();
    let TakeOutcome::Limited { wait, .. } = after else {
        panic!("the server may have forgotten its last moments: {after:?}");
    };
    assert!(wait.0 > 900, "{wait}");
    assert_eq!(
        store.budget(&target()).await.unwrap().day_used,
        tokens,
        "the day goes on"
    );
}

#[tokio::test]
async fn a_budget_that_was_lost_begins_empty_and_its_day_goes_on_from_what_was_seen() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let store = RedisRefreshStore::open(options(server.url(), "lost:"))
        .await
        .unwrap();
    full_bucket(&store).await;
    let TakeOutcome::Taken { tokens, .. } = store.take(&target(), High, 20).await.unwrap() else {
        panic!("the bucket is full");
    };
    assert!(server.command(&["FLUSHALL"]).unwrap().is_ok());
    let after = store.take(&target(), High, 20).await.unwrap();
    assert!(matches!(after, TakeOutcome::Limited { .. }), "{after:?}");
    // Another process learns it from the server.
    let other = RedisRefreshStore::open(options(server.url(), "lost:"))
        .await
        .unwrap();
    assert_eq!(other.budget(&target()).await.unwrap().day_used, tokens);
}

#[tokio::test]
async fn keys_carry_the_tag_of_their_record_and_end_by_themselves() {
    let cluster = RedisCluster::shared();
    let mut options = options(String::new(), "tags:");
    options.urls = cluster.urls();
    let store = RedisRefreshStore::open(options).await.unwrap();
    let asks: Vec<_> = (0..200).map(|index| ask(&format!("{{{index}}}"), Low)).collect();
    store.request(asks).await.unwrap();
    let (mut keys, mut used) = (0, 0);
    for node in cluster.nodes() {
        let here = node.command(&["KEYS", "tags:upd:*"]).unwrap().texts();
        used += usize::from(!here.is_empty());
        for key in here {
            let left = node.command(&["PTTL", &key]).unwrap().int().unwrap();
            // Not sent after 10 s, and one minute more for safety.
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
async fn a_server_that_is_away_is_told_from_a_refusal() {
    let mut server = RedisServer::start(RedisOptions::default()).unwrap();
    let mut options = options(server.url(), "away:");
    options.clock = Some(Arc::new(ManualClock::at(Timestamp(1_706_000_000_000))));
    let store = RedisRefreshStore::open(options).await.unwrap();
    server.kill().unwrap();
    let failed = store.take(&target(), High, 1).await.unwrap_err();
    assert!(failed.is_retryable(), "{failed}");
    server.restart().unwrap();
    let outcome = store.request(vec![ask("a", High)]).await.unwrap();
    assert!(outcome[0].to_send().is_some(), "it works again by itself");
}
