//! Estimates of a group in one queue, with what was measured there.

use super::*;

const NOW: Timestamp = Timestamp(1_706_000_100_000);

/// So many starts per second until now, for so many seconds.
fn measured(per_second: u64, seconds: u64) -> Throughput {
    let mut measured = Throughput::default();
    for tick in 0..=seconds * per_second {
        let at = NOW - Millis::from_secs(seconds) + Millis(tick * 1_000 / per_second);
        measured.start(1, at);
    }
    measured
}

fn queue(measured: Throughput, weight: u64, jobs: u64) -> QueuePace {
    QueuePace {
        measured,
        rate: 1_000.0,
        own_rate: false,
        sustained: None,
        window: Millis(1_000),
        weight: [0, weight, 0],
        standing: [vec![], vec![Standing { weight, jobs }], vec![]],
        minimum: [0, 5, 5],
        running: 1,
        round_trip: Millis(0),
        asked: NOW,
        held_until: None,
    }
}

fn group(queue: QueuePace, jobs: u64) -> GroupPace {
    GroupPace {
        now: NOW,
        paused: false,
        running: 0,
        weight: 1_000,
        limit: PaceLimit::default(),
        flows: vec![FlowPace {
            queue: 0,
            priority: Priority::Normal,
            unfinished: jobs,
            waiting: jobs,
            due: Due::default(),
            measured: Throughput::default(),
            in_order: true,
            limit: PaceLimit::default(),
        }],
        queues: vec![queue],
        sustained: Vec::new(),
    }
}

fn assert_around(group: &GroupPace, seconds: u64) {
    let range = finish(group, 1.0).unwrap();
    let expected = Millis::from_secs(seconds);
    assert!((range.earliest..=range.latest).contains(&expected), "{range:?}");
    assert!(range.latest.0 - range.earliest.0 <= expected.0 / 2, "{range:?}");
}

#[test]
fn a_measured_queue_is_believed() {
    assert_around(&group(queue(measured(10, 60), 1_000, 400), 400), 40);
}

#[test]
fn a_change_of_pace_is_noticed() {
    let mut queue = queue(measured(10, 60), 1_000, 400);
    let later = NOW + Millis(15_000);
    for second in 1..=15 {
        queue.measured.start(2, NOW + Millis(second * 1_000));
    }
    queue.asked = later;
    let group = GroupPace {
        now: later,
        ..group(queue, 400)
    };
    assert_around(&group, 200);
}

#[test]
fn a_limit_of_the_group_counts() {
    let mut group = group(queue(measured(10, 60), 1_000, 400), 400);
    group.limit.per_second = Some(4.0);
    assert_around(&group, 100);
    group.limit = PaceLimit::default();
    group.flows[0].limit.per_second = Some(4.0);
    assert_around(&group, 100);
    group.flows[0].limit = PaceLimit::default();
    group.sustained = vec![(0, 2.0)];
    assert_around(&group, 200);
}

#[test]
fn a_flow_that_gets_less_than_its_share_believes_its_own_measure() {
    let mut group = group(queue(measured(10, 60), 1_000, 400), 400);
    group.flows[0].measured = measured(5, 60);
    assert_around(&group, 80);
    group.flows[0].measured = measured(5, 5);
    assert_around(&group, 40);
}

#[test]
fn a_cut_counts_before_it_is_measured() {
    let mut group = group(queue(measured(10, 60), 1_000, 400), 400);
    group.queues[0].sustained = Some(4.0);
    assert_around(&group, 100);
    group.queues[0].sustained = Some(9.0);
    assert_around(&group, 40);
}

#[test]
fn parts_of_batches_are_counted_by_arrival() {
    let batch = |seq, last, unfinished| Before {
        seq,
        last,
        unfinished,
    };
    let all = [batch(30, 40, 10), batch(10, 20, 10), batch(0, 9, 0)];
    assert_eq!(part_until(&all[1..], 20, 20), 0.5);
    assert_eq!(part_until(&all, 40, 20), 1.0);
    assert_eq!(part_until(&[batch(10, 30, 20)], 20, 40), 0.25);
}

proptest::proptest! {
    /// Whatever the facts, the range begins before it ends.
    #[test]
    fn ranges_are_in_order(
        per_second in 1u64..200, seconds in 1u64..200, jobs in 1u64..100_000, weight in 1u64..100_000,
        others in 0u64..100_000, minimum in 0u32..50, priority in 0usize..3, running in 0u64..50,
        trip in 0u64..100_000, delayed in 0u64..1_000,
    ) {
        let mut queue = queue(measured(per_second, seconds), weight, others);
        queue.weight = [weight; 3];
        queue.standing = [0, 1, 2].map(|_| vec![Standing { weight, jobs: others }]);
        queue.minimum = [0, minimum, minimum];
        queue.running = running;
        queue.round_trip = Millis(trip);
        let mut group = group(queue, jobs);
        group.flows[0].priority = Priority::ALL[priority];
        let one = finish(&group, 1.0);
        proptest::prop_assert!(one.is_err() || one.unwrap().earliest <= one.unwrap().latest);
        group.flows[0].unfinished += delayed;
        group.flows[0].due = Due { jobs: delayed, seconds: delayed * (NOW.0 / 1_000 + 100), last: NOW + Millis(100_000) };
        let later = finish(&group, 1.0);
        proptest::prop_assert!(later.is_err() || later.unwrap().earliest <= later.unwrap().latest);
    }
}
