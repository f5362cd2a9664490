//! What the store deletes, when, and what it keeps.

use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{BatchOptions, DropFinishedParams, Enqueued, Refusal};
use tidegate_core::time::Millis;

use super::harness::*;

const DAY: u64 = 86_400_000;

pub async fn finished_jobs_are_kept_by_age(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 2).await;
    q.run(1).await;
    q.advance(DAY);
    q.run(1).await;
    assert_eq!(q.drop_finished().await.jobs, 0, "exactly as old as allowed");
    q.advance(1);
    assert_eq!(q.drop_finished().await.jobs, 1);
    assert!(matches!(
        q.find_job("A", "A-0").await,
        Err(Refusal::UnknownJob { .. })
    ));
    assert!(q.find_job("A", "A-1").await.is_ok());
}

pub async fn finished_jobs_are_kept_by_count(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_jobs_max = 3).await;
    q.enqueue_n("A", 5).await;
    q.run(5).await;
    assert_eq!(q.drop_finished().await.jobs, 2);
    assert!(q.find_job("A", "A-1").await.is_err(), "the oldest go first");
    assert!(q.find_job("A", "A-2").await.is_ok());
}

pub async fn an_operator_may_drop_earlier(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.run(3).await;
    q.advance(1_000);
    let params = DropFinishedParams {
        max: 100,
        older_than: Some(Millis(999)),
    };
    assert_eq!(q.call(params).await.jobs, 3);
}

pub async fn dropping_goes_in_bounded_steps(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 5).await;
    q.run(5).await;
    q.advance(DAY + 1);
    let step = DropFinishedParams {
        max: 2,
        older_than: None,
    };
    let outcome = q.call(step.clone()).await;
    assert_eq!((outcome.jobs, outcome.more), (2, true));
    assert_eq!(q.call(step.clone()).await.jobs, 2);
    let last = q.call(step).await;
    assert_eq!((last.jobs, last.more), (1, false));
}

pub async fn unfinished_jobs_are_never_dropped(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.retention.finished_jobs_max = 0;
        c.retention.finished_batches_max = 0;
    })
    .await;
    q.enqueue_n("A", 4).await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], throttled_for(DAY)).await;
    q.admit(1, 1).await;
    q.advance(30 * DAY);
    let outcome = q.drop_finished().await;
    assert_eq!((outcome.jobs, outcome.batches, outcome.groups), (0, 0, 0));
    assert_eq!(q.counts().await.unfinished(), 4);
}

pub async fn a_dropped_job_id_is_free_again(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.run(1).await;
    assert!(matches!(
        q.enqueue("A", jobs("A", 1)).await.jobs[0],
        Enqueued::Duplicate(_)
    ));
    q.advance(DAY + 1);
    q.drop_finished().await;
    assert!(matches!(
        q.enqueue("A", jobs("A", 1)).await.jobs[0],
        Enqueued::Accepted(_)
    ));
}

pub async fn ids_are_known_until_the_batch_is_decided(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_jobs_max = 10).await;
    q.enqueue_to("A", "a", jobs("A", 100)).await;
    q.enqueue_to("A", "b", jobs("B", 3)).await;
    q.run(100).await;
    assert_eq!(q.drop_finished().await.jobs, 90);
    q.advance(2 * DAY);
    assert_eq!(q.drop_finished().await.jobs, 10, "by age, too");
    let known = |jobs: &[Enqueued]| {
        let duplicates = jobs.iter().filter(|one| matches!(one, Enqueued::Duplicate(_)));
        duplicates.count()
    };
    for batch in ["a", "b"] {
        let again = q.enqueue_to("A", batch, jobs("A", 100)).await.jobs;
        assert_eq!(known(&again), 100, "sent to {batch}");
    }
    assert_eq!(q.batch("A", "a").await.counts.total, 100);
    q.try_seal("A", Some("a")).await.expect("it is open");
    let again = q.try_enqueue("A", Some("a"), jobs("A", 100)).await;
    let again = again.expect("a client that lost the response");
    assert_eq!((known(&again.jobs), again.total_jobs), (100, 100));
    let more = q.try_enqueue("A", Some("a"), jobs("A", 101)).await;
    assert_eq!(more, Err(Refusal::Sealed(batch("a"))));

    q.aggregate_all().await;
    let again = q.enqueue_to("A", "b", jobs("A", 100)).await.jobs;
    assert_eq!(known(&again), 0, "the ordinary window holds from the decision on");
}

pub async fn ids_of_a_batch_without_a_name_are_known_while_jobs_are_kept(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_jobs_max = 1).await;
    q.enqueue_n("A", 2).await;
    q.run(2).await;
    q.drop_finished().await;
    let again = q.enqueue("A", jobs("A", 2)).await.jobs;
    assert!(
        matches!(again[..], [Enqueued::Accepted(_), Enqueued::Duplicate(_)]),
        "it may never be decided: {again:?}"
    );
}

pub async fn a_group_keeps_its_own_number_of_finished_jobs(backend: &dyn Backend) {
    // Several shards split the number over all by what each keeps.
    let one_shard = backend.shards() == 1;
    let q = Harness::with(backend, |c| {
        c.retention.finished_jobs_max = if one_shard { 8 } else { 1_000 };
        c.retention.finished_jobs_max_per_group = 4;
    })
    .await;
    q.enqueue_n("quiet", 2).await;
    q.run(2).await;
    for _ in 0..3 {
        q.advance(1);
        let names = format!("loud-{}", q.elapsed().0);
        q.enqueue("loud", jobs(&names, 5)).await;
        q.run(5).await;
    }
    assert_eq!(
        q.drop_finished().await.jobs,
        11,
        "a flood pushes out only its own"
    );
    assert_eq!(q.group("quiet").await.counts.completed, 2);
    assert_eq!(q.group("loud").await.counts.completed, 4);
    assert!(q.find_job("loud", "loud-3-4").await.is_ok());
    assert!(
        q.find_job("loud", "loud-3-0").await.is_err(),
        "the oldest go first"
    );
    q.enqueue_n("other", 3).await;
    q.run(3).await;
    if one_shard {
        assert_eq!(q.drop_finished().await.jobs, 1, "nine are one too many");
        assert_eq!(
            q.group("quiet").await.counts.completed,
            1,
            "the oldest of all goes"
        );
    }
}

pub async fn finished_batches_and_idle_groups_go_after_a_week(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 2)).await;
    q.seal("A").await;
    q.run(2).await;
    q.aggregate_all().await;
    q.advance(7 * DAY);
    assert_eq!(q.drop_finished().await.batches, 0);
    q.advance(1);
    assert_eq!(q.drop_finished().await.batches, 1);
    // The store may check a group again an hour later.
    q.advance(2 * 3_600_000);
    q.drop_finished().await;
    let gone = q.call(Query::Group(group("A"))).await;
    assert_eq!(gone, Err(Refusal::UnknownGroup(group("A"))));
    let stats = q.stats().await;
    assert_eq!(
        (
            stats.groups_in_memory,
            stats.batches_in_memory,
            stats.flows_in_memory
        ),
        (0, 0, 0)
    );
}

pub async fn finished_batches_are_kept_by_count(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_batches_max = 2).await;
    for name in ["a", "b", "c"] {
        q.enqueue_to("A", name, jobs(name, 1)).await;
        q.try_seal("A", Some(name)).await.expect("it is open");
        q.run(1).await;
        q.aggregate_all().await;
        q.advance(1);
    }
    assert_eq!(q.drop_finished().await.batches, 1);
    let gone = q.call(Query::Batch(group("A"), batch("a"))).await;
    assert!(matches!(gone, Err(Refusal::UnknownBatch { .. })), "{gone:?}");
    assert_eq!(q.batch("A", "b").await.counts.total, 1);
}

pub async fn a_batch_without_its_callback_is_kept(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 1)).await;
    q.seal("A").await;
    q.run(1).await;
    let claimed = q.claim(1_000).await.remove(0);
    q.finish(&claimed, Ok("sum")).await.expect("the claim holds");
    q.advance(30 * DAY);
    assert_eq!(q.drop_finished().await.batches, 0);
    assert_eq!(q.claim(1_000).await.len(), 1, "somebody still has to call back");
}

pub async fn a_replayed_job_keeps_its_batch(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("a", 2)).await;
    q.seal("A").await;
    let jobs = q.take_all(2).await;
    q.settle(&jobs[0], done()).await;
    q.advance(1);
    q.settle(&jobs[1], failed("no")).await;
    q.aggregate_all().await;
    q.replay("A", "a-1").await.expect("it is dead");
    q.advance(8 * DAY);
    assert_eq!(q.drop_finished().await.batches, 0);
    assert_eq!(ids(&q.run(1).await), ["a-1"]);
}

pub async fn a_dropped_open_batch_is_not_resurrected(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 1).await;
    q.run(1).await;
    q.advance(30 * DAY);
    q.drop_finished().await;
    q.advance(2 * 3_600_000);
    q.drop_finished().await;
    assert_eq!(
        q.stats().await.groups_in_memory,
        0,
        "an unsealed batch that nobody named goes with its group"
    );
    assert_eq!(q.enqueue("A", jobs("A", 1)).await.total_jobs, 1);
}

pub async fn groups_are_listed_in_pages(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for i in 0..5 {
        q.enqueue_n(&format!("g{i}"), 1).await;
    }
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        let View::Groups(page) = q.view(Query::Groups { after, max: 2 }).await else {
            panic!("groups are answered with groups")
        };
        names.extend(page.items.into_iter().map(|view| view.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    names.sort();
    assert_eq!(names, ["g0", "g1", "g2", "g3", "g4"].map(group));
}

pub async fn a_group_that_has_to_stay_hides_no_others(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.retention.finished_jobs_max = 0;
        c.retention.finished_batches_max = 2;
    })
    .await;
    // Its batch is open and a client named it: it has to stay, and it has been idle longest.
    q.open_batch("stays", "open", BatchOptions::default()).await;
    for name in ["B", "C", "D"] {
        q.advance(1);
        q.enqueue_n(name, 1).await;
        q.run(1).await;
    }
    q.advance(1);
    assert_eq!(
        q.drop_finished().await.groups,
        2,
        "four idle groups, two are kept"
    );
    assert_eq!(q.batch("stays", "open").await.counts.total, 0);
}

pub async fn sweeping_ends_when_nothing_more_can_go(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.retention.finished_batches_max = 0).await;
    q.enqueue_to("A", "a", jobs("a", 1)).await;
    q.seal("A").await;
    let leased = q.take_one().await;
    q.settle(&leased, failed("no")).await;
    q.aggregate_all().await;
    q.replay("A", "a-0").await.expect("it is dead");
    q.enqueue_n("B", 1).await;
    q.run(2).await;
    q.enqueue_n("C", 1).await;
    // A's batch is over the count but has a job again; B is over the count but its job is kept for a day.
    for max in [1, 2, 3, 100] {
        let params = DropFinishedParams {
            max,
            older_than: None,
        };
        let mut rounds = 0;
        while q.call(params.clone()).await.more {
            rounds += 1;
            assert!(rounds < 10, "a sweeper would go round for ever with max = {max}");
        }
    }
}

pub async fn a_cursor_into_dropped_jobs_is_refused(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_to("A", "a", jobs("old", 6)).await;
    q.run(6).await;
    let cursor = q.results("A", "a", None, 3).await.next;
    q.advance(1_000);
    let params = DropFinishedParams {
        max: 100,
        older_than: Some(Millis(1)),
    };
    assert_eq!(q.call(params).await.jobs, 6);
    // Later jobs may reuse the slots of the dropped ones.
    q.enqueue_to("A", "a", jobs("new", 12)).await;
    let page = q.store.results(&group("A"), &batch("a"), cursor, 100).await;
    assert_eq!(page.expect("the store works"), Err(Refusal::CursorLost));
}
