//! Durability: what survives restarts, what expires, and what the log rejects.

use std::time::Duration;

use tidegate_core::time::Millis;
use tokio::time::Instant;

use super::harness::{Backend, GROUP, Harness, record, texts};
use crate::{ConsumeParams, LogError, Position, Topic};

pub async fn everything_is_there_after_a_restart(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append_numbers(0, 40).await;
    harness.append_all(vec![record(Topic::Dead, "d", "dead")]).await;
    let mut member = harness.consume().await;
    member.take(40).await;
    let partition = member.records[0].position.partition;
    let of_it = |record: &&crate::Delivered| record.position.partition == partition;
    let done = member.records.iter().filter(of_it).count() as u64;
    let last = member
        .records
        .iter()
        .rev()
        .find(of_it)
        .expect("the first")
        .position;
    member.commit(partition, last.offset + 1).await;
    member.close().await;
    let (before, lag) = (harness.everything(Topic::High).await, harness.lag(GROUP).await);

    let harness = harness.reopen().await;
    assert_eq!(harness.everything(Topic::High).await, before);
    assert_eq!(texts(&harness.everything(Topic::Dead).await), ["dead"]);
    assert_eq!(harness.lag(GROUP).await, lag);
    assert_eq!(lag.records(), 40 - done);
    let mut member = harness.consume().await;
    member.take(40 - done as usize).await;
    assert!(
        member
            .records
            .iter()
            .all(|record| record.position.partition != partition)
    );
}

pub async fn a_restart_goes_on_with_the_next_offset(backend: &dyn Backend) {
    let mut harness = Harness::new(backend).await;
    let mut positions = Vec::new();
    for round in 0..3 {
        positions.extend(harness.append(&[("a", &round.to_string()), ("a", "x")]).await);
        harness = harness.reopen().await;
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let read = harness.read(Topic::High, positions[0], 100).await;
    assert_eq!(texts(&read), ["0", "x", "1", "x", "2", "x"]);
}

pub async fn dead_letters_can_be_read_again_and_again(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    let dead_letter = |number: u32| record(Topic::Dead, "same", &format!("dead letter {number}"));
    let positions = harness.append_all((0..10).map(dead_letter).collect()).await;
    for _ in 0..2 {
        let first = harness.read(Topic::Dead, positions[0], 4).await;
        assert_eq!(
            texts(&first),
            ["dead letter 0", "dead letter 1", "dead letter 2", "dead letter 3"]
        );
    }
    let end = Position {
        offset: positions[9].offset + 1,
        ..positions[9]
    };
    assert!(harness.read(Topic::Dead, end, 4).await.is_empty());
    let beyond = Position { offset: 1_000, ..end };
    assert!(harness.read(Topic::Dead, beyond, 4).await.is_empty());
    let nowhere = Position {
        partition: 99,
        offset: 0,
    };
    harness
        .log
        .read(Topic::Dead, nowhere, 4)
        .await
        .expect_err("there is no such partition");
}

pub async fn old_records_are_dropped(backend: &dyn Backend) {
    // Longer than a machine may freeze: records that expire before anybody could take them prove nothing. The
    // consumer is there before the records.
    let harness = Harness::with(backend, |settings| settings.high.retention = Millis(8_000)).await;
    let mut member = harness.consume().await;
    member.own(&harness.partitions()).await;
    harness.append_numbers(0, 30).await;
    let old = harness.append(&[("fresh", "old")]).await;
    harness.append_all(vec![record(Topic::Low, "l", "kept")]).await;
    member.take(10).await;
    let until = Instant::now() + harness.place.patience();
    loop {
        if harness.lag("nobody").await.records() == 0 {
            break;
        }
        assert!(
            Instant::now() < until,
            "{} are left",
            harness.lag("nobody").await.records()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(harness.everything(Topic::High).await.is_empty());
    assert_eq!(harness.lag("nobody").await.oldest(), None);
    assert_eq!(
        texts(&harness.everything(Topic::Low).await),
        ["kept"],
        "its topic keeps records for longer"
    );
    // A consumer whose next record has expired continues with later ones.
    let appended = harness.append(&[("fresh", "fresh")]).await;
    let next = Position {
        offset: old[0].offset + 1,
        ..old[0]
    };
    assert_eq!(appended, [next], "offsets are not used again");
    let fresh = tokio::time::timeout(harness.place.patience(), async {
        loop {
            member.look(100, Duration::from_millis(100)).await;
            if let Some(fresh) = member.records.iter().find(|record| record.value == "fresh") {
                return fresh.position;
            }
        }
    });
    assert_eq!(fresh.await.expect("the fresh record comes"), next);
}

/// Applies where configured and supported; no backend drops what a group still needs.
pub async fn what_is_done_goes_sooner_and_nothing_else(backend: &dyn Backend) {
    let harness = Harness::with(backend, |settings| {
        settings.high.completed_retention = Some(Millis(1))
    })
    .await;
    harness.append_numbers(0, 60).await;
    let mut quick = harness.consume_as("quick").await;
    let mut slow = harness.consume_as("slow").await;
    quick.take(60).await;
    slow.take(60).await;
    quick.commit_all().await;
    let partition = slow.records[0].position.partition;
    let half = slow
        .records
        .iter()
        .filter(|record| record.position.partition == partition)
        .count() as u64
        / 2;
    slow.commit(partition, half).await;
    let dropping = harness.place.drops_what_is_done();
    let until = Instant::now() + harness.place.patience();
    while dropping && harness.lag("slow").await.partitions[partition as usize].start < half {
        assert!(Instant::now() < until, "what is done stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let lag = harness.lag("slow").await;
    assert_eq!(lag.records(), 60 - half, "what one of them needs stays");
    let start = lag.partitions[partition as usize].start;
    assert_eq!(start, if dropping { half } else { 0 });
}

pub async fn another_number_of_partitions_is_refused(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.append(&[("a", "1")]).await;
    harness.checked().await;
    harness.log.close().await;
    let Harness {
        log,
        mut settings,
        place,
    } = harness;
    drop(log);
    settings.high.partitions = 7;
    let found = match place.open(settings).await {
        Ok(log) => loop {
            let error = log.check().await.expect_err("the layout differs");
            // A busy machine may be late, which says nothing about the layout.
            if !error.is_retryable() {
                break error;
            }
        },
        Err(error) => error,
    };
    let LogError::Layout {
        configured, found, ..
    } = &found
    else {
        panic!("{found}");
    };
    assert_eq!((*configured, *found), (7, 6));
}

pub async fn names_that_cannot_work_are_refused(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    for group in ["", "a b", "{x}", "é", &"x".repeat(200)] {
        let params = ConsumeParams {
            topic: Topic::High,
            group: group.to_owned(),
            owner: "case".to_owned(),
            max_buffered: 10,
        };
        let refused = harness.log.consume(params).await.map(drop).expect_err(group);
        assert!(matches!(refused, LogError::Config(_)), "{refused}");
        let refused = harness.log.lag(Topic::High, group).await.expect_err(group);
        assert!(matches!(refused, LogError::Config(_)), "{refused}");
    }
}

pub async fn a_closed_log_says_so(backend: &dyn Backend) {
    let harness = Harness::new(backend).await;
    harness.log.close().await;
    harness.log.close().await;
    let refused = harness
        .log
        .append(vec![record(Topic::High, "a", "1")])
        .await
        .remove(0);
    assert_eq!(refused, Err(LogError::Closed));
    assert_eq!(harness.log.lag(Topic::High, GROUP).await, Err(LogError::Closed));
    assert_eq!(harness.log.check().await, Err(LogError::Closed));
}
