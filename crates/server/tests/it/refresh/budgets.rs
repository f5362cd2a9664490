//! Budgets through the port: pushes and refreshes share them, operators can release a hold, and separate services do not
//! interfere.

use refresh::{few_partitions, patient, text, upstream, upstream_with};
use serde_json::{Value, json};
use support::{Backend, Receiver, Running, Script, config};
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use tidegate_upstream::Answer;

use crate::support::{self, refresh};

on_both_stores! {
    an_operator_can_release_the_hold_of_a_provider
    pushes_and_refreshes_share_one_budget
    a_throttled_push_delays_refreshes
}

async fn an_operator_can_release_the_hold_of_a_provider(backend: Backend) {
    let upstream = upstream_with(|settings| {
        settings.answers.insert("anna".into(), Answer::Throttled);
        settings.retry_after_s = Some(999_999_999);
    });
    let running = Running::refreshing(backend, &upstream, "").await;
    running.record("anna").await;
    let path = "/v1/records/character/anna";
    running.until(path, |record| record["state"] == "RETRYING").await;
    let held = |overview: &Value| overview["budgets"][0]["seen"]["holdUntil"].is_string();
    running.until("/v1/refresh", held).await;
    let release = "/v1/refresh/budgets/api/release";
    let why = json!({ "why": "they repaired it" });
    let done = running.did(release, why.clone()).await;
    assert_eq!(done, json!({ "target": "api", "wasHeld": true }));
    running.until_fresh("bert").await;
    // The overview shows the last reading, and the service reads budgets every second.
    running.until("/v1/refresh", |overview| !held(overview)).await;
    let done = running.did(release, why.clone()).await;
    assert_eq!(done["wasHeld"], false, "{done}");
    let (status, refused) = running.post("/v1/refresh/budgets/apu/release", why).await;
    assert_eq!(
        (status, &refused["code"]),
        (404, &json!("unknown_target")),
        "{refused}"
    );
    let audit = running.ok("/v1/audit").await;
    let entries = audit["items"].as_array().unwrap().iter();
    let released: Vec<_> = entries
        .filter(|entry| entry["what"] == "budget.release")
        .collect();
    assert_eq!(released.len(), 2, "{audit}");
    assert_eq!(
        (&released[0]["on"], &released[0]["why"]),
        (&json!("api"), &json!("they repaired it"))
    );
    running.stop().await;
}

async fn pushes_and_refreshes_share_one_budget(backend: Backend) {
    // The upstream counts calls and refuses none, because a stall could bunch them.
    let upstream = upstream_with(|settings| settings.per_second = 1_000);
    let more = format!(
        "[targets.mail]\nurl = \"{}/character/pushed\"\ntypes = [\"MAIL\"]\nbudget = \"small\"\nconcurrency = 20\n\
         [budgets.small]\nhard_limit = 60\nrate = 50\nburst = 5\nlow_cap = 50\nlow_burst = 2\n\
         [sources.small]\ntarget = \"small\"\nurl = \"{}/character/{{key}}\"\nfields = [\"revision\"]\nprefetch = false\n\
         connect_timeout_ms = 60000\ntimeout_ms = 60000\n",
        upstream.url(),
        upstream.url()
    );
    let running = Running::refreshing(backend, &upstream, &more).await;
    running.enqueue("shop", "spring", "MAIL", 100).await;
    let names: Vec<Value> = (0..80)
        .map(|n| json!({ "source": "small", "key": n.to_string() }))
        .collect();
    running.did("/v1/records/read", json!({ "records": names })).await;
    running
        .until("/v1/groups/shop/batches/spring", |batch| {
            batch["status"] == "COMPLETED"
        })
        .await;
    for n in 0..80 {
        let path = format!("/v1/records/small/{n}");
        running
            .until(&path, |record| record["freshness"] == "FRESH")
            .await;
    }
    let report = upstream.report();
    assert_eq!((report.keys["pushed"], report.calls), (100, 180));
    // Stalled callers may add a burst, and the tokens that are valid at one moment.
    let most = report.most_allowed(60 + 5 + 3, 50);
    assert!(
        report.max_in_second <= most,
        "{} in one second, not {most}",
        report.max_in_second
    );
    running.stop().await;
}

async fn a_throttled_push_delays_refreshes(backend: Backend) {
    let throttled = Script::status(429);
    let overloaded = Script::status(503).header("retry-after", "60");
    for response in [throttled, overloaded] {
        let receiver = Receiver::start().await;
        // The hold of the first response may end before the test reads it; each further response sets another.
        for _ in 0..100 {
            receiver.then(response.clone());
        }
        let upstream = upstream();
        let more = format!(
            "[targets.mail]\nurl = \"{}\"\ntypes = [\"MAIL\"]\nbudget = \"api\"\n",
            receiver.url
        );
        let running = Running::refreshing(backend, &upstream, &more).await;
        running.enqueue("shop", "spring", "MAIL", 1).await;
        running
            .until("/v1/refresh", |overview| {
                overview["budgets"][0]["seen"]["holdUntil"].is_string()
            })
            .await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_without_sources_delay_pushes_and_lose_none() {
    let upstream = upstream_with(|settings| settings.per_second = 40);
    // Tokens are valid for a long time. On a busy machine most of the day's would otherwise expire unused.
    let text = format!(
        "[targets.mail]\nurl = \"{}/character/pushed\"\ntypes = [\"MAIL\"]\nbudget = \"small\"\nconcurrency = 20\n\
         [budgets.small]\nhard_limit = 40\nrate = 15\nburst = 2\nlow_cap = 15\nlow_burst = 2\nper_day = 40\nday_reserve = 10\n\
         day_block = 1\nvalidity_ms = 1000\n",
        upstream.url()
    );
    let running = Running::start(Backend::Embedded, &text).await;
    running.enqueue("shop", "spring", "MAIL", 50).await;
    // Jobs of normal priority take tokens of low priority, which leave 10 of the day's 40 calls to high. The remaining jobs
    // wait, and use no attempt. There may be fewer than 30 calls, because a slow machine may lose tokens.
    running
        .until("/v1/groups/shop/batches/spring", |batch| {
            batch["counts"]["success"].as_u64() >= Some(10)
        })
        .await;
    running
        .until("/v1/groups/shop", |group| {
            group["counts"]["delayed"].as_u64() >= Some(20)
        })
        .await;
    let report = upstream.report();
    assert_eq!(report.violations(), 0, "{report:?}");
    assert!((10..=30).contains(&report.calls), "{report:?}");
    assert_eq!(running.ok("/v1/dead-jobs").await["items"], json!([]));
    assert_eq!(running.get("/v1/refresh").await.0, 404);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_with_different_key_prefixes_on_one_redis_do_not_share_events() {
    let redis = RedisServer::start(RedisOptions::default()).unwrap();
    let upstreams = [upstream(), upstream()];
    let mut running = Vec::new();
    for (prefix, upstream) in ["one:", "two:"].into_iter().zip(&upstreams) {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = config(Backend::Redis, &folder, &text(upstream, ""));
        settings.redis.urls = vec![redis.url().into()];
        settings.redis.key_prefix = prefix.into();
        few_partitions(&mut settings);
        patient(&mut settings);
        running.push(Running::with(settings, folder).await);
    }
    // More keys than partitions, so that services that shared them would get some of each other's.
    for (name, running) in ["anna", "bert"].iter().zip(&running) {
        let keys = (0..20).map(|n| format!("{name}-{n}"));
        for key in keys.clone() {
            running.record(&key).await;
        }
        for key in keys {
            running.until_fresh(&key).await;
        }
    }
    for (name, upstream) in ["anna", "bert"].iter().zip(&upstreams) {
        let report = upstream.report();
        assert_eq!(report.keys.len(), 20, "{:?}", report.keys);
        assert!(
            report.keys.keys().all(|key| key.starts_with(name)),
            "{:?}",
            report.keys
        );
    }
    let mut others = redis.command(&["KEYS", "*"]).unwrap().texts();
    assert!(others.iter().any(|key| key.starts_with("one:log:")), "{others:?}");
    others.retain(|key| !key.starts_with("one:") && !key.starts_with("two:"));
    assert!(others.is_empty(), "{others:?}");
    for running in running {
        running.stop().await;
    }
}
