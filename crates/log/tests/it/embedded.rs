//! What only the embedded log promises: kills, its folder, and the store beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::time::Millis;
use tidegate_durable::DurableError;
use tidegate_log::embedded::{EmbeddedLog, EmbeddedLogOptions};
use tidegate_log::{CommittedOffset, ConsumeParams, Log, LogError, Position, Record, Topic};
use tidegate_store::bulk::{EmbeddedBulkOptions as StoreOptions, EmbeddedBulkStore};
use tokio::io::{AsyncBufReadExt, BufReader};

const FOLDER: &str = "TIDEGATE_TEST_CHILD_FOLDER";
const KEYS: u64 = 40;
const KILLS: usize = 8;
const GROUP: &str = "high-worker";

fn open(folder: &Path) -> Result<EmbeddedLog, LogError> {
    let mut options = EmbeddedLogOptions::new(folder);
    // A busy disk must not fail these tests.
    options.settings.send_timeout = Millis(60_000);
    EmbeddedLog::open(options)
}

fn record(key: u64, number: u64) -> Record {
    // Some are long enough to be written in pieces.
    let padding = if number.is_multiple_of(10) { 5_000 } else { 50 };
    Record {
        topic: Topic::High,
        key: Bytes::from(format!("key-{key}")),
        value: Bytes::from(format!("{number:<padding$}")),
    }
}

fn number(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    text.trim().parse().expect("a number")
}

/// The highest number of each key in the log; there must be no gaps.
async fn kept(log: &EmbeddedLog) -> BTreeMap<Bytes, u64> {
    let mut highest = BTreeMap::new();
    for partition in 0..log.settings().partitions(Topic::High) {
        let mut from = Position { partition, offset: 0 };
        loop {
            let page = log.read(Topic::High, from, 500).await.expect("read");
            let Some(last) = page.last() else { break };
            from.offset = last.position.offset + 1;
            for record in page {
                let number = number(&record.value);
                let before = highest.insert(record.key, number);
                assert_eq!(
                    number,
                    before.map_or(0, |before| before + 1),
                    "in order and without gaps"
                );
            }
        }
    }
    highest
}

/// The process that is killed: appends rounds over all keys, consumes and commits, and prints what was confirmed.
async fn work(folder: &Path) {
    let log = open(folder).expect("the log opens after a kill");
    let mut next = kept(&log).await.values().max().map_or(0, |highest| highest + 1);
    // Keys that were not reached in the last round catch up first.
    let behind = kept(&log).await;
    for key in 0..KEYS {
        let name = Bytes::from(format!("key-{key}"));
        for number in behind.get(&name).map_or(0, |highest| highest + 1)..next {
            log.append(vec![record(key, number)])
                .await
                .remove(0)
                .expect("appended");
        }
    }
    let params = ConsumeParams {
        topic: Topic::High,
        group: GROUP.into(),
        owner: "child".into(),
        max_buffered: 100,
    };
    let consumer = log.consume(params).await.expect("a consumer");
    println!("RUNNING");
    loop {
        let answers = log.append((0..KEYS).map(|key| record(key, next)).collect()).await;
        for answer in answers {
            answer.expect("appended");
        }
        println!("ANSWERED {next}");
        next += 1;
        let batch = consumer.next(1_000, Duration::ZERO).await.expect("next");
        let mut offsets = BTreeMap::new();
        for record in batch.records {
            offsets.insert(record.position.partition, record.position.offset + 1);
        }
        let offsets: Vec<CommittedOffset> = offsets
            .into_iter()
            .map(|(partition, next)| CommittedOffset { partition, next })
            .collect();
        consumer.commit(&offsets).await.expect("committed");
        for CommittedOffset { partition, next } in offsets {
            println!("COMMITTED {partition} {next}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_loses_nothing_that_was_answered() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return work(&PathBuf::from(folder)).await;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let (mut answered, mut offsets) = (None, BTreeMap::new());
    for kill in 0..KILLS {
        let mut child = tokio::process::Command::new(std::env::current_exe().expect("this test"))
            .args([
                "--exact",
                "--nocapture",
                "embedded::a_killed_process_loses_nothing_that_was_answered",
            ])
            .env(FOLDER, &path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut heard = 0;
        // Not always at the same step of a round.
        while heard < 60 + kill * 37 {
            let line = tokio::time::timeout(Duration::from_secs(180), lines.next_line()).await;
            let line = line
                .expect("the child says something")
                .expect("text")
                .expect("it lives");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["ANSWERED", number] => answered = Some(number.parse::<u64>().expect("a number")),
                ["COMMITTED", partition, next] => {
                    let partition: u32 = partition.parse().expect("a number");
                    offsets.insert(partition, next.parse::<u64>().expect("a number"));
                }
                _ => continue,
            }
            heard += 1;
        }
        child.kill().await.expect("killed");

        let log = open(&path).expect("the log opens after a kill");
        let kept = kept(&log).await;
        assert_eq!(kept.len() as u64, KEYS);
        let answered = answered.expect("something was answered");
        assert!(
            kept.values().all(|highest| *highest >= answered),
            "{answered} was answered: {kept:?}"
        );
        for lag in log.lag(Topic::High, GROUP).await.expect("lag").partitions {
            let committed = offsets.get(&lag.partition).copied();
            assert!(
                lag.committed >= committed,
                "{lag:?} was committed up to {committed:?}"
            );
            assert!(
                lag.committed.is_none_or(|committed| committed <= lag.end),
                "{lag:?}"
            );
        }
        log.close().await;
    }
}

#[tokio::test]
async fn the_store_and_the_log_share_a_data_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..3 {
        let store = EmbeddedBulkStore::open(StoreOptions::new(folder.path())).expect("the store opens");
        let log = open(folder.path()).expect("the log opens");
        let at = log
            .append(vec![record(1, round)])
            .await
            .remove(0)
            .expect("appended");
        assert_eq!(at.offset, round);
        log.close().await;
        drop(log);
        store.close().await.expect("closed");
    }
}

#[tokio::test]
async fn a_folder_in_use_or_of_something_else_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let log = open(&path).expect("the log opens");
    let locked = DurableError::Locked(path.clone());
    assert_eq!(open(&path).expect_err("in use"), LogError::Durable(locked));
    log.close().await;
    drop(log);
    open(&path).expect("free again").close().await;

    std::fs::write(path.join("FORMAT"), "tidegate 9\n").expect("written");
    let refused = open(&path).expect_err("another format").to_string();
    assert!(refused.contains("format 9"), "{refused}");

    let other = folder.path().join("other");
    std::fs::create_dir(&other).expect("a folder");
    std::fs::write(other.join("dead_letter.txt"), "dear").expect("written");
    let refused = open(&other).expect_err("not ours").to_string();
    assert!(refused.contains("not Tidegate's"), "{refused}");
}
