//! A store with one of everything.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::bulk::config::{BulkConfig, Hold, JobTypeConfig};
use tidegate_core::bulk::*;
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType, Owner, QueueId};
use tidegate_core::limits::quota::Limit;
use tidegate_core::time::{Millis, Timestamp};
use tidegate_store::bulk::{BulkStore, BulkStoreExt, LeasedJob};

pub(crate) const BEGIN: Timestamp = Timestamp(1_706_000_000_000);

/// Each type has its own queue, so that a lease gets the intended job.
const KINDS: [&str; 5] = ["run", "park", "cancel", "deny", "rest"];
pub(crate) const ODD: &str = "Größe {0}:*\n\u{0}'\"\\";

pub(crate) fn config() -> BulkConfig {
    let mut config = BulkConfig::default();
    config.backpressure.hold = Hold::Job;
    config.backpressure.global_rps = 40.0.into();
    for name in KINDS {
        let settings = JobTypeConfig {
            queue: Some(queue(name)),
            ..JobTypeConfig::default()
        };
        config.job_types.insert(JobType::new(name).unwrap(), settings);
    }
    config
}

pub(crate) fn queues() -> Vec<QueueId> {
    KINDS.into_iter().map(queue).collect()
}

pub(crate) fn queue(name: &str) -> QueueId {
    QueueId::new(format!("queue-{name}")).unwrap()
}

pub(crate) fn group(id: &str) -> GroupId {
    GroupId::new(id).unwrap()
}

pub(crate) fn batch(id: &str) -> BatchId {
    BatchId::new(id).unwrap()
}

pub(crate) fn job(id: &str, kind: &str) -> NewJob {
    NewJob {
        id: JobId::new(id).unwrap(),
        kind: JobType::new(kind).unwrap(),
        priority: Priority::Normal,
        payload: Bytes::from(format!("payload of {id}")),
        run_at: None,
        expires_at: None,
        cost: 1,
    }
}

pub(crate) async fn enqueue(store: &dyn BulkStore, of: &str, to: Option<&str>, jobs: Vec<NewJob>) -> BatchId {
    let params = EnqueueParams {
        group: group(of),
        batch: to.map(batch),
        base_priority: None,
        jobs,
    };
    let outcome = store.call(params).await.unwrap().unwrap();
    let accepted = |job: &Enqueued| matches!(job, Enqueued::Accepted(_));
    assert!(outcome.jobs.iter().all(accepted), "{outcome:?}");
    outcome.batch
}

async fn open(store: &dyn BulkStore, of: &str, id: &str, keep_results: bool) {
    let params = OpenBatchParams {
        group: group(of),
        batch: batch(id),
        base_priority: None,
        options: BatchOptions {
            failure_threshold_percent: 50,
            keep_results,
            callback: keep_results.then(|| ODD.to_owned()),
        },
    };
    store.call(params).await.unwrap().unwrap();
}

pub(crate) async fn seal(store: &dyn BulkStore, of: &str, id: &str) {
    let params = SealBatchParams {
        group: group(of),
        batch: Some(batch(id)),
    };
    store.call(params).await.unwrap().unwrap();
}

pub(crate) async fn lease(store: &dyn BulkStore, from: &QueueId, max: u32) -> Vec<LeasedJob> {
    let params = LeaseParams {
        queue: from.clone(),
        max,
        owner: Owner::new("worker").unwrap(),
    };
    store.lease(params).await.unwrap().jobs
}

pub(crate) async fn settle(store: &dyn BulkStore, lease: LeaseRef, outcome: JobOutcome) -> Settled {
    let answers = vec![Settlement {
        lease,
        outcome,
        cost: None,
    }];
    store.call(SettleParams { answers }).await.unwrap()[0]
}

pub(crate) fn done(result: impl Into<Bytes>) -> JobOutcome {
    JobOutcome::Completed {
        result: result.into(),
    }
}

fn failed(error: &str) -> JobOutcome {
    JobOutcome::Failed { error: error.into() }
}

/// Folds and decides; confirms if the caller says so.
async fn aggregate(store: &dyn BulkStore, summary: Result<Bytes, String>, confirm: bool) {
    let owner = Owner::new("aggregator").unwrap();
    let (max, claim_for) = (10, Millis(1_000));
    let claims = store
        .call(ClaimAggregationParams {
            owner,
            max,
            claim_for,
        })
        .await
        .unwrap();
    for claim in claims.into_iter().filter(|claim| claim.finished.is_none()) {
        let (group, batch) = (claim.group, claim.batch);
        let finish = FinishAggregationParams {
            group: group.clone(),
            batch: batch.clone(),
            claim: claim.claim,
            summary: summary.clone(),
        };
        store.call(finish).await.unwrap().unwrap();
        if confirm {
            let params = ConfirmCompletionParams { group, batch };
            store.call(params).await.unwrap().unwrap();
        }
    }
}

/// Leases the jobs of a queue one by one, and settles them by their names.
async fn work(store: &dyn BulkStore) {
    for leased in lease(store, &queue("run"), 40).await {
        let outcome = match leased.id.as_str() {
            "fine" | "keep-fine" => done("result"),
            "binary" => done(vec![0u8, 159, 146, 150]),
            "large" => done(vec![b'r'; 50_000]),
            "empty" => done(""),
            "dead" | "again" => failed("no such mailbox"),
            "odd" => failed(ODD),
            "retry" => JobOutcome::Retry {
                error: "try later".into(),
                after: Some(Millis(30_000)),
                overloaded: false,
            },
            "throttled" => JobOutcome::Throttled {
                retry_after: Some(Millis(45_000)),
                scope: ThrottleScope::Queue,
            },
            "returned" => JobOutcome::Released,
            "running" => continue,
            other => panic!("{other}"),
        };
        settle(store, leased.leased.lease, outcome).await;
    }
}

/// 13 s pass meanwhile.
pub(crate) async fn fill(store: &dyn BulkStore, clock: &Arc<ManualClock>) {
    let later = |ms: u64| Some(Timestamp(BEGIN.0 + ms));
    let many = |ids: &str| ids.split(' ').map(|id| job(id, "run")).collect::<Vec<_>>();

    // Two decided batches, one of them with its callback pending; one that waits for aggregation.
    open(store, "decided", "good", false).await;
    enqueue(store, "decided", Some("good"), many("fine binary")).await;
    seal(store, "decided", "good").await;
    work(store).await;
    aggregate(store, Ok(Bytes::from_static(b"two of two")), true).await;
    clock.advance(Millis(1_000));
    open(store, "decided", "bad", true).await;
    let mut jobs = many("large dead");
    jobs[0].payload = Bytes::from(vec![7u8; 100_000]);
    enqueue(store, "decided", Some("bad"), jobs).await;
    seal(store, "decided", "bad").await;
    work(store).await;
    aggregate(store, Err("the reducer gave up".into()), false).await;
    clock.advance(Millis(1_000));
    open(store, "decided", "complete", true).await;
    enqueue(store, "decided", Some("complete"), many("keep-fine odd")).await;
    seal(store, "decided", "complete").await;
    work(store).await;
    clock.advance(Millis(1_000));

    // Dropped jobs still count.
    enqueue(store, ODD, Some("a:b{c}"), many("fine dead")).await;
    work(store).await;
    clock.advance(Millis(1_000));
    let drop = DropFinishedParams {
        max: 10,
        older_than: Some(Millis(500)),
    };
    assert!(store.call(drop).await.unwrap().jobs > 0);

    // Every outcome of a run, in an open batch and a sealed one. Replays, also in decided ones.
    enqueue(
        store,
        ODD,
        Some("a:b{c}"),
        many("retry throttled returned odd empty"),
    )
    .await;
    let weight = ConfigureGroupParams {
        group: group("busy"),
        base_priority: Some(-1_000_000),
        limits: None,
    };
    store.call(weight).await.unwrap().unwrap();
    let expiring = NewJob {
        expires_at: later(5_500),
        run_at: later(5_200),
        ..job("expired", "run")
    };
    enqueue(store, "busy", Some("sealed"), vec![expiring]).await;
    enqueue(store, "busy", Some("sealed"), many("fine running retry again")).await;
    seal(store, "busy", "sealed").await;
    work(store).await;
    clock.advance(Millis(2_000));
    store.call(ReleaseDueParams { max: 100 }).await.unwrap();
    for (of, id) in [("decided", "dead"), ("busy", "again"), ("busy", "expired")] {
        let replay = ReplayParams {
            group: group(of),
            job: JobId::new(id).unwrap(),
        };
        store.call(replay).await.unwrap().unwrap();
    }

    // Cancelled: one runs, one has ended, the others wait for the next sweep.
    let cancelled: Vec<NewJob> = (0..6).map(|n| job(&format!("cancel-{n}"), "cancel")).collect();
    enqueue(store, "cancelled", Some("half"), cancelled).await;
    assert_eq!(lease(store, &queue("cancel"), 1).await.len(), 1);
    let scope = Scope::Batch(group("cancelled"), batch("half"));
    let outcome = store.call(CancelParams { scope, max: 2 }).await.unwrap().unwrap();
    assert!(outcome.more, "{outcome:?}");

    // Parked in a paused batch; a paused group; a group with limits, one with settings only.
    enqueue(
        store,
        "parked",
        Some("paused"),
        vec![job("p-1", "park"), job("p-2", "park")],
    )
    .await;
    let scope = Scope::Batch(group("parked"), batch("paused"));
    store.call(PauseParams { scope }).await.unwrap().unwrap();
    assert_eq!(lease(store, &queue("park"), 1).await.len(), 0);
    enqueue(store, "parked", Some("other"), vec![job("p-3", "park")]).await;
    enqueue(
        store,
        "stopped",
        None,
        vec![job("s-1", "rest"), job("s-2", "rest")],
    )
    .await;
    let scope = Scope::Group(group("stopped"));
    store.call(PauseParams { scope }).await.unwrap().unwrap();
    let both = Limit {
        rate: Some("190/min".parse().unwrap()),
        max_running: Some(2),
    };
    for (of, all) in [("limited", both), ("idle", Limit::max_running(9))] {
        let limits = Some(GroupLimits {
            all,
            queues: [(queue("rest"), both), (queue(ODD), Limit::rate(0.5))].into(),
        });
        let params = ConfigureGroupParams {
            group: group(of),
            base_priority: Some(1_500_000),
            limits,
        };
        store.call(params).await.unwrap().unwrap();
    }

    // Waiting at every priority, scheduled, expiring: soon, late, and after the end of the test.
    for (priority, id) in [
        (Priority::Low, "low"),
        (Priority::High, "high"),
        (Priority::Normal, "normal"),
    ] {
        enqueue(
            store,
            "limited",
            None,
            vec![NewJob {
                priority,
                ..job(id, "rest")
            }],
        )
        .await;
    }
    let run_at = later(60_000);
    enqueue(
        store,
        "limited",
        None,
        vec![NewJob {
            run_at,
            ..job("scheduled", "rest")
        }],
    )
    .await;
    for (id, expires_at) in [
        ("expires-soon", later(20_000)),
        ("expires-late", later(90_000_000)),
        ("expires-never", Some(Timestamp(u64::MAX))),
    ] {
        enqueue(
            store,
            "stopped",
            None,
            vec![NewJob {
                expires_at,
                ..job(id, "rest")
            }],
        )
        .await;
    }
    clock.advance(Millis(7_000));

    // Ready; denied by a spent window.
    let denied: Vec<NewJob> = (0..60).map(|n| job(&format!("d-{n}"), "deny")).collect();
    enqueue(store, "denied", None, denied).await;
    let admit = |max| AdmitParams {
        queue: queue("deny"),
        max,
        ready_cap: 1_000,
    };
    let mut denied = 0;
    while denied == 0 {
        let outcome = store.call(admit(15)).await.unwrap();
        assert!(outcome.admitted.len() + outcome.denied.len() > 0, "{outcome:?}");
        denied = outcome.denied.len();
    }
    // Rates set at run time; a window allows as many starts as before.
    let rates = ConfigureLimitsParams {
        global_rps: Set::To((40.1 + 0.2).into()),
        adaptive: Set::To(false),
        queues: vec![(
            QueueId::new(ODD).unwrap(),
            SetQueueLimits::rate(Set::To("15/min".parse().unwrap())),
        )],
        by: ODD.to_owned(),
        why: "to see that it moves".to_owned(),
    };
    store.call(rates).await.unwrap().unwrap();
    let counts = super::drain::stats(store).await.counts;
    let all = [
        counts.waiting,
        counts.ready,
        counts.running,
        counts.delayed,
        counts.completed,
        counts.dead,
    ];
    assert!(all.iter().all(|&jobs| jobs >= 2), "one of everything: {counts:?}");
}
