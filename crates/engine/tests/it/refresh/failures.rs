//! Failures of upstreams, and invalid events.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::config::RefreshConfig;
use tidegate_core::refresh::dead_letter::{FailureReason, Original};
use tidegate_core::refresh::freshness::Freshness;
use tidegate_core::refresh::status::UpdateState;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::refresh::{DeadLetterQuery, RefreshService, ReplayOutcome};
use tidegate_log::{Record, Topic};
use tidegate_snapshots::StatusState;
use tidegate_source::{FetchOutcome, PermanentCode, TransientCode};

use super::world::{
    ASK_WAIT, Scripted, World, fetched, parked, publish_as, record, reference, target, until, until_fresh,
    wide_budget,
};

fn all() -> DeadLetterQuery {
    DeadLetterQuery {
        max: 100,
        ..DeadLetterQuery::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_record_is_not_found_once() {
    let world = World::new().await;
    let fetcher = Scripted::new(|_, _| FetchOutcome::Absent {
        code: "404".into(),
        message: "no such character".into(),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until("it is known to be absent", || async {
        handle.read(&record("x"), None).await.unwrap().freshness == Freshness::NotFound
    })
    .await;
    until("the event is done", || async { world.waiting().await == 0 }).await;
    for _ in 0..200 {
        let view = handle.peek(&record("x")).await.unwrap();
        assert_eq!(view.freshness, Freshness::NotFound);
        let view = handle.read(&record("x"), None).await.unwrap();
        assert!(!view.update_queued());
        assert_eq!(view.state, UpdateState::Failed);
    }
    let asked = handle
        .request_refresh(&record("x"), None, ASK_WAIT)
        .await
        .unwrap();
    assert!(!asked.is_queued(), "{asked:?}");
    assert_eq!((fetcher.calls("x"), world.dead().await), (1, 1));
    let counters = handle.counters();
    assert_eq!((counters.dead_letters, counters.absent), (1, 1));
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn made_up_keys_filled_the_table() {
    let mut config = RefreshConfig::default();
    config.status.failed_base_ms = Millis(1);
    config.status.failed_max_ms = Millis(1);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::new(|_, _| FetchOutcome::Absent {
        code: "404".into(),
        message: "no such character".into(),
    });
    let mut options = world.options(fetcher.clone());
    options.watch.census_every_ms = Millis(50);
    let service = RefreshService::start(options).await.unwrap();
    let handle = service.handle();
    let made_up: Vec<_> = (0..20).map(|n| record(&format!("k{n}"))).collect();
    handle.read_many(&made_up).await.unwrap();
    until("all were dead-lettered", || async {
        world.dead().await == 20 && world.waiting().await == 0
    })
    .await;
    for record in &made_up {
        until("what failed is forgotten", || async {
            world.row(record.key.as_str()).await.status.is_none()
        })
        .await;
    }
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_attempt_of_a_storm_costs_a_token() {
    let world = World::new().await;
    let fetcher = Scripted::new(|_, _| FetchOutcome::Transient {
        code: TransientCode::Api5xx,
        message: "500".into(),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    let records: Vec<_> = (0..20).map(|n| record(&format!("k{n}"))).collect();
    handle.read_many(&records).await.unwrap();
    until("all were dead-lettered", || async {
        world.dead().await == 20 && world.waiting().await == 0
    })
    .await;
    assert_eq!(fetcher.all_calls(), 80, "one attempt and three retries each");
    // A caller may use its token a moment before the counters include it, so stop the service first.
    service.shutdown().await.unwrap();
    let counters = handle.counters();
    assert_eq!(counters.attempts.high, 80);
    assert_eq!(counters.failures[&FailureReason::Api5xx], 20);
    assert_eq!(counters.dead_letters_by_reason[&FailureReason::Api5xx], 20);
    assert_eq!(counters.dead_letters, 20);
    assert!((80..=80 + counters.tokens_late).contains(&counters.tokens_acquired.high));
    assert!(world.store.taken.load(Ordering::SeqCst) >= 80);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_put_aside_and_the_partition_goes_on() {
    let world = World::new().await;
    let service = world.start(Scripted::constant()).await;
    let handle = service.handle();
    let event = |version: u64, source: &str| {
        format!(
            r#"{{"schemaVersion":"1.1","eventId":"e{version}","source":"{source}","key":"a","priority":"HIGH",
            "reason":"STALE","requestedAt":"2026-01-01T00:00:00Z","correlationId":"c","version":{version}}}"#
        )
    };
    let poison = [
        b"\xff\x00 no event".to_vec(),
        event(1, "nowhere").into_bytes(),
        event((1 << 53) - 1, "characters").into_bytes(),
    ];
    let raw = |value: Vec<u8>| Record {
        topic: Topic::High,
        key: Bytes::from_static(b"10:characters/a"),
        value: Bytes::from(value),
    };
    for answer in world.log.append(poison.into_iter().map(raw).collect()).await {
        answer.unwrap();
    }
    until_fresh(&handle, "a").await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    let dead_letters = handle.dead_letters().list(all()).await.unwrap().dead_letters;
    let mut reasons: Vec<_> = dead_letters
        .iter()
        .map(|view| view.dead_letter.as_ref().unwrap().failure_reason)
        .collect();
    reasons.sort();
    assert_eq!(
        reasons,
        [
            FailureReason::ParseError,
            FailureReason::ParseError,
            FailureReason::UnknownSource
        ]
    );
    let raw = dead_letters.iter().any(|view| {
        matches!(&view.dead_letter.as_ref().unwrap().original, Original::Raw(bytes) if bytes.starts_with(b"\xff\x00"))
    });
    assert!(raw, "the bytes are kept as they were");
    let counters = handle.counters();
    assert_eq!(counters.undecodable, 2);
    for counts in [&counters.failures, &counters.dead_letters_by_reason] {
        assert_eq!(counts[&FailureReason::ParseError], 2);
        assert_eq!(counts[&FailureReason::UnknownSource], 1);
    }
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_event_that_cannot_be_read_was_cut() {
    let world = World::new().await;
    let service = world.start(Scripted::constant()).await;
    let handle = service.handle();
    // As long as the log allows for key and value together.
    let key = Bytes::from(vec![b'k'; 2_000]);
    let value: Bytes = (0..1_098_000u32).map(|number| (number % 251) as u8).collect();
    let raw = Record {
        topic: Topic::High,
        key: key.clone(),
        value: value.clone(),
    };
    for answer in world.log.append(vec![raw]).await {
        answer.unwrap();
    }
    until_fresh(&handle, "a").await;
    until("all are done", || async {
        world.waiting().await == 0 && world.dead().await == 1
    })
    .await;
    let dead_letters = handle.dead_letters().list(all()).await.unwrap().dead_letters;
    let kept = &dead_letters[0].dead_letter.as_ref().unwrap().original;
    assert!(*kept == Original::Raw(value), "not all of it was kept");
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetcher_that_panics_harms_only_its_record() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, _| match key {
        "odd" => panic!("an odd answer"),
        key => fetched(key),
    });
    let service = world.start(fetcher).await;
    let handle = service.handle();
    let mut follower = handle.follow(record("odd"), None).unwrap();
    let mut last = None;
    while let Some(view) = follower.next().await {
        last = Some(view.unwrap().state);
    }
    assert_eq!(
        last,
        Some(UpdateState::Failed),
        "followers see that it was dead-lettered"
    );
    until_fresh(&handle, "a").await;
    until("it was dead-lettered", || async {
        world.dead().await == 1 && world.waiting().await == 0
    })
    .await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_retry_after_parks_the_record_and_it_comes_back() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match before {
        // Longer than it takes to find parked records, even if the machine stalls.
        0 => FetchOutcome::Throttled {
            retry_after: Some(Millis(20_000)),
        },
        _ => fetched(key),
    });
    let mut options = world.options(fetcher.clone());
    options.work.park_after_ms = Millis(500);
    let service = RefreshService::start(options).await.unwrap();
    let handle = service.handle();
    handle.read(&record("a"), None).await.unwrap();
    until("it is parked", || async {
        handle.counters().parked == 1 && world.waiting().await == 0
    })
    .await;
    let view = handle.peek(&record("a")).await.unwrap();
    assert_eq!((view.state, view.update_queued()), (UpdateState::Retrying, true));
    assert!(view.estimated_wait.is_some());
    until_fresh(&handle, "a").await;
    assert_eq!(fetcher.calls("a"), 2);
    assert_eq!(world.dead().await, 0);
    until("its status is gone", || async {
        handle.peek(&record("a")).await.unwrap().status.is_none()
    })
    .await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_retry_after_is_waited_for() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match before {
        0 => FetchOutcome::Throttled {
            retry_after: Some(Millis(300)),
        },
        _ => fetched(key),
    });
    let service = world.start(fetcher.clone()).await;
    until_fresh(&service.handle(), "a").await;
    let counters = service.handle().counters();
    assert_eq!(
        (counters.throttled, counters.parked, fetcher.calls("a")),
        (1, 0, 2)
    );
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_is_replayed_once_with_a_version_of_its_own() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match before {
        0 => FetchOutcome::Permanent {
            code: PermanentCode::ParseError,
            message: "an HTML page".into(),
        },
        _ => fetched(key),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    handle.read(&record("a"), None).await.unwrap();
    until("it was dead-lettered", || async {
        world.dead().await == 1 && world.waiting().await == 0
    })
    .await;
    let dead_letters = handle.dead_letters();
    let found = dead_letters.list(all()).await.unwrap();
    assert_eq!((found.dead_letters.len(), found.next), (1, None));
    let position = found.dead_letters[0].position;
    assert_eq!(
        dead_letters.inspect(position).await.unwrap().as_ref(),
        Some(&found.dead_letters[0])
    );
    let replayed = dead_letters.replay(position, "an operator").await.unwrap();
    let ReplayOutcome::Replayed(outcome) = replayed else {
        panic!("{replayed:?}")
    };
    let mut follower = handle.follow(record("a"), outcome.version()).unwrap();
    let mut last = None;
    while let Some(view) = follower.next().await {
        last = Some(view.unwrap().freshness);
    }
    assert_eq!(last, Some(Freshness::Fresh));
    assert_eq!(fetcher.calls("a"), 2);
    assert!(dead_letters.list(all()).await.unwrap().dead_letters.is_empty());
    let again = dead_letters.replay(position, "another").await.unwrap();
    assert!(matches!(again, ReplayOutcome::AlreadyHandled(mark) if mark.by == "an operator"));
    let mut gone = position;
    gone.offset += 1;
    assert_eq!(
        dead_letters.replay(gone, "another").await.unwrap(),
        ReplayOutcome::NotFound
    );
    assert_eq!(dead_letters.purge(&[position], "another").await.unwrap(), 0);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_row_that_does_not_fit_does_not_hold_up_the_others() {
    let world = World::new().await;
    *world.snapshots.bad_key.lock().unwrap() = Some("bad".into());
    let service = world.start(Scripted::constant()).await;
    let handle = service.handle();
    let mut records: Vec<_> = (0..30).map(|n| record(&format!("k{n}"))).collect();
    records.insert(5, record("bad"));
    handle.read_many(&records).await.unwrap();
    let later = std::sync::atomic::AtomicU64::new(0);
    // Only other rows that are written prove the row bad, so write some.
    until("all are done", || async {
        let key = format!("later{}", later.fetch_add(1, Ordering::SeqCst));
        handle.read(&record(&key), None).await.unwrap();
        world.dead().await == 1 && world.checked_at("k29").await.is_some()
    })
    .await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    for record in records.iter().filter(|record| record.key.as_str() != "bad") {
        assert!(world.checked_at(record.key.as_str()).await.is_some(), "{record}");
    }
    assert_eq!(world.dead().await, 1);
    let view = handle.peek(&record("bad")).await.unwrap();
    assert_eq!(view.state, UpdateState::Failed);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_could_not_be_put_aside_was_not_lost() {
    let world = World::new().await;
    *world.snapshots.bad_key.lock().unwrap() = Some("bad".into());
    let fetcher = Scripted::new(|key, before| match before {
        0 if key == "bad" => FetchOutcome::Throttled {
            retry_after: Some(Millis(999_999_999_000)),
        },
        _ => fetched(key),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    handle.read(&record("bad"), None).await.unwrap();
    let later = std::sync::atomic::AtomicU64::new(0);
    // Only other rows that are parked prove the row bad, so park some.
    until("it was dead-lettered", || async {
        let key = format!("later{}", later.fetch_add(1, Ordering::SeqCst));
        handle.read(&record(&key), None).await.unwrap();
        world.dead().await == 1
    })
    .await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    assert!(handle.counters().parked > 0, "others were put aside");
    assert_eq!(fetcher.calls("bad"), 1);
    let dead_letters = handle.dead_letters().list(all()).await.unwrap().dead_letters;
    assert_eq!(dead_letters.len(), 1, "{dead_letters:?}");
    let dead_letter = dead_letters[0].dead_letter.as_ref().unwrap();
    let Original::Event(event) = &dead_letter.original else {
        panic!("{dead_letter:?}")
    };
    assert_eq!(event.record(), record("bad"));
    assert!(
        dead_letter.error_message.contains("a row that does not fit"),
        "{dead_letter:?}"
    );
    let view = handle.peek(&record("bad")).await.unwrap();
    assert_eq!(view.state, UpdateState::Failed);
    service.shutdown().await.unwrap();
}

/// One absurd Retry-After holds the target for as long as its budget allows, and an operator can lift the hold.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_of_decades_parks_nothing_for_decades() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match before {
        0 if key == "first" => FetchOutcome::Throttled {
            retry_after: Some(Millis(999_999_999_000)),
        },
        _ => fetched(key),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    handle.read(&record("first"), None).await.unwrap();
    until("it is put aside", || async { handle.counters().parked == 1 }).await;
    let hour = Millis(3_600_000);
    let latest = world.store.inner().now().await.unwrap() + hour;
    let held = handle.budget(&target()).await.unwrap().hold_until;
    assert!(held <= latest, "held until {held:?}");
    let row = world.row("first").await;
    let due = row.status.unwrap().next_retry_at.unwrap();
    assert!(due <= latest, "tried again at {due:?}");
    assert!(world.store.inner().lift(&target()).await.unwrap());
    // Records requested from here on are fetched.
    until_fresh(&handle, "second").await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_lettered_record_is_not_retried_by_itself() {
    let mut config = RefreshConfig::default();
    config.status.retry_base_ms = Millis(1);
    config.status.retry_max_ms = Millis(1);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::new(|_, _| FetchOutcome::Transient {
        code: TransientCode::Api5xx,
        message: "500".into(),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    handle.read(&record("x"), None).await.unwrap();
    until("it was dead-lettered", || async {
        world.dead().await == 1 && world.waiting().await == 0
    })
    .await;
    let status = world.row("x").await.status.unwrap();
    assert_eq!(status.state, StatusState::Failed, "not waiting for a retry");
    assert_eq!(status.event, None);
    // The service polls for due retries all the time. It finds this one, and not the failed one.
    let now = world.store.inner().now().await.unwrap();
    let due = parked(reference("y"), now);
    world.snapshots.inner().write(&[due]).await.unwrap();
    until("the parked one was tried", || async { fetcher.calls("y") > 0 }).await;
    assert_eq!(fetcher.calls("x"), 4, "one attempt and three retries");
    // A reader does request it. A reader whose time lags behind the store's seems to have read before the failure.
    until("it was tried for the reader", || async {
        handle.read(&record("x"), None).await.unwrap();
        fetcher.calls("x") > 4
    })
    .await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_whose_clock_is_ahead_does_not_keep_its_records_hot() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, _| match fetched(key) {
        FetchOutcome::Fetched(mut projected) => {
            projected.activity = Some(Timestamp(9_000_000_000_000));
            FetchOutcome::Fetched(projected)
        }
        other => other,
    });
    let service = world.start(fetcher).await;
    until_fresh(&service.handle(), "x").await;
    until("its activity is noted", || async {
        world.row("x").await.active_at.is_some()
    })
    .await;
    service.shutdown().await.unwrap();
    let active = world.row("x").await.active_at.unwrap();
    let now = world.store.inner().now().await.unwrap();
    assert!(active <= now, "active at {active:?}, and it is {now:?}");
}

/// The dead letter is in the log before the failure settles. A replay in between must not report a retry.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_that_was_replayed_too_soon_was_dead_lettered_untried() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match before {
        0 => FetchOutcome::Permanent {
            code: PermanentCode::ParseError,
            message: "an HTML page".into(),
        },
        _ => fetched(key),
    });
    world.snapshots.holds_failures.store(true, Ordering::SeqCst);
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    handle.read(&record("a"), None).await.unwrap();
    until("its dead letter is written", || async { world.dead().await == 1 }).await;
    let dead_letters = handle.dead_letters();
    let position = dead_letters.list(all()).await.unwrap().dead_letters[0].position;
    let too_soon = dead_letters.replay(position, "an operator").await.unwrap();
    assert!(matches!(too_soon, ReplayOutcome::NotQueued(_)), "{too_soon:?}");
    assert_eq!(
        dead_letters.list(all()).await.unwrap().dead_letters.len(),
        1,
        "it stays"
    );
    assert_eq!(handle.counters().replayed, 0);
    world.snapshots.holds_failures.store(false, Ordering::SeqCst);
    until("the failure is settled", || async { world.waiting().await == 0 }).await;
    let replayed = dead_letters.replay(position, "an operator").await.unwrap();
    assert!(matches!(replayed, ReplayOutcome::Replayed(_)), "{replayed:?}");
    until("it was tried again", || async { fetcher.calls("a") == 2 }).await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstreams_name_of_a_record_was_lost_with_a_replay_or_a_retry() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match (key, before) {
        ("dead", 0) => FetchOutcome::Permanent {
            code: PermanentCode::ParseError,
            message: "an HTML page".into(),
        },
        ("parked", 0) => FetchOutcome::Throttled {
            retry_after: Some(Millis(1_000)),
        },
        _ => fetched(key),
    });
    let mut options = world.options(fetcher.clone());
    options.work.park_after_ms = Millis(100);
    let service = RefreshService::start(options).await.unwrap();
    let handle = service.handle();
    let dead_letters = handle.dead_letters();
    publish_as(&world, "dead", Priority::High, Some("d-7")).await;
    until("it was dead-lettered", || async {
        world.dead().await == 1 && world.waiting().await == 0
    })
    .await;
    let position = dead_letters.list(all()).await.unwrap().dead_letters[0].position;
    dead_letters.replay(position, "an operator").await.unwrap();
    until("it was tried again", || async { fetcher.calls("dead") == 2 }).await;
    publish_as(&world, "parked", Priority::High, Some("p-7")).await;
    until("it came back", || async { fetcher.calls("parked") == 2 }).await;
    let named: Vec<_> = fetcher.ids.lock().unwrap().iter().flatten().cloned().collect();
    assert_eq!(named, ["d-7", "d-7", "p-7", "p-7"]);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_has_the_error_of_every_attempt() {
    let world = World::new().await;
    let fetcher = Scripted::new(|_, before| FetchOutcome::Transient {
        code: TransientCode::Api5xx,
        message: format!("the answer {before} was 500"),
    });
    let service = world.start(fetcher).await;
    let handle = service.handle();
    handle.read(&record("a"), None).await.unwrap();
    until("it was dead-lettered", || async { world.dead().await == 1 }).await;
    let found = handle.dead_letters().list(all()).await.unwrap().dead_letters;
    let dead_letter = found[0].dead_letter.as_ref().unwrap();
    assert_eq!(dead_letter.error_message, "the answer 3 was 500");
    let earlier = [2, 1, 0].map(|before| format!("API_5XX: the answer {before} was 500"));
    assert_eq!(
        (&dead_letter.causes[..], dead_letter.retry_count),
        (&earlier[..], 3)
    );
    service.shutdown().await.unwrap();
}
