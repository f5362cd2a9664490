//! Dead jobs: listed over the whole store, and purged one by one.

use tidegate_core::bulk::dead::MAX_PAGE;
use tidegate_core::bulk::views::{DeadFilter, Query, View};
use tidegate_core::bulk::{
    BatchCounts, BatchOptions, BatchStatus, DeathReason, Enqueued, JobState, NewJob, Refusal, Scope,
};
use tidegate_core::time::Millis;

use super::harness::*;
use crate::bulk::FoundJob;

const ALL: DeadFilter = DeadFilter {
    group: None,
    kind: None,
    reason: None,
};

const DAY: u64 = 86_400_000;

fn names(dead: &[FoundJob]) -> Vec<&str> {
    dead.iter().map(|dead| dead.details.id.as_str()).collect()
}

fn sorted(dead: &[FoundJob]) -> Vec<&str> {
    let mut names = names(dead);
    names.sort_unstable();
    names
}

/// Starts and fails `n` jobs.
async fn fail(q: &Harness, n: u32) {
    let jobs = q.take_all(n).await;
    q.settle_all(&jobs, failed("no such mailbox")).await;
}

/// A store with `n` dead jobs of group `A`.
async fn with_dead(backend: &dyn Backend, n: usize) -> Harness {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", n).await;
    fail(&q, n as u32).await;
    q
}

pub async fn dead_jobs_are_listed_with_where_they_belong(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(q.dead(&ALL, 10).await, []);
    let sent = NewJob {
        payload: "to whom".into(),
        ..job("letter")
    };
    q.enqueue_to("A", "spring", vec![sent]).await;
    q.enqueue_n("B", 2).await;
    let jobs = q.take_all(3).await;
    q.advance(5);
    for leased in jobs {
        let outcome = match leased.id.as_str() {
            "letter" => failed("no such mailbox"),
            _ => done(),
        };
        q.settle(&leased, outcome).await;
    }
    let [dead] = &q.dead(&ALL, 10).await[..] else {
        panic!("one is dead");
    };
    assert_eq!(
        (&dead.group, &dead.details.view.batch),
        (&group("A"), &batch("spring"))
    );
    let details = &dead.details;
    assert_eq!(
        (details.id.as_str(), &details.payload[..]),
        ("letter", &b"to whom"[..])
    );
    assert_eq!(details.error.as_deref(), Some("no such mailbox"));
    assert_eq!(details.result, None);
    assert_eq!(details.view.dead, Some(DeathReason::Failed));
    assert_eq!(details.view.finished_at, Some(START + Millis(5)));
    assert_eq!(
        *details,
        q.job("A", "letter").await,
        "as when it is asked for by name"
    );

    let query = Query::Dead {
        filter: ALL,
        after: None,
        max: 10,
    };
    let View::Dead(page) = q.view(query).await else {
        panic!("the dead are answered with the dead");
    };
    assert_eq!((page.items.len(), page.next), (1, None));
    let view = &page.items[0];
    assert_eq!((&view.group, &view.job), (&dead.group, &details.view));
}

pub async fn those_that_died_last_come_first(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for name in ["A", "B", "C"] {
        q.enqueue_n(name, 2).await;
    }
    let jobs = q.take_all(6).await;
    let by_name = |id: &str| jobs.iter().find(|job| job.id.as_str() == id).expect("leased");
    // Not in the order in which they came.
    let deaths = ["C-1", "A-0", "B-1", "B-0", "C-0", "A-1"];
    for id in deaths {
        q.settle(by_name(id), failed("no")).await;
        q.advance(1);
    }
    let mut expected = deaths;
    expected.reverse();
    for max in [1, 2, 4, 100] {
        assert_eq!(names(&q.dead(&ALL, max).await), expected, "in pages of {max}");
    }
    let of_group = DeadFilter {
        group: Some(group("B")),
        ..ALL
    };
    assert_eq!(names(&q.dead(&of_group, 1).await), ["B-0", "B-1"]);
}

pub async fn a_listing_stays_stable_while_jobs_die(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for name in ["A", "B"] {
        q.enqueue_n(name, 3).await;
    }
    let jobs = q.take_all(6).await;
    for job in &jobs[..4] {
        q.settle(job, failed("no")).await;
        q.advance(1);
    }
    let before = q.dead(&ALL, 100).await;
    let first = q.dead_page(&ALL, None, 2).await;
    assert_eq!(first.items, before[..2]);
    // They come before everything listed so far.
    q.settle_all(&jobs[4..], failed("no")).await;
    let second = q.dead_page(&ALL, first.next, 2).await;
    assert_eq!(second.items, before[2..]);
    assert_eq!(q.dead(&ALL, 3).await[2..], before);
}

pub async fn dead_jobs_come_in_pages(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for name in ["A", "B", "C", "D", "E"] {
        q.enqueue_n(name, 3).await;
    }
    fail(&q, 15).await;
    let all = q.dead(&ALL, 100).await;
    assert_eq!(all.len(), 15);
    for max in [0, 1, 4, 5, 14, 15] {
        assert_eq!(q.dead(&ALL, max).await, all, "in pages of {max}");
    }
    assert_eq!(q.dead_page(&ALL, None, 4).await.items, all[..4]);
    assert_eq!(q.dead_page(&ALL, None, 15).await.next, None, "there are no more");
}

pub async fn a_filter_chooses_by_group_type_and_reason(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for name in ["A", "B"] {
        q.enqueue_to(name, "mails", of_kind("mail", jobs(&format!("{name}-mail"), 2)))
            .await;
        q.enqueue_to(name, "pushes", of_kind("push", jobs(&format!("{name}-push"), 1)))
            .await;
        q.cancel(Scope::Batch(group(name), batch("pushes"))).await;
    }
    fail(&q, 4).await;
    let of_group = DeadFilter {
        group: Some(group("A")),
        ..ALL
    };
    let of_kind = DeadFilter {
        kind: Some(kind("push")),
        ..ALL
    };
    let of_reason = DeadFilter {
        reason: Some(DeathReason::Cancelled),
        ..ALL
    };
    for max in [1, 2, 100] {
        assert_eq!(
            sorted(&q.dead(&of_group, max).await),
            ["A-mail-0", "A-mail-1", "A-push-0"]
        );
        assert_eq!(sorted(&q.dead(&of_kind, max).await), ["A-push-0", "B-push-0"]);
        assert_eq!(q.dead(&of_reason, max).await, q.dead(&of_kind, max).await);
        let both = DeadFilter {
            kind: Some(kind("mail")),
            ..of_group.clone()
        };
        assert_eq!(names(&q.dead(&both, max).await), ["A-mail-1", "A-mail-0"]);
        let none = DeadFilter {
            reason: Some(DeathReason::Expired),
            ..of_group.clone()
        };
        assert_eq!(q.dead(&none, max).await, []);
    }
    let nobody = DeadFilter {
        group: Some(group("nobody")),
        ..ALL
    };
    assert_eq!(q.dead(&nobody, 10).await, []);
}

pub async fn a_page_may_be_short_but_never_the_end_too_early(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("rare", of_kind("rare", vec![job("needle")])).await;
    fail(&q, 1).await;
    for i in 0..11 {
        q.enqueue_to("A", "hay", jobs(&format!("hay-{i}"), 1_000)).await;
    }
    while q.cancel(Scope::Batch(group("A"), batch("hay"))).await.more {}
    assert_eq!(q.counts().await.dead, 11_001);
    let page = q.dead_page(&ALL, None, u32::MAX).await;
    assert_eq!(
        (page.items.len() as u32, page.next.is_some()),
        (MAX_PAGE, true),
        "a page has its limit"
    );
    let rare = DeadFilter {
        kind: Some(kind("rare")),
        ..ALL
    };
    assert!(
        q.dead_page(&rare, None, 5).await.next.is_some(),
        "a call looks at a bounded number of jobs"
    );
    assert_eq!(names(&q.dead(&rare, 5).await), ["needle"]);
}

pub async fn every_way_to_die_is_listed(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.worker_pool.max_retry_count = 0;
        c.limits.max_result_bytes = 1;
    })
    .await;
    let expiring = NewJob {
        expires_at: Some(START + Millis(10)),
        ..job("expired-early")
    };
    let late = NewJob {
        expires_at: Some(START + Millis(20)),
        ..job("expired-late")
    };
    q.enqueue("A", [jobs("ran", 4), vec![expiring, late]].concat())
        .await;
    let ran = q.take_all(4).await;
    q.settle(&ran[0], failed("no")).await;
    q.settle(&ran[1], retry()).await;
    q.settle(&ran[2], done()).await;
    q.advance(10);
    q.release_due().await;
    q.advance(10);
    assert!(q.take(1).await.is_empty(), "the picker ends what has expired");
    q.advance(DAY);
    q.expire_leases().await;
    q.enqueue_to("B", "b", jobs("cancelled", 1)).await;
    q.cancel(Scope::Group(group("B"))).await;

    let mut dead: Vec<(String, DeathReason)> = q
        .dead(&ALL, 3)
        .await
        .into_iter()
        .map(|dead| {
            assert_eq!(dead.details.view.state, JobState::Dead);
            let reason = dead.details.view.dead.expect("a dead job has a reason");
            (dead.details.id.to_string(), reason)
        })
        .collect();
    dead.sort();
    let expected = [
        ("cancelled-0", DeathReason::Cancelled),
        ("expired-early", DeathReason::Expired),
        ("expired-late", DeathReason::Expired),
        ("ran-0", DeathReason::Failed),
        ("ran-1", DeathReason::AttemptsUsedUp),
        ("ran-2", DeathReason::Failed),
        ("ran-3", DeathReason::AttemptsUsedUp),
    ];
    assert_eq!(dead, expected.map(|(id, reason)| (id.to_owned(), reason)));
}

pub async fn what_lives_again_or_is_dropped_is_listed_no_more(backend: &dyn Backend) {
    let q = with_dead(backend, 3).await;
    q.replay("A", "A-1").await.expect("it is dead");
    assert_eq!(names(&q.dead(&ALL, 10).await), ["A-2", "A-0"]);
    fail(&q, 1).await;
    assert_eq!(
        names(&q.dead(&ALL, 10).await),
        ["A-2", "A-1", "A-0"],
        "dead again"
    );
    q.replay("A", "A-2").await.expect("it is dead");
    q.run(1).await;
    assert_eq!(names(&q.dead(&ALL, 10).await), ["A-1", "A-0"]);
    q.advance(DAY + 1);
    q.drop_finished().await;
    assert_eq!(q.dead(&ALL, 10).await, []);

    let options = BatchOptions {
        keep_results: true,
        ..Default::default()
    };
    q.open_batch("A", "kept", options).await;
    q.enqueue_to("A", "kept", jobs("kept", 2)).await;
    fail(&q, 2).await;
    q.try_seal("A", Some("kept")).await.expect("it is open");
    q.aggregate_all().await;
    assert_eq!(names(&q.dead(&ALL, 10).await), ["kept-1", "kept-0"]);
    q.advance(8 * DAY);
    q.drop_finished().await;
    assert_eq!(q.dead(&ALL, 10).await, [], "they went with their batch");
}

pub async fn a_listing_goes_on_although_its_last_job_is_gone(backend: &dyn Backend) {
    let q = with_dead(backend, 6).await;
    let first = q.dead_page(&ALL, None, 2).await;
    assert_eq!(names(&first.items), ["A-5", "A-4"]);
    for id in ["A-4", "A-3"] {
        q.purge("A", id).await.expect("it is dead");
    }
    let second = q.dead_page(&ALL, first.next, 2).await;
    assert_eq!(names(&second.items), ["A-2", "A-1"]);
    q.replay("A", "A-0").await.expect("it is dead");
    let end = q.dead_page(&ALL, second.next, 2).await;
    assert_eq!((end.items, end.next), (vec![], None));
}

pub async fn purging_forgets_a_dead_job(backend: &dyn Backend) {
    let q = with_dead(backend, 2).await;
    assert_eq!(q.purge("A", "A-0").await, Ok(()));
    assert!(matches!(
        q.find_job("A", "A-0").await,
        Err(Refusal::UnknownJob { .. })
    ));
    assert_eq!(q.counts().await.dead, 1);
    assert_eq!(q.group("A").await.counts.dead, 1);
    assert_eq!(names(&q.dead(&ALL, 10).await), ["A-1"]);
    let again = q.purge("A", "A-0").await;
    assert!(matches!(again, Err(Refusal::UnknownJob { .. })), "{again:?}");
    let replayed = q.replay("A", "A-0").await;
    assert!(
        matches!(replayed, Err(Refusal::UnknownJob { .. })),
        "{replayed:?}"
    );
    let reused = q.enqueue("A", jobs("A", 2)).await.jobs;
    assert!(
        matches!(reused[0], Enqueued::Accepted(_)),
        "its id is free again: {reused:?}"
    );
    assert!(matches!(reused[1], Enqueued::Duplicate(_)), "{reused:?}");
    assert_eq!(ids(&q.run(10).await), ["A-0"]);
}

pub async fn a_purged_job_still_counts(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("A", 3)).await;
    fail(&q, 1).await;
    q.purge("A", "A-0").await.expect("it is dead");
    let counts = |success, failed| BatchCounts {
        total: 3,
        success,
        failed,
    };
    let view = q.batch("A", "a").await;
    assert_eq!(
        (view.counts, view.errors),
        (counts(0, 1), vec!["no such mailbox".to_owned()])
    );
    q.seal("A").await;
    q.run(1).await;
    fail(&q, 1).await;
    let claimed = q.claim(1_000).await.remove(0);
    assert_eq!(claimed.counts, counts(1, 2), "complete with all three");
    q.finish(&claimed, Ok("sum")).await.expect("the claim holds");
    q.purge("A", "A-2").await.expect("it is dead");
    let view = q.batch("A", "a").await;
    assert_eq!((view.counts, view.status), (counts(1, 2), BatchStatus::Completed));
    assert_eq!(q.results("A", "a", None, 10).await.items.len(), 1);
}

pub async fn only_dead_jobs_are_purged(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    assert_eq!(q.purge("A", "A-0").await, Err(Refusal::UnknownGroup(group("A"))));
    q.enqueue_n("A", 5).await;
    let unknown = q.purge("A", "A-9").await;
    assert!(matches!(unknown, Err(Refusal::UnknownJob { .. })), "{unknown:?}");
    let jobs = q.take_all(3).await;
    q.settle(&jobs[0], done()).await;
    q.settle(&jobs[1], throttled()).await;
    q.admit(1, 1).await;
    let states = [
        JobState::Completed,
        JobState::Delayed,
        JobState::Running,
        JobState::Ready,
        JobState::Waiting,
    ];
    for (i, state) in states.into_iter().enumerate() {
        let id = format!("A-{i}");
        assert_eq!(q.job("A", &id).await.view.state, state);
        let refused = q.purge("A", &id).await;
        assert_eq!(refused, Err(Refusal::NotDead(job_id(&id))), "{state:?}");
        assert!(q.find_job("A", &id).await.is_ok(), "nothing was changed");
    }
}

pub async fn a_job_that_is_to_be_aggregated_is_not_purged(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let options = BatchOptions {
        keep_results: true,
        ..Default::default()
    };
    q.open_batch("A", "a", options).await;
    q.enqueue_to("A", "a", jobs("A", 1)).await;
    fail(&q, 1).await;
    let kept = Err(Refusal::ResultsKept(batch("a")));
    assert_eq!(q.purge("A", "A-0").await, kept, "while jobs may come");
    q.seal("A").await;
    assert_eq!(q.purge("A", "A-0").await, kept, "until somebody folds it");
    let claimed = q.claim(1_000).await.remove(0);
    assert_eq!(q.purge("A", "A-0").await, kept, "while somebody folds it");
    assert_eq!(q.results("A", "a", None, 10).await.items.len(), 1);
    q.finish(&claimed, Ok("sum")).await.expect("the claim holds");
    assert_eq!(q.purge("A", "A-0").await, Ok(()), "the reducer has seen it");
    assert_eq!(q.results("A", "a", None, 10).await.items, []);
}

pub async fn purging_leaves_the_order_of_dropping_alone(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_jobs_max = 2).await;
    q.enqueue_n("A", 5).await;
    for _ in 0..4 {
        fail(&q, 1).await;
        q.advance(1);
    }
    for id in ["A-0", "A-2"] {
        q.purge("A", id).await.expect("it is dead");
    }
    assert_eq!(q.drop_finished().await.jobs, 0, "two are kept, and two may be");
    q.run(1).await;
    assert_eq!(q.drop_finished().await.jobs, 1);
    assert_eq!(names(&q.dead(&ALL, 10).await), ["A-3"], "the oldest went first");
    q.advance(DAY + 1);
    assert_eq!(q.drop_finished().await.jobs, 2);
}
