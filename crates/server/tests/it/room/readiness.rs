//! What `/readyz` says while the store of the rooms is away, and when it has failed. `/healthz` is about the process.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use serde_json::json;
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use super::people::{ROOM, Visitor};
use crate::support::{Backend, Running, config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_redis_is_away_it_is_not_ready_and_then_it_is_again() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // Nobody is let in, so that everybody's place stays as it is.
    let text = ROOM
        .replace("inside = 1", "inside = 0")
        .replace("grace_ms = 60000", "grace_ms = 600000");
    let mut settings = config(Backend::Redis, &folder, &text);
    settings.redis.urls = vec![redis.url().into()];
    let running = Running::with(settings, folder).await;
    running.until("/readyz", |body| body == "ok\n").await;
    let mut visitors = [(); 2].map(|()| Visitor::of(&running, "concert"));
    for visitor in &mut visitors {
        assert_eq!(visitor.post("join", json!({})).await.0, 200);
    }

    redis.kill().unwrap();
    let says = "the store of the rooms is away: nobody is let in, and nobody loses a place\n";
    let why = running
        .until("/readyz", |body| {
            body.as_str().is_some_and(|body| body.contains(says))
        })
        .await;
    assert!(!why.to_string().contains("failed"), "{why}");
    assert_eq!(running.get("/readyz").await.0, 503);
    assert_eq!(running.get("/healthz").await, (200, json!("ok\n")));

    redis.restart().unwrap();
    running.until("/readyz", |body| body == "ok\n").await;
    let (status, place) = visitors[1].get("ticket").await;
    assert_eq!((status, &place["position"]), (200, &json!(2)), "{place}");
    running.stop().await;
}

const APART: &str = "TIDEGATE_TEST_SMALL_DISK";

/// The test runs itself again where a disk of its own can be mounted, which is then full. Where users may make namespaces this
/// needs no other rights; where they may not, and root neither, it fails.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_failed_is_not_ready_and_says_so() {
    if let Some(folder) = std::env::var_os(APART) {
        return fails(folder.as_ref()).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let small = r#"mount -t tmpfs -o size=24m none "$TIDEGATE_TEST_SMALL_DISK" && exec "$0" "$@""#;
    let name = "room::readiness::a_store_that_has_failed_is_not_ready_and_says_so";
    let mut apart = Command::new("unshare");
    apart
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", small])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", name])
        .env(APART, folder.path());
    let ended = tokio::task::spawn_blocking(move || apart.output()).await.unwrap();
    let ended = ended.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && said.contains("1 passed"),
        "{said}\n{errors}"
    );
}

/// With a small disk.
#[cfg(target_os = "linux")]
async fn fails(disk: &std::path::Path) {
    let folder = tempfile::tempdir_in(disk).unwrap();
    let running = Running::with(config(Backend::Embedded, &folder, ROOM), folder).await;
    running.until("/readyz", |body| body == "ok\n").await;
    let mut filler = File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4_096]).is_ok() {}
    // The journal has some room of its own.
    let mut joins = 0;
    loop {
        let (status, body) = Visitor::of(&running, "concert").post("join", json!({})).await;
        if status == 503 {
            break;
        }
        joins += 1;
        assert!(status == 200 && joins < 10_000, "{status} {body}");
    }
    let says = "the store of the rooms has failed: start the service again\n";
    running
        .until("/readyz", |body| {
            body.as_str().is_some_and(|body| body.contains(says))
        })
        .await;
    assert_eq!(running.get("/readyz").await.0, 503);
    assert_eq!(running.get("/healthz").await, (200, json!("ok\n")));
    running.service.failed().await;
}
