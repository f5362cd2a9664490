//! A single consumer: it receives everything, in order, whatever its pace.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::harness::{Backend, Harness, texts};

pub async fn every_record_is_delivered_once_without_faults(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut member = harness.consume().await;
    for batch in 0..10 {
        harness.append_numbers(batch * 50, 50).await;
        member.look(1_000, Duration::ZERO).await;
    }
    member.take(500).await;
    member.listen(Duration::from_millis(500)).await;
    let mut numbers: Vec<usize> = texts(&member.records)
        .iter()
        .map(|text| text.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..500).collect::<Vec<_>>());
    let mut offsets: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for record in &member.records {
        offsets
            .entry(record.position.partition)
            .or_default()
            .push(record.position.offset);
    }
    assert!(
        offsets.values().all(|offsets| offsets.is_sorted()),
        "in order within each partition"
    );
    assert_eq!(member.owned, harness.partitions());
}

pub async fn records_come_while_a_consumer_waits(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut member = harness.consume().await;
    member.own(&harness.partitions()).await;
    let log = harness.log.clone();
    let later = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let record = super::harness::record(crate::Topic::High, "a", "late");
        log.append(vec![record]).await.remove(0).expect("accepted");
    });
    let begun = Instant::now();
    // A log that wakes nobody would let the whole first wait pass.
    while member.records.is_empty() {
        member.look(10, Duration::from_secs(300)).await;
    }
    assert_eq!(texts(&member.records), ["late"]);
    assert!(
        begun.elapsed() < Duration::from_secs(200),
        "came {:?} after it was asked for",
        begun.elapsed()
    );
    later.await.expect("the writer");
}

pub async fn a_wait_without_records_ends(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut member = harness.consume().await;
    member.own(&harness.partitions()).await;
    let begun = Instant::now();
    let batch = member.look(10, Duration::from_millis(300)).await;
    assert!(batch.is_empty(), "{batch:?}");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(290), "it waits: {took:?}");
    assert!(took < Duration::from_secs(120), "and not for ever: {took:?}");
}

pub async fn no_more_than_asked_for(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 30).await;
    let mut member = harness.consume().await;
    // The harness checks the size of every batch.
    while member.records.len() < 30 {
        member.look(4, Duration::from_secs(5)).await;
    }
    assert_eq!(member.records.len(), 30);
}

pub async fn many_more_than_fit_the_buffer_all_come(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 400).await;
    let mut member = harness.consume_buffered("narrow", 10).await;
    member.take(400).await;
    let mut numbers: Vec<usize> = texts(&member.records)
        .iter()
        .map(|text| text.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
}

pub async fn an_abandoned_call_loses_nothing(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let mut member = harness.consume().await;
    member.own(&harness.partitions()).await;
    harness.append_numbers(0, 100).await;
    // Drop the call at different points of its progress.
    for micros in [0, 1, 10, 50, 100, 200, 500, 1_000] {
        let call = member.look(1, Duration::from_secs(5));
        let _ = tokio::time::timeout(Duration::from_micros(micros), call).await;
    }
    member.take(100).await;
    let mut numbers: Vec<usize> = texts(&member.records)
        .iter()
        .map(|text| text.parse().expect("a number"))
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
}

pub async fn a_paused_consumer_gets_nothing_and_keeps_its_partitions(backend: &dyn Backend) {
    let harness = Harness::with_short_sessions(backend).await;
    let mut member = harness.consume().await;
    member.own(&harness.partitions()).await;
    member.consumer().set_paused(true);
    harness.append_numbers(0, 20).await;
    let came = member.listen(harness.session() * 3 / 2).await;
    assert!(came.is_empty(), "{} records while paused", came.len());
    assert_eq!(member.owned, harness.partitions());
    member.consumer().set_paused(false);
    member.take(20).await;
    member.commit_all().await;
    assert_eq!(harness.lag(super::harness::GROUP).await.records(), 0);
}

/// Also while it waits for tokens: nobody calls `next`, for longer than the session.
pub async fn a_slow_caller_keeps_its_partitions(backend: &dyn Backend) {
    let harness = Harness::with_short_sessions(backend).await;
    harness.append_numbers(0, 50).await;
    let mut slow = harness.consume_buffered(super::harness::GROUP, 10).await;
    slow.take(5).await;
    tokio::time::sleep(harness.session() * 3 / 2).await;
    slow.take(50).await;
    assert_eq!(slow.owned, harness.partitions(), "nothing was taken from it");
    slow.commit_all().await;
    assert_eq!(harness.lag(super::harness::GROUP).await.records(), 0);
}
