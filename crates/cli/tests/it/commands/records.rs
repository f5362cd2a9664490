//! The commands of the refresh module, against a real service and a simulated provider.

use command::{fails, succeeds, tidegate};
use serde_json::Value;
use served::{Served, free_port};
use tempfile::TempDir;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::ids::{RecordKey, SourceId};
use tidegate_core::refresh::Version;
use tidegate_core::time::Millis;
use tidegate_snapshots::sqlite::SqliteOptions;
use tidegate_snapshots::{RecordRef, Snapshots, Write};
use tidegate_upstream::{Answer, Upstream, UpstreamSettings};

use crate::support::{command, served};

struct World {
    upstream: Upstream,
    served: Served,
    _folder: TempDir,
}

async fn world(change: impl FnOnce(&mut UpstreamSettings)) -> World {
    let mut settings = UpstreamSettings {
        payload_bytes: 24_000,
        ..UpstreamSettings::default()
    };
    change(&mut settings);
    let upstream = Upstream::start(settings).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[budgets.api]\n[sources.character]\nurl = \"{}/character/{{key}}\"\ntarget = \"api\"\n\
         connect_timeout_ms = 60000\ntimeout_ms = 60000\n\
         fields = [\"character_name\", \"revision\"]\nprefetch = false\n[refresh.query]\ncache_ttl_ms = 50\n\
         request_wait_ms = 20000\nrequest_timeout_ms = 20000\nread_timeout_ms = 20000\n\
         [refresh.log]\nsend_timeout_ms = 20000\n[refresh.coalescer]\nsend_timeout_ms = 60000\n\
         [refresh.breaker]\nslow_ms = 20000\n\
         [refresh.work]\nhigh_flush_ms = 10\n[refresh.watch]\nfollow_every_ms = 100\n",
        upstream.url()
    );
    let served = Served::start(folder.path(), free_port(), &text).await;
    World {
        upstream,
        served,
        _folder: folder,
    }
}

impl World {
    async fn ok(&self, args: &[&str]) -> String {
        let (out, err) = succeeds(&[args, &["--url", &self.served.url]].concat(), "").await;
        assert!(err.is_empty(), "{args:?}: {err}");
        out
    }

    async fn json(&self, args: &[&str]) -> Vec<Value> {
        let out = self.ok(&[args, &["--json"]].concat()).await;
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    async fn code(&self, args: &[&str]) -> i32 {
        let args = [args, &["--url", &self.served.url]].concat();
        tidegate(&args, "").await.status.code().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_got_followed_and_refreshed() {
    let world = world(|_| {}).await;
    let first = world.json(&["record", "get", "character", "anna"]).await;
    assert_eq!(first[0]["freshness"], "UPDATING", "{first:?}");
    let followed = world.json(&["record", "follow", "character", "anna"]).await;
    assert_eq!(followed.last().unwrap()["freshness"], "FRESH", "{followed:?}");
    let text = world.ok(&["record", "get", "character", "anna"]).await;
    assert!(
        text.contains("FRESH") && text.contains("\"character_name\""),
        "{text}"
    );
    let requested = world.json(&["record", "refresh", "character", "bert"]).await;
    assert_eq!(requested[0]["outcome"], "PUBLISHED", "{requested:?}");
    let done = world
        .json(&["record", "refresh", "character", "anna", "--wait"])
        .await;
    assert_eq!(done[0]["freshness"], "FRESH");
    assert!(
        done[0]["version"].as_u64() > followed.last().unwrap()["version"].as_u64(),
        "{done:?}"
    );

    world.json(&["record", "follow", "character", "bert"]).await;
    assert_eq!(
        world.code(&["record", "follow", "character", "missing-1"]).await,
        3
    );
    assert_eq!(world.code(&["record", "get", "charakter", "anna"]).await, 3);
    assert_eq!(world.code(&["record", "get", "character", "a b"]).await, 1);

    let status = world.json(&["refresh", "status"]).await;
    assert_eq!(status[0]["budgets"][0]["name"], "api", "{status:?}");
    let text = world.ok(&["refresh", "status"]).await;
    assert!(text.contains("BUDGET") && text.contains("api"), "{text}");
    let released = world
        .ok(&["refresh", "release", "api", "--why", "to be sure"])
        .await;
    assert_eq!(released, "api was not held\n");
    assert_eq!(world.code(&["refresh", "release", "apu"]).await, 3);
    assert_eq!(world.upstream.report().violations(), 0);
    world.served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_shown_replayed_and_purged() {
    let odd = |settings: &mut UpstreamSettings| {
        settings.answers.insert("anna".into(), Answer::Error400);
        settings.answers.insert("bert".into(), Answer::WrongType);
    };
    let world = world(odd).await;
    for key in ["anna", "bert"] {
        world.ok(&["record", "get", "character", key]).await;
    }
    let list = ["refresh", "dead", "list"];
    let begun = std::time::Instant::now();
    let mut dead_letters = Vec::new();
    while dead_letters.len() < 2 {
        assert!(begun.elapsed() < served::PATIENCE, "{dead_letters:?}");
        dead_letters = world.json(&list).await;
    }
    let anna = dead_letters
        .iter()
        .find(|dead_letter| dead_letter["key"] == "anna")
        .unwrap();
    let position = anna["position"].as_str().unwrap();
    let text = world.ok(&list).await;
    assert!(text.contains("API_4XX") && text.contains("POSITION"), "{text}");
    let shown = world.json(&["refresh", "dead", "show", position]).await;
    assert_eq!(&shown[0], anna);
    assert_eq!(world.code(&["refresh", "dead", "show", "0-999999"]).await, 3);
    world.upstream.set(|settings| settings.answers.clear()).unwrap();
    let done = world
        .json(&["refresh", "dead", "replay", "--at", position, "--why", "repaired"])
        .await;
    assert_eq!(done[0]["handled"], 1, "{done:?}");
    assert_eq!(
        world.code(&["refresh", "dead", "replay", "--at", position]).await,
        1
    );
    let url = world.served.url.clone();
    fails(
        &["refresh", "dead", "purge", "--url", &url],
        "",
        "nothing is selected",
    )
    .await;
    fails(
        &["refresh", "dead", "purge", "--all", "--url", &url],
        "",
        "pass --yes",
    )
    .await;
    let done = world.json(&["refresh", "dead", "purge", "--all", "--yes"]).await;
    assert_eq!(done[0]["handled"], 1, "{done:?}");
    assert_eq!(world.ok(&list).await, "");
    world.served.stop().await;
}

/// Three versions of one record, the last of them 40 days ago: two are history.
async fn old_history(file: &std::path::Path) {
    let snapshots = tidegate_snapshots::sqlite::open(SqliteOptions::new(file))
        .await
        .unwrap();
    snapshots.migrate().await.unwrap();
    let now = SystemClock.now();
    let write = |version: u8| Write::Full {
        record: RecordRef {
            source: SourceId::new("character").unwrap(),
            key: RecordKey::new("anna").unwrap(),
        },
        version: Version(version.into()),
        data: vec![version; 100].into(),
        hash: [version; 32],
        at: now - Millis((45 - u64::from(version)) * 86_400_000),
    };
    for version in 1..=3 {
        snapshots.write(&[write(version)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_is_archived_listed_and_restored() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).unwrap();
    old_history(&data.join("snapshots.db")).await;
    let file = folder.path().join("tidegate.toml");
    let archive = folder.path().join("archive");
    std::fs::write(
        &file,
        format!("[store]\ndata = {data:?}\n[refresh.archive]\nto = {archive:?}\n"),
    )
    .unwrap();
    let file = file.to_str().unwrap();
    let run = |args: &'static [&'static str]| async move {
        let args = [&["archive", "--config", file, "--json"], args].concat();
        let (out, _) = succeeds(&args, "").await;
        let lines = out
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.collect::<Vec<_>>()
    };
    let report = run(&["run"]).await;
    assert_eq!(report[0]["rows"], 2, "{report:?}");
    let listed = run(&["list"]).await;
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(
        listed[0]["object"]
            .as_str()
            .unwrap()
            .starts_with("warm/character/"),
        "{listed:?}"
    );
    assert_eq!(run(&["list", "--source", "other"]).await, Vec::<Value>::new());
    // Archived rows are not archived again.
    assert_eq!(run(&["run"]).await[0]["rows"], 0);
    let report = run(&["restore", "--source", "character", "--key", "anna"]).await;
    assert_eq!(
        (&report[0]["found"], &report[0]["restored"]),
        (&2.into(), &2.into()),
        "{report:?}"
    );
    assert_eq!(run(&["restore"]).await[0]["restored"], 0);

    let none = folder.path().join("none.toml");
    std::fs::write(&none, "").unwrap();
    let output = tidegate(&["archive", "--config", none.to_str().unwrap(), "run"], "").await;
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("refresh.archive.to is not set"), "{errors}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_is_made_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", folder.path().join("records.db").display());
    let set = format!("refresh.snapshots.url={database:?}");
    for _ in 0..2 {
        let (out, _) = succeeds(&["migrate", "--set", &set, "--json"], "").await;
        let done: Value = serde_json::from_str(&out).unwrap();
        assert!(done["schema"].as_u64() >= Some(1), "{done}");
    }
    let snapshots = SqliteOptions::new(folder.path().join("records.db"));
    let snapshots = tidegate_snapshots::sqlite::open(snapshots).await.unwrap();
    snapshots.check().await.unwrap();
    let odd = tidegate(&["migrate", "--set", "refresh.snapshots.url=\"oracle://x\""], "").await;
    assert_eq!(odd.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_benchmark_of_refreshes_has_its_fields_and_keeps_the_limits() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let args = [
        "bench",
        "refresh",
        "--seconds",
        "5",
        "--payload",
        "8000",
        "--only",
        "peak,herd,unchanged,projection",
        "--json",
        "--dir",
        dir,
    ];
    let (out, _) = succeeds(&args, "").await;
    let figures: Value = serde_json::from_str(&out).unwrap();
    let peak = &figures["peak"];
    assert_eq!(peak["overALimit"], 0, "{figures}");
    // Counts and speed depend on the machine.
    for name in ["callsPerSec", "mostInASecond", "reads", "readsFailed"] {
        assert!(peak[name].is_number(), "{name}: {figures}");
    }
    assert!(
        peak["readP50Ms"].as_f64() <= peak["readP99Ms"].as_f64(),
        "{figures}"
    );
    // One call, and another one for every five seconds that a slow machine needs for a thousand readers.
    let calls = figures["herd"]["calls"].as_u64().unwrap();
    assert!((1..10).contains(&calls), "{figures}");
    assert_eq!(figures["unchanged"]["requestedWhileFresh"], 0, "{figures}");
    assert!(
        figures["projection"]["projectPerSec"].as_f64() > Some(0.0),
        "{figures}"
    );
    assert!(figures["flood"].is_null(), "{figures}");
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "the benchmark cleans up"
    );
    fails(
        &["bench", "refresh", "--processes", "2"],
        "",
        "--redis and --snapshots",
    )
    .await;
}
