//! Several consumers of one group: each partition has one owner, and fencing rejects a former one.

use std::collections::BTreeSet;
use std::time::Duration;

use super::harness::{Backend, GROUP, Harness, Member, disjoint, settle, texts};
use crate::CommitOutcome;

/// Two members that share the partitions.
async fn pair(harness: &Harness) -> Vec<Member> {
    let mut members = vec![harness.consume().await];
    members[0].own(&harness.partitions()).await;
    members.push(harness.consume().await);
    let all = harness.partitions();
    settle(&mut members, |owned| {
        disjoint(owned, &all) && owned.iter().all(|owned| owned.len() == 3)
    })
    .await;
    members
}

pub async fn two_consumers_share_all_partitions_without_overlap(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut members = pair(&harness).await;
    harness.append_numbers(0, 200).await;
    let all = harness.partitions();
    settle(&mut members, |owned| {
        assert!(disjoint(owned, &all), "{owned:?}");
        true
    })
    .await;
    while members.iter().map(|member| member.records.len()).sum::<usize>() < 200 {
        settle(&mut members, |_| true).await;
    }
    settle(&mut members, |_| true).await;
    let mut numbers: Vec<usize> = members
        .iter()
        .flat_map(|member| texts(&member.records))
        .map(|text| text.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(
        numbers,
        (0..200).collect::<Vec<_>>(),
        "each came to one of them, once"
    );
}

pub async fn shares_are_even(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut members = Vec::new();
    let all = harness.partitions();
    for count in 1..=3 {
        members.push(harness.consume().await);
        settle(&mut members, |owned| {
            disjoint(owned, &all) && owned.iter().all(|owned| owned.len() == 6 / count)
        })
        .await;
    }
}

pub async fn a_partition_that_moves_begins_at_its_committed_offset(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 60).await;
    let mut first = harness.consume().await;
    first.take(60).await;
    // The first record of every partition is done.
    let mut done = BTreeSet::new();
    for partition in harness.partitions() {
        let record = first
            .records
            .iter()
            .find(|record| record.position.partition == partition);
        let record = record.expect("sixty keys reach every partition");
        done.insert(record.position);
        let next = record.position.offset + 1;
        assert_eq!(first.commit(partition, next).await, CommitOutcome::Committed);
    }
    let mut members = vec![first, harness.consume().await];
    let all = harness.partitions();
    settle(&mut members, |owned| disjoint(owned, &all) && owned[1].len() == 3).await;
    let expected: BTreeSet<_> = (members[0].records.iter().map(|record| record.position))
        .filter(|position| members[1].owned.contains(&position.partition) && !done.contains(position))
        .collect();
    members[1].take(expected.len()).await;
    let moved: BTreeSet<_> = members[1].records.iter().map(|record| record.position).collect();
    assert_eq!(
        moved, expected,
        "from the committed offset on, and nothing before it"
    );
}

pub async fn the_partitions_of_a_dead_owner_go_to_another(backend: &dyn Backend) {
    let harness = Harness::with_short_sessions(backend).await;
    let mut members = pair(&harness).await;
    harness.append_numbers(0, 60).await;
    let dead = members.remove(0);
    drop(dead);
    let mut heir = members.remove(0);
    heir.take(60).await;
    assert_eq!(heir.owned, harness.partitions());
    heir.commit_all().await;
    assert_eq!(harness.lag(GROUP).await.records(), 0);
}

pub async fn a_closed_consumer_gives_its_partitions_back(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut members = pair(&harness).await;
    harness.append_numbers(0, 60).await;
    members.remove(0).close().await;
    members[0].take(60).await;
    assert_eq!(members[0].owned, harness.partitions());
}

pub async fn a_commit_to_a_lost_partition_is_refused(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 60).await;
    let mut first = harness.consume().await;
    first.take(60).await;
    let taken = first.records.clone();
    let mut members = vec![first, harness.consume().await];
    let all = harness.partitions();
    settle(&mut members, |owned| disjoint(owned, &all) && owned[1].len() == 3).await;
    for record in taken {
        let partition = record.position.partition;
        let outcome = members[0].commit(partition, record.position.offset + 1).await;
        let expected = match members[0].owned.contains(&partition) {
            true => CommitOutcome::Committed,
            false => CommitOutcome::Lost,
        };
        assert_eq!(outcome, expected, "partition {partition}");
    }
    let lag = harness.lag(GROUP).await;
    for partition in lag.partitions {
        let lost = members[1].owned.contains(&partition.partition);
        assert_eq!(partition.committed.is_none(), lost, "{partition:?}");
    }
}

/// A consumer does not hand out a buffered record once another owns its partition.
pub async fn records_of_a_lost_partition_are_not_handed_out(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 120).await;
    let mut first = harness.consume_buffered(GROUP, 1_000).await;
    first.take(1).await;
    let mut members = vec![harness.consume().await];
    let all = harness.partitions();
    // The new member gets its half while nobody polls the first one.
    settle(&mut members, |owned| owned[0].len() == 3).await;
    members.push(first);
    // The harness fails on a record of a partition that its consumer does not own.
    settle(&mut members, |owned| disjoint(owned, &all)).await;
    members[0].take(1).await;
    members[1].listen(Duration::from_millis(500)).await;
    let lost = members[0].owned.clone();
    let double = members[1]
        .records
        .iter()
        .filter(|record| lost.contains(&record.position.partition));
    assert!(double.count() <= 1, "only what was taken before the loss");
}

pub async fn more_consumers_than_partitions(backend: &dyn Backend) {
    let harness = Harness::with(backend, |settings| settings.high.partitions = 2).await;
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(harness.consume().await);
    }
    let all = harness.partitions();
    settle(&mut members, |owned| {
        disjoint(owned, &all) && owned.iter().all(|owned| owned.len() <= 1)
    })
    .await;
    let spare = members
        .iter()
        .position(|member| member.owned.is_empty())
        .expect("one has nothing");
    let mut spare = members.remove(spare);
    for member in members {
        member.close().await;
    }
    spare.own(&all).await;
}
