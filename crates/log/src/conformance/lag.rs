//! Lag: exact, even before the first commit.

use std::time::Duration;

use super::harness::{Backend, GROUP, Harness, record};
use crate::{CommitOutcome, Topic};

pub async fn a_group_that_never_committed_is_behind_by_everything(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 25).await;
    harness
        .append_all(vec![record(Topic::Low, "a", "elsewhere")])
        .await;
    let lag = harness.lag("nobody").await;
    assert_eq!(lag.partitions.len(), 6);
    assert_eq!(lag.records(), 25);
    assert!(
        lag.partitions
            .iter()
            .all(|partition| partition.committed.is_none())
    );
    let low = harness.lag_of(Topic::Low, "nobody").await;
    assert_eq!((low.partitions.len(), low.records()), (4, 1));
}

pub async fn lag_is_exact_after_a_commit(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let positions = harness
        .append(&[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4")])
        .await;
    harness.append_numbers(0, 10).await;
    let mut member = harness.consume().await;
    member.take(14).await;
    assert_eq!(harness.lag(GROUP).await.records(), 14, "handed out is not done");
    let partition = positions[0].partition;
    assert_eq!(
        member.commit(partition, positions[3].offset).await,
        CommitOutcome::Committed
    );
    let lag = harness.lag(GROUP).await;
    assert_eq!(lag.records(), 11);
    assert_eq!(
        lag.partitions[partition as usize].committed,
        Some(positions[3].offset)
    );
    member.commit_all().await;
    let lag = harness.lag(GROUP).await;
    assert_eq!((lag.records(), lag.oldest()), (0, None));
    harness.append_numbers(10, 5).await;
    assert_eq!(harness.lag(GROUP).await.records(), 5);
    assert_eq!(harness.lag("other").await.records(), 19);
}

pub async fn the_oldest_record_that_is_not_done_has_an_age(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    assert_eq!(harness.lag(GROUP).await.oldest(), None);
    let positions = harness.append(&[("a", "1")]).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    harness.append(&[("a", "2")]).await;
    let mut member = harness.consume().await;
    member.take(2).await;
    let times: Vec<_> = member.records.iter().map(|record| record.appended_at).collect();
    let apart = times[1].since(times[0]).0;
    // In milliseconds, on a machine that may freeze in between.
    assert!((250..200_000).contains(&apart), "{apart} ms apart");
    assert_eq!(harness.lag(GROUP).await.oldest(), Some(times[0]));
    member
        .commit(positions[0].partition, positions[0].offset + 1)
        .await;
    assert_eq!(harness.lag(GROUP).await.oldest(), Some(times[1]));
}

pub async fn an_empty_topic_has_no_lag(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let lag = harness.lag(GROUP).await;
    assert_eq!((lag.partitions.len(), lag.records(), lag.oldest()), (6, 0, None));
}
