//! `tidegate export` and `tidegate import` with a store on Redis: what they print, and how they fail.

use command::{fails, succeeds, tidegate};
use tidegate_testkit::servers::{RedisCluster, RedisServer};

use crate::support::command;

/// Sequence numbers as Redis assigns them: in the order of the stream, from 1 on.
const STREAM: &str = r#"{"header":{"tidegateExport":2}}
{"group":{"seq":1,"id":"Ä {b}","basePriority":-1000000,"paused":true,"limits":{"all":{"rate":"5/s","max_running":null},"queues":{"mail":{"rate":"30/min","max_running":2}}},"createdAt":1706000000000}}
{"batch":{"seq":2,"group":1,"id":"spring","options":{"failureThresholdPercent":50,"keepResults":true,"callback":null},"status":"COMPLETED","sealed":true,"paused":false,"cancelled":false,"cancelFence":0,"implicit":false,"createdAt":1706000000001,"finishedAt":1706000000900,"counts":{"total":2,"success":1,"failed":1},"errors":["no such mailbox"],"summary":{"hex":"ff00"},"confirmed":true}}
{"job":{"job":{"seq":3,"batch":2,"id":"done","kind":"SEND","priority":"NORMAL","createdAt":1706000000002,"runAt":null,"expiresAt":null,"cost":1,"payload":{"text":"{}"}},"state":{"attempts":0,"throttles":0,"runs":0,"fence":0,"priority":"NORMAL","cancelled":false,"expires":false,"state":{"COMPLETED":{"at":1706000000800,"startedAt":1706000000700,"worker":"pull","result":{"text":"sent"}}}}}}
{"job":{"job":{"seq":4,"batch":2,"id":"dead","kind":"SEND","priority":"HIGH","createdAt":1706000000002,"runAt":null,"expiresAt":null,"cost":1,"payload":{"hex":"ff"}},"state":{"attempts":2,"throttles":1,"runs":0,"fence":0,"priority":"HIGH","cancelled":false,"expires":false,"state":{"DEAD":{"at":1706000000800,"reason":"FAILED","error":"no such mailbox"}}}}}
{"end":{"groups":1,"batches":1,"jobs":2}}
"#;

#[tokio::test]
async fn a_store_moves_from_redis_to_a_folder_and_back() {
    let url = RedisServer::shared().url();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let file = folder.path().join("stream.jsonl");
    let file = file.to_str().unwrap();

    let (_, said) = succeeds(&["import", &url, "--key-prefix", "one:"], STREAM).await;
    assert_eq!(said, "imported 1 groups, 1 batches, 2 jobs\n");
    let (out, said) = succeeds(&["export", &url, "--key-prefix", "one:"], "").await;
    assert_eq!(out, STREAM);
    assert_eq!(said, "exported 1 groups, 1 batches, 2 jobs\n");

    succeeds(&["export", &url, "--key-prefix", "one:", "-o", file], "").await;
    assert_eq!(std::fs::read_to_string(file).unwrap(), STREAM);
    succeeds(&["import", data, "-i", file], "").await;
    let (out, _) = succeeds(&["export", data], "").await;
    assert_eq!(out, STREAM);
    succeeds(
        &[
            "import",
            &url,
            "--key-prefix",
            "two:",
            "--shards",
            "3",
            "-i",
            file,
        ],
        "",
    )
    .await;
    // The export finds the number of shards itself; sequence numbers are those of the whole store.
    let (three, _) = succeeds(&["export", &url, "--key-prefix", "two:"], "").await;
    assert_eq!(three.lines().count(), STREAM.lines().count());
    assert_ne!(three, STREAM);
    succeeds(&["import", &url, "--key-prefix", "three:"], &three).await;
    let (out, _) = succeeds(&["export", &url, "--key-prefix", "three:"], "").await;
    assert_eq!(out, STREAM);
}

#[tokio::test]
async fn a_cluster_is_named_by_some_of_its_servers() {
    let urls = RedisCluster::shared().urls().join(",");
    succeeds(&["import", &urls, "--shards", "5"], STREAM).await;
    let (out, _) = succeeds(&["export", &urls], "").await;
    assert_eq!(out.lines().count(), STREAM.lines().count());
}

#[tokio::test]
async fn jobs_go_to_the_queues_of_the_configuration() {
    let server = RedisServer::shared();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    std::fs::write(&file, "[job_types.SEND]\nqueue = \"mail\"\n").unwrap();
    let file = file.to_str().unwrap();
    let args = [
        "import",
        &server.url(),
        "--key-prefix",
        "queues:",
        "--config",
        file,
    ];
    succeeds(&args, STREAM).await;
    let queues = "return cmsgpack.unpack(redis.call('GET', KEYS[1])).queues[1].n";
    let queue = server.command(&["EVAL", queues, "1", "queues:{0}:meta"]).unwrap();
    assert_eq!(queue.text().as_deref(), Some("mail"));
    let args = ["import", "some-folder", "--config", file];
    fails(&args, STREAM, "--config is for a store on Redis").await;
}

#[tokio::test]
async fn what_cannot_be_exported_says_why_and_changes_nothing() {
    let server = RedisServer::shared();
    let url = &server.url();
    fails(&["export", url, "--key-prefix", "missing:"], "", "there is none").await;
    assert!(server.command(&["KEYS", "missing:*"]).unwrap().items().is_empty());

    let future = "redis.call('SET', KEYS[1], cmsgpack.pack({ schema = 99, shards = 1 }))";
    server.command(&["EVAL", future, "1", "future:{0}:meta"]).unwrap();
    fails(
        &["export", url, "--key-prefix", "future:"],
        "",
        "it has schema 99",
    )
    .await;
    fails(
        &["import", url, "--key-prefix", "future:"],
        STREAM,
        "it has schema 99",
    )
    .await;

    let folder = tempfile::tempdir().unwrap();
    let backup = folder.path().join("backup.jsonl");
    std::fs::write(&backup, "an earlier backup").unwrap();
    let args = [
        "export",
        url,
        "--key-prefix",
        "missing:",
        "-o",
        backup.to_str().unwrap(),
    ];
    fails(&args, "", "there is none").await;
    assert_eq!(std::fs::read_to_string(&backup).unwrap(), "an earlier backup");

    succeeds(&["import", url, "--key-prefix", "four:", "--shards", "4"], STREAM).await;
    let args = ["export", url, "--key-prefix", "four:", "--shards", "2"];
    fails(&args, "", "it was created with 4 shards, not 2").await;
    let args = ["export", url, "--key-prefix", "four:", "-o", "/proc/none/backup"];
    fails(&args, "", "/proc/none/backup: No such file").await;

    let nobody = "redis://user:secret@127.0.0.1:1/";
    fails(&["export", nobody], "", "Redis at 127.0.0.1:1 is unavailable").await;
    let output = tidegate(&["export", "redis://user:secret@host:port/"], "").await;
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("is no address of a Redis server"), "{errors}");
    assert!(!errors.contains("secret"), "{errors}");
    fails(
        &["export", "some-folder", "--shards", "3"],
        "",
        "--shards is for a store on Redis",
    )
    .await;
}

#[tokio::test]
async fn what_cannot_be_imported_says_why_and_leaves_nothing() {
    let server = RedisServer::shared();
    let url = &server.url();
    let half = &STREAM[..STREAM.len() / 2];
    let without_end = &STREAM[..STREAM.rfind("{\"end\"").unwrap()];
    for (stream, reason) in [
        (half, "cannot be read: line"),
        (without_end, "a part of it is missing"),
        ("", "does not begin with a Tidegate header"),
    ] {
        fails(&["import", url, "--key-prefix", "torn:"], stream, reason).await;
        let left = server.command(&["KEYS", "torn:*"]).unwrap();
        assert!(left.items().is_empty(), "after {reason:?}: {left:?}");
    }
    let again = ["import", url, "--key-prefix", "full:"];
    succeeds(&again, STREAM).await;
    fails(&again, STREAM, "it is not empty; import makes a new store").await;
    let braces = ["import", url, "--key-prefix", "{a}:"];
    fails(&braces, STREAM, "has a brace").await;
    let none = ["import", url, "--shards", "0"];
    fails(&none, STREAM, "shards = 0: it may be from 1 to 64").await;
}
