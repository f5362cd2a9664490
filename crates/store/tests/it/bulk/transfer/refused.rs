//! Incomplete exports and stores that are not empty: rejected, and no half-imported store can be used.

use std::io::{BufRead, Read};

use tidegate_core::clock::Clock;
use tidegate_core::time::Millis;
use tidegate_store::bulk::{RedisBulkOptions, RedisBulkStore};
use tidegate_testkit::servers::RedisServer;

use super::content::content_of;
use super::rich::{BEGIN, enqueue, job};
use super::{at, from_folder, in_folder, on_redis};

async fn keys_of(options: &RedisBulkOptions) -> usize {
    let pattern = format!("{}*", options.prefix);
    RedisServer::shared()
        .command(&["KEYS", &pattern])
        .unwrap()
        .items()
        .len()
}

#[tokio::test]
async fn a_torn_stream_is_refused_and_leaves_nothing() {
    let (stream, now) = from_folder().await;
    let clock = at(now);
    let lines: Vec<&[u8]> = stream.split_inclusive(|&byte| byte == b'\n').collect();
    let options = on_redis(3, &clock);
    for cut in 0..lines.len() {
        // At the end of a line, and within one.
        for half in [0, 2] {
            let mut torn = lines[..cut].concat();
            torn.extend_from_slice(&lines[cut][..lines[cut].len() / 3 * half]);
            let refused = RedisBulkStore::import(options.clone(), &torn[..]).await;
            let refused = refused.unwrap_err().to_string();
            assert!(
                refused.contains("the stream to import cannot be read"),
                "{refused}"
            );
            assert_eq!(keys_of(&options).await, 0, "cut after line {cut}");
        }
    }
    RedisBulkStore::import(options, &stream[..]).await.unwrap();
}

#[tokio::test]
async fn streams_that_contradict_themselves_are_refused_and_leave_nothing() {
    let (stream, now) = from_folder().await;
    let text = String::from_utf8(stream).unwrap();
    let options = on_redis(1, &at(now));
    let job_line = text.lines().find(|line| line.contains("\"d-3\"")).unwrap();
    let group_line = text.lines().find(|line| line.contains("\"idle\"")).unwrap();
    for (broken, why) in [
        (
            text.replace("\"d-4\"", "\"d-3\""),
            "the job d-3 of denied occurs twice",
        ),
        (
            text.replace("\"idle\"", "\"busy\""),
            "the group busy occurs twice",
        ),
        (
            text.replace("\"complete\"", "\"bad\""),
            "the batch bad of decided occurs twice",
        ),
        (
            text.replacen(group_line, &format!("{group_line}\n{group_line}"), 1),
            "occurs twice",
        ),
        (
            text.replacen(job_line, &job_line.replace("\"batch\":", "\"batch\":9"), 1),
            "which is missing",
        ),
    ] {
        assert_ne!(text, broken, "{why}");
        let refused = RedisBulkStore::import(options.clone(), broken.as_bytes()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused:?} should contain {why:?}");
        assert_eq!(keys_of(&options).await, 0, "{why}");
    }
}

#[tokio::test]
async fn only_an_empty_store_is_imported_into() {
    let (stream, now) = from_folder().await;
    let clock = at(now);
    for shards in [1, 3] {
        let options = on_redis(shards, &clock);
        let store = RedisBulkStore::open(options.clone()).await.unwrap();
        // Open, but empty: fine.
        RedisBulkStore::import(options.clone(), &stream[..])
            .await
            .unwrap();
        let mut before = Vec::new();
        store.export(&mut before).await.unwrap();
        let refused = RedisBulkStore::import(options.clone(), &stream[..])
            .await
            .unwrap_err();
        assert!(refused.to_string().contains("it is not empty"), "{refused}");
        let mut after = Vec::new();
        store.export(&mut after).await.unwrap();
        assert_eq!(before, after, "what was there is left alone");

        let others = RedisBulkOptions {
            shards: 4 - shards,
            ..options
        };
        let refused = RedisBulkStore::import(others.clone(), &stream[..])
            .await
            .unwrap_err();
        let why = format!("it was created with {shards} shards, not {}", 4 - shards);
        assert!(refused.to_string().contains(&why), "{refused}");
        let refused = RedisBulkStore::export_of(&others, Vec::new()).await.unwrap_err();
        assert!(refused.to_string().contains(&why) || refused.to_string().contains("there is none"));
    }
    let missing = on_redis(1, &clock);
    let refused = RedisBulkStore::export_of(&missing, Vec::new()).await.unwrap_err();
    assert!(refused.to_string().contains("there is none"), "{refused}");
    assert_eq!(keys_of(&missing).await, 0, "an export makes no store");
    assert_eq!(RedisBulkStore::shards_of(&missing).await.unwrap(), None);
}

/// Lines up to a number; then the process dies.
struct Dying<'a>(std::io::Take<&'a [u8]>);

impl Read for Dying<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl BufRead for Dying<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        assert!(self.0.limit() > 0, "the process dies");
        self.0.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

#[tokio::test]
async fn half_an_import_is_not_used_and_the_next_one_clears_it() {
    let clock = at(BEGIN);
    let folder = tempfile::tempdir().unwrap();
    let store = in_folder(&folder.path().join("data"), &clock);
    for n in 0..40 {
        let jobs = (0..60).map(|m| job(&format!("job-{m}"), "rest")).collect();
        enqueue(&store, &format!("group-{n}"), None, jobs).await;
    }
    let mut stream = Vec::new();
    let counts = store.export(&mut stream).await.unwrap();
    let stream: &'static [u8] = stream.leak();

    for shards in [1, 3] {
        let options = on_redis(shards, &clock);
        let most = stream.len() as u64 * 9 / 10;
        let died = tokio::spawn(RedisBulkStore::import(options.clone(), Dying(stream.take(most)))).await;
        assert!(died.unwrap_err().is_panic());
        assert!(keys_of(&options).await > 0);
        let refused = RedisBulkStore::export_of(&options, Vec::new()).await.unwrap_err();
        assert!(refused.to_string().contains("half a store"), "{refused}");
        let refused = RedisBulkStore::import(options.clone(), stream).await.unwrap_err();
        assert!(
            refused.to_string().contains("another import wrote to it 0 s ago"),
            "{refused}"
        );

        clock.advance(Millis(60_000));
        assert_eq!(
            RedisBulkStore::import(options.clone(), stream).await.unwrap(),
            counts
        );
        let mut whole = Vec::new();
        RedisBulkStore::export_of(&options, &mut whole).await.unwrap();
        assert_eq!(content_of(&whole, clock.now()), content_of(stream, clock.now()));
    }
}
