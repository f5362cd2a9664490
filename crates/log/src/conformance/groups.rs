//! Committed offsets: the log does not deliver done records again, and skips nothing else.

use std::collections::BTreeSet;

use super::harness::{Backend, GROUP, Harness, texts};
use crate::CommitOutcome;

pub async fn what_was_not_committed_comes_again(backend: &dyn Backend) {
    let harness = Harness::with_short_sessions(backend).await;
    harness.append_numbers(0, 50).await;
    let mut first = harness.consume().await;
    first.take(50).await;
    let before: BTreeSet<String> = texts(&first.records).into_iter().collect();
    drop(first);
    let mut second = harness.consume().await;
    second.take(50).await;
    let after: BTreeSet<String> = texts(&second.records).into_iter().collect();
    assert_eq!(after, before);
}

pub async fn nothing_before_the_committed_offset_comes_again(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let numbers: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let records: Vec<(&str, &str)> = numbers.iter().map(|number| ("a", number.as_str())).collect();
    let positions = harness.append(&records).await;
    let mut first = harness.consume().await;
    first.take(20).await;
    let partition = positions[0].partition;
    assert_eq!(
        first.commit(partition, positions[12].offset).await,
        CommitOutcome::Committed
    );
    first.close().await;
    let mut second = harness.consume().await;
    second.take(8).await;
    second.listen(std::time::Duration::from_millis(500)).await;
    assert_eq!(texts(&second.records), numbers[12..]);
}

/// The log stores what the caller committed, not the read position.
pub async fn only_the_committed_offset_counts_not_what_was_handed_out(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let positions = harness.append(&[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let partition = positions[0].partition;
    let mut first = harness.consume().await;
    first.take(3).await;
    // 2 failed. 1 and 3 are done, but the low watermark stays in front of 2.
    assert_eq!(
        first.commit(partition, positions[1].offset).await,
        CommitOutcome::Committed
    );
    first.close().await;
    let mut second = harness.consume().await;
    assert_eq!(texts(second.take(2).await), ["2", "3"]);
}

pub async fn a_committed_offset_never_goes_back(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let positions = harness.append(&[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let partition = positions[0].partition;
    let mut member = harness.consume().await;
    member.take(3).await;
    for next in [positions[2].offset, positions[1].offset] {
        assert_eq!(member.commit(partition, next).await, CommitOutcome::Committed);
    }
    let lag = harness.lag(GROUP).await.partitions[partition as usize];
    assert_eq!(lag.committed, Some(positions[2].offset));
    member.close().await;
    let mut next = harness.consume().await;
    assert_eq!(texts(next.take(1).await), ["3"]);
}

pub async fn an_offset_beyond_what_was_delivered_is_refused(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let positions = harness.append(&[("a", "1"), ("a", "2"), ("a", "3")]).await;
    let partition = positions[0].partition;
    let mut member = harness.consume().await;
    member.take(1).await;
    let ahead = member.commit(partition, positions[2].offset).await;
    assert_eq!(ahead, CommitOutcome::NotDelivered);
    assert_eq!(harness.lag(GROUP).await.records(), 3, "nothing was stored");
    assert_eq!(
        member.commit(partition, positions[1].offset).await,
        CommitOutcome::Committed
    );
    assert_eq!(harness.lag(GROUP).await.records(), 2);
}

pub async fn groups_know_nothing_of_each_other(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 30).await;
    let mut first = harness.consume_as("high-worker").await;
    let mut second = harness.consume_as("analytics").await;
    first.take(30).await;
    first.commit_all().await;
    second.take(30).await;
    assert_eq!(first.owned, harness.partitions());
    assert_eq!(second.owned, harness.partitions());
    assert_eq!(harness.lag("high-worker").await.records(), 0);
    assert_eq!(harness.lag("analytics").await.records(), 30);
}

pub async fn a_new_group_begins_at_the_oldest_record(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 10).await;
    let mut first = harness.consume_as("first").await;
    first.take(10).await;
    first.commit_all().await;
    first.close().await;
    let mut late = harness.consume_as("late").await;
    assert_eq!(late.take(10).await.len(), 10);
}
