//! Which job goes next: groups in turn, by weight, with minimums for the lower priorities.

use tidegate_core::bulk::config::FairPolicy;
use tidegate_core::bulk::{EnqueueParams, NewJob, Priority, Scope};

use super::harness::*;

/// How often `group` occurs in an order such as `ABAB`.
fn count(order: &str, group: char) -> usize {
    order.chars().filter(|&c| c == group).count()
}

pub async fn enqueue_then_lease(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    let hello = NewJob {
        kind: kind("TEST"),
        payload: "{data:'hello'}".into(),
        ..job("job-001")
    };
    q.enqueue("customer-A", vec![hello]).await;
    let leased = q.take_one().await;
    assert_eq!(leased.id, job_id("job-001"));
    assert_eq!(leased.leased.group, group("customer-A"));
    assert_eq!(leased.leased.kind, kind("TEST"));
    assert_eq!(&leased.payload[..], b"{data:'hello'}");
}

pub async fn strict_alternation(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.enqueue_n("B", 3).await;
    assert_eq!(q.order(6).await, "ABABAB");
}

pub async fn the_group_that_waits_longer_goes_first(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("old", 1).await;
    q.advance(1_000);
    q.enqueue_n("new", 1).await;
    assert_eq!(ids(&q.take(2).await), ["old-0", "new-0"]);
}

pub async fn served_group_goes_behind(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 3).await;
    q.advance(7);
    q.enqueue_n("B", 3).await;
    q.advance(7);
    assert_eq!(ids(&q.take(6).await), ["A-0", "B-0", "A-1", "B-1", "A-2", "B-2"]);
}

pub async fn enqueue_never_moves_a_backlogged_group(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("B", 150).await;
    q.enqueue("A", vec![job("first")]).await;
    let mut order = String::new();
    for i in 0..200 {
        q.enqueue("A", vec![job(&format!("more-{i}"))]).await;
        order += &q.order(1).await;
        q.advance(1);
    }
    assert_eq!((count(&order, 'A'), count(&order, 'B')), (100, 100), "{order}");
}

pub async fn a_nearly_finished_group_gets_its_turn(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.fair_queue.policy = FairPolicy::Score).await;
    q.enqueue_n("giant", 300).await;
    q.take_all(299).await;
    // A newcomer every second; alpha may delay the last job of the giant by 10 s, not by more.
    for second in 1..=12 {
        q.advance(1_000);
        q.enqueue(&format!("new-{second}"), vec![job("only")]).await;
        if q.take_one().await.leased.group == group("giant") {
            return;
        }
    }
    panic!("twelve newcomers went before the last job of the giant");
}

pub async fn a_nearly_finished_group_is_no_monopoly(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.fair_queue.policy = FairPolicy::Score;
        c.fair_queue.alpha = -10_000.0;
    })
    .await;
    q.enqueue_n("G", 300).await;
    q.take_all(200).await;
    q.enqueue_n("N", 1).await;
    let mut order = String::new();
    for _ in 0..12 {
        q.advance(1_000);
        order += &q.order(1).await;
    }
    assert_eq!(
        count(&order, 'N'),
        1,
        "the newcomer was not served within alpha: {order}"
    );
}

pub async fn base_priority_is_a_weight(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.configure("P", Some(-1_000_000), None).await;
    q.configure("L", Some(1_000_000), None).await;
    for name in ["P", "N", "L"] {
        q.enqueue_n(name, 250).await;
    }
    let mut order = String::new();
    for _ in 0..350 {
        order += &q.order(1).await;
        q.advance(1);
    }
    let (premium, normal, low) = (count(&order, 'P'), count(&order, 'N'), count(&order, 'L'));
    assert!(
        premium.abs_diff(200) <= 1,
        "premium has weight 2: {premium} of 350"
    );
    assert!(normal.abs_diff(100) <= 1, "normal has weight 1: {normal} of 350");
    assert!(low.abs_diff(50) <= 1, "low has weight 1/2: {low} of 350");
}

pub async fn work_in_flight_counts_as_served(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.fair_queue.policy = FairPolicy::Score).await;
    q.enqueue_n("A", 20).await;
    q.take_all(15).await;
    q.enqueue_n("B", 1).await;
    q.assert_order(
        &q.order(2).await,
        "BA",
        "fifteen starts without an answer put A behind",
    );
    assert_eq!(
        q.first_batch("A").await.counts.success,
        0,
        "a start is no success"
    );
}

pub async fn lower_priorities_get_their_minimum(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("H", at_priority(Priority::High, jobs("H", 300))).await;
    q.enqueue("N", at_priority(Priority::Normal, jobs("N", 50))).await;
    q.enqueue("L", at_priority(Priority::Low, jobs("L", 50))).await;
    let order = q.order(200).await;
    let (high, normal, low) = (count(&order, 'H'), count(&order, 'N'), count(&order, 'L'));
    if q.shards > 1 {
        // Priorities are ranked within a shard; a lower one that is alone in its shard gets the shard's share.
        assert!(normal >= 9 && low >= 9 && high >= 66, "{high} {normal} {low}");
        return;
    }
    assert!(normal.abs_diff(10) <= 1, "5 % of 200 picks: {normal}");
    assert!(low.abs_diff(10) <= 1, "5 % of 200 picks: {low}");
    assert!(high >= 178, "the rest is for high: {high}");
}

pub async fn a_minimum_of_zero_is_strict(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.fair_queue.normal_min_percent = 0;
        c.fair_queue.low_min_percent = 0;
    })
    .await;
    q.enqueue("L", at_priority(Priority::Low, jobs("L", 2))).await;
    q.enqueue("N", at_priority(Priority::Normal, jobs("N", 2))).await;
    q.enqueue("H", at_priority(Priority::High, jobs("H", 60))).await;
    let order = q.order(64).await;
    if q.shards > 1 {
        // Strict within a shard; across shards high is at least not behind the others.
        assert!(count(&order[..10], 'H') >= 3, "{order}");
        assert_eq!(count(&order, 'H'), 60);
        return;
    }
    assert_eq!(order, "H".repeat(60) + "NNLL");
}

pub async fn a_group_may_have_jobs_at_several_priorities(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue("G", vec![job("n1")]).await;
    q.enqueue("G", at_priority(Priority::High, vec![job("h1")])).await;
    assert_eq!(ids(&q.take(2).await), ["h1", "n1"]);
    let stats = q.stats().await;
    assert_eq!(stats.high_priority_groups, 0);
    assert_eq!(stats.normal_priority_groups, 0, "no ghost stays in the order");
}

pub async fn first_come_first_served_within_a_flow(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    for id in ["1", "2", "3"] {
        q.enqueue("G", vec![job(id)]).await;
    }
    assert_eq!(ids(&q.take(1).await), ["1"]);
    q.enqueue("G", vec![job("4")]).await;
    assert_eq!(ids(&q.take(3).await), ["2", "3", "4"]);
}

pub async fn ready_keeps_the_order_of_first_starts(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("G", 6).await;
    q.admit(2, 100).await;
    assert_eq!(ids(&q.take(1).await), ["G-0"]);
    q.admit(2, 100).await;
    assert_eq!(ids(&q.take(5).await), ["G-1", "G-2", "G-3", "G-4", "G-5"]);
}

pub async fn base_priority_changes_only_explicitly(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("B", 60).await;
    q.enqueue_n("A", 30).await;
    let louder = EnqueueParams {
        group: group("A"),
        batch: None,
        base_priority: Some(-1_000_000),
        jobs: jobs("again", 30),
    };
    q.call(louder).await.expect("the call is valid");
    assert_eq!(q.group("A").await.base_priority, 0);
    q.assert_order(&q.order(6).await, "BABABA", "equal weights");

    q.configure("A", Some(-1_000_000), None).await;
    assert_eq!(q.group("A").await.base_priority, -1_000_000);
    let order = q.order(30).await;
    assert!(
        count(&order, 'A').abs_diff(20) <= 1,
        "weight 2 against 1: {order}"
    );
}

pub async fn ties_break_by_arrival_not_by_name(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("Z", 50).await;
    q.enqueue_n("A", 50).await;
    assert_eq!(groups(&q.take_all(100).await), "ZA".repeat(50));
}

pub async fn score_policy_alternates_in_one_millisecond(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| {
        c.fair_queue.policy = FairPolicy::Score;
        c.fair_queue.alpha = 0.0;
    })
    .await;
    q.enqueue_n("A", 3).await;
    q.enqueue_n("B", 3).await;
    assert_eq!(q.order(6).await, "ABABAB");
}

pub async fn score_policy_alternates_as_time_passes(backend: &dyn Backend) {
    let q = Harness::with(backend, |c| c.fair_queue.policy = FairPolicy::Score).await;
    q.enqueue_n("A", 100).await;
    q.enqueue_n("B", 100).await;
    let mut order = String::new();
    for _ in 0..20 {
        q.advance(1_000);
        order += &q.order(1).await;
    }
    assert_eq!(order, "AB".repeat(10));
}

pub async fn a_late_group_is_not_held_up(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 500).await;
    q.take_all(250).await;
    q.enqueue_n("B", 1).await;
    let order = q.order(2).await;
    assert_eq!(
        count(&order, 'B'),
        1,
        "one job behind 250 waiting ones of another group: {order}"
    );
}

pub async fn small_groups_finish_in_their_own_time(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("X", 500).await;
    q.enqueue_n("M", 20).await;
    q.enqueue_n("S", 10).await;
    let order = groups(&q.take_all(51).await);
    let late = q.shards - 1;
    assert!(
        count(&order[..30], 'S') + late >= 10,
        "10 jobs need 30 picks between three: {order}"
    );
    assert!(
        count(&order[..50], 'M') + late >= 20,
        "10 more need 20 picks between two: {order}"
    );
}

pub async fn a_group_that_comes_back_has_no_saved_credit(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 150).await;
    q.enqueue("B", vec![job("early")]).await;
    q.take_all(100).await;
    q.enqueue_n("B", 10).await;
    let order = q.order(10).await;
    assert!(!order.contains("BB"), "B was idle and does not catch up: {order}");
    assert_eq!(count(&order, 'B'), 5);
}

pub async fn a_paused_group_has_no_saved_credit(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 150).await;
    q.enqueue_n("B", 20).await;
    q.pause(Scope::Group(group("B"))).await;
    q.take_all(100).await;
    q.resume(Scope::Group(group("B"))).await;
    let order = q.order(10).await;
    assert!(
        !order.contains("BB"),
        "B was paused and catches nothing up: {order}"
    );
}

pub async fn a_group_cannot_gain_by_leaving_and_coming_back(backend: &dyn Backend) {
    let q = Harness::new(backend).await;
    q.enqueue_n("A", 100).await;
    let mut order = String::new();
    for i in 0..60 {
        // B never has more than one job: every start empties it, the next enqueue brings it back.
        if i == 0 || order.ends_with('B') {
            q.enqueue("B", vec![job(&format!("single-{i}"))]).await;
        }
        let one = q.take_one().await;
        order += one.leased.group.as_str();
        q.settle(&one, done()).await;
    }
    assert!(
        count(&order, 'B') <= 31,
        "B takes turns like everyone else: {order}"
    );
}
