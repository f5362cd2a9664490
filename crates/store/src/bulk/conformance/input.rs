//! Which input the store accepts: duplicates, odd names, sizes, limits.

use tidegate_core::bulk::config::JobTypeConfig;
use tidegate_core::bulk::{EnqueueParams, Enqueued, JobRefusal, JobState, NewJob, Refusal};

use super::harness::*;

pub async fn a_second_enqueue_changes_nothing(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let with = |payload: &'static str| {
        vec![NewJob {
            payload: payload.into(),
            ..job("j1")
        }]
    };
    let first = q.enqueue("A", with("p1")).await;
    let Enqueued::Accepted(seq) = first.jobs[0] else {
        panic!("the first is accepted: {first:?}")
    };
    let leased = q.take_one().await;
    for payload in ["p2", "p3"] {
        let again = q.enqueue("A", with(payload)).await;
        assert_eq!(again.jobs, [Enqueued::Duplicate(Some(seq))]);
        assert_eq!(again.total_jobs, 1);
    }
    let details = q.job("A", "j1").await;
    assert_eq!(
        (details.view.state, &details.payload[..]),
        (JobState::Running, &b"p1"[..])
    );
    assert!(q.take(1).await.is_empty());
    q.settle(&leased, done()).await;
}

pub async fn duplicates_within_one_call(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let outcome = q.enqueue("A", vec![job("x"), job("y"), job("x")]).await;
    assert!(matches!(
        outcome.jobs[..],
        [Enqueued::Accepted(x), Enqueued::Accepted(_), Enqueued::Duplicate(Some(again))] if x == again
    ));
    assert_eq!(outcome.total_jobs, 2);
}

pub async fn a_job_belongs_to_the_batch_that_came_first(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "first", vec![job("x")]).await;
    let second = q.enqueue_to("A", "second", vec![job("x"), job("y")]).await;
    assert!(matches!(second.jobs[0], Enqueued::Duplicate(_)));
    assert_eq!(second.total_jobs, 1);
    assert_eq!(q.batch("A", "first").await.counts.total, 1);
}

pub async fn two_groups_may_use_the_same_job_id(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for name in ["A", "B"] {
        let own = NewJob {
            payload: format!("of {name}").into(),
            ..job("1")
        };
        let outcome = q.enqueue(name, vec![own]).await;
        assert!(matches!(outcome.jobs[0], Enqueued::Accepted(_)));
    }
    for leased in q.take_all(2).await {
        assert_eq!(leased.payload, format!("of {}", leased.leased.group));
    }
}

pub async fn thousands_in_one_call(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let outcome = q.enqueue("A", jobs("A", 5_000)).await;
    assert_eq!((outcome.jobs.len(), outcome.total_jobs), (5_000, 5_000));
    assert_eq!(q.counts().await.waiting, 5_000);
}

pub async fn a_call_has_its_limit(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.limits.max_enqueue_batch = 10).await;
    let refused = q.try_enqueue("A", None, jobs("A", 11)).await;
    assert_eq!(refused, Err(Refusal::TooManyJobs { len: 11, max: 10 }));
    assert_eq!(q.stats().await.counts.unfinished(), 0, "all or nothing");
    q.enqueue_n("A", 10).await;
}

pub async fn one_call_looks_at_a_bounded_number_of_jobs(backend: &dyn Backend) {
    use tidegate_core::bulk::{Scope, Stop};
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "paused", jobs("paused", 3_000)).await;
    q.enqueue_to("A", "open", jobs("open", 1)).await;
    q.pause(Scope::Batch(group("A"), batch("paused"))).await;
    let first = q.lease(1).await;
    assert_eq!(
        (first.jobs.len(), first.stop),
        (0, Stop::More),
        "three thousand are too many for one call"
    );
    for _ in 0..3 {
        if !q.take(1).await.is_empty() {
            return;
        }
    }
    panic!("the job behind them is reached in a few calls");
}

pub async fn odd_names_stay_apart(backend: &dyn Backend) {
    let odd = [
        "global", ":", "::", "{}", "{global}", "a\nb", "a\r\nb", "\0", "a:b", "é", "e\u{301}", "*", " ",
    ];
    let q = Harness::new(backend).await;
    for name in odd {
        for job_name in odd {
            let unique = NewJob {
                payload: format!("{name}|{job_name}").into(),
                ..job(job_name)
            };
            let outcome = q.enqueue_to(name, name, vec![unique]).await;
            assert!(
                matches!(outcome.jobs[0], Enqueued::Accepted(_)),
                "{name:?} / {job_name:?}"
            );
        }
    }
    let count = odd.len() * odd.len();
    for leased in q.take_all(count as u32).await {
        let expected = format!("{}|{}", leased.leased.group, leased.id);
        assert_eq!(leased.payload, expected);
        assert_eq!(leased.leased.batch.as_str(), leased.leased.group.as_str());
        q.settle(&leased, done()).await;
    }
    for name in odd {
        assert_eq!(q.batch(name, name).await.counts.success, odd.len() as u64);
        assert_eq!(q.job(name, name).await.view.state, JobState::Completed);
    }
}

pub async fn names_are_not_joined(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    // Joined by any one separator, some of these pairs would be the same key.
    for (name, id) in [
        ("a:b", "c"),
        ("a", "b:c"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("ab", "c"),
        ("a", "bc"),
    ] {
        let outcome = q.enqueue(name, vec![job(id)]).await;
        assert!(
            matches!(outcome.jobs[0], Enqueued::Accepted(_)),
            "{name:?} {id:?}"
        );
    }
    assert_eq!(q.take(10).await.len(), 6);
}

pub async fn a_full_store_refuses(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.limits.max_queued_jobs = 3).await;
    let outcome = q.enqueue("A", jobs("A", 5)).await;
    let full = Enqueued::Refused(JobRefusal::Full { max: 3 });
    assert_eq!(outcome.jobs[3..], [full.clone(), full]);
    assert_eq!(outcome.total_jobs, 3, "what was refused is not counted");
    let leased = q.take_one().await;
    assert!(
        matches!(q.enqueue("A", vec![job("x")]).await.jobs[0], Enqueued::Refused(_)),
        "a lease frees nothing"
    );
    q.settle(&leased, done()).await;
    assert!(matches!(
        q.enqueue("A", vec![job("x")]).await.jobs[0],
        Enqueued::Accepted(_)
    ));
}

pub async fn a_full_group_is_refused_and_others_are_not(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.limits.max_queued_jobs_per_group = 2).await;
    let outcome = q.enqueue("A", jobs("A", 3)).await;
    let full = Enqueued::Refused(JobRefusal::GroupFull { max: 2 });
    assert_eq!(outcome.jobs[2], full);
    assert_eq!(outcome.total_jobs, 2, "what was refused is not counted");
    assert!(matches!(
        q.enqueue("B", vec![job("x")]).await.jobs[0],
        Enqueued::Accepted(_)
    ));
    let leased = q.take_one().await;
    assert_eq!(
        q.enqueue("A", vec![job("more")]).await.jobs,
        [full],
        "a lease frees nothing"
    );
    q.settle(&leased, done()).await;
    assert!(matches!(
        q.enqueue("A", vec![job("more")]).await.jobs[0],
        Enqueued::Accepted(_)
    ));
}

pub async fn ids_come_back_as_they_were_given(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for id in ["job:001", "job-001", "001", "bulk-action:job:job:001"] {
        q.enqueue("A", vec![job(id)]).await;
    }
    assert_eq!(
        ids(&q.take(4).await),
        ["job:001", "job-001", "001", "bulk-action:job:job:001"]
    );
}

pub async fn unknown_types_are_refused_when_configured(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.limits.known_job_types_only = true;
        c.job_types.insert(kind("known"), JobTypeConfig::default());
    })
    .await;
    let mixed = vec![
        NewJob {
            kind: kind("known"),
            ..job("a")
        },
        NewJob {
            kind: kind("typo"),
            ..job("b")
        },
    ];
    let outcome = q.enqueue("A", mixed).await;
    assert!(matches!(outcome.jobs[0], Enqueued::Accepted(_)));
    assert_eq!(
        outcome.jobs[1],
        Enqueued::Refused(JobRefusal::UnknownType(kind("typo")))
    );
    assert_eq!(outcome.total_jobs, 1);
}

pub async fn a_payload_at_the_limit_and_one_over(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.limits.max_payload_bytes = 1_000).await;
    let of = |id: &str, len: usize| NewJob {
        payload: vec![b'x'; len].into(),
        ..job(id)
    };
    let outcome = q
        .enqueue("A", vec![of("empty", 0), of("full", 1_000), of("over", 1_001)])
        .await;
    assert!(matches!(
        outcome.jobs[..2],
        [Enqueued::Accepted(_), Enqueued::Accepted(_)]
    ));
    let refusal = JobRefusal::PayloadTooLarge {
        len: 1_001,
        max: 1_000,
    };
    assert_eq!(outcome.jobs[2], Enqueued::Refused(refusal));
    let lengths: Vec<usize> = q.take_all(2).await.iter().map(|job| job.payload.len()).collect();
    assert_eq!(lengths, [0, 1_000]);
    assert!(q.find_job("A", "over").await.is_err());
}

pub async fn a_refused_job_may_be_sent_again(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.limits.max_payload_bytes = 5).await;
    let of = |len: usize| {
        vec![NewJob {
            payload: vec![b'x'; len].into(),
            ..job("x")
        }]
    };
    assert!(matches!(
        q.enqueue("A", of(6)).await.jobs[0],
        Enqueued::Refused(_)
    ));
    assert!(matches!(
        q.enqueue("A", of(5)).await.jobs[0],
        Enqueued::Accepted(_)
    ));
}

pub async fn a_base_priority_out_of_range_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for base_priority in [6_000_001, -6_000_001, i32::MIN, i32::MAX] {
        let params = EnqueueParams {
            group: group("A"),
            batch: None,
            base_priority: Some(base_priority),
            jobs: jobs("A", 1),
        };
        assert_eq!(q.call(params).await, Err(Refusal::BasePriority(base_priority)));
    }
    assert_eq!(
        q.stats().await.groups_in_memory,
        0,
        "a refused call creates nothing"
    );
}

pub async fn the_first_call_sets_the_base_priority(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let params = EnqueueParams {
        group: group("A"),
        batch: None,
        base_priority: Some(-500_000),
        jobs: jobs("A", 1),
    };
    q.call(params).await.expect("the call is valid");
    assert_eq!(q.group("A").await.base_priority, -500_000);
}

pub async fn an_empty_call_is_fine(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let outcome = q.enqueue("A", Vec::new()).await;
    assert_eq!((outcome.jobs.len(), outcome.total_jobs), (0, 0));
    assert!(q.take(1).await.is_empty());
}

pub async fn unknown_things_are_refused_by_name(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(q.find_job("A", "x").await, Err(Refusal::UnknownGroup(group("A"))));
    q.enqueue_n("A", 1).await;
    let unknown = Refusal::UnknownJob {
        group: group("A"),
        job: job_id("x"),
    };
    assert_eq!(q.find_job("A", "x").await, Err(unknown));
}
