//! The answer of `/readyz` while the store of the rooms is unavailable, and after it has failed. `/healthz` concerns only the
//! process.

use std::fs::File;
use std::io::Write;
use std::process::Command;

use serde_json::json;
use tidegate_testkit::servers::{RedisOptions, RedisServer};

use super::people::{ROOM, Visitor};
use crate::support::{Backend, Running, config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_not_ready_while_redis_is_unavailable() {
    let mut redis = RedisServer::start(RedisOptions::durable()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The room admits nobody, so that positions do not change.
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
    let reason = "the store of the rooms is unavailable: nobody is let in, and nobody loses a ticket\n";
    let why = running
        .until("/readyz", |body| {
            body.as_str().is_some_and(|body| body.contains(reason))
        })
        .await;
    assert!(!why.to_string().contains("failed"), "{why}");
    assert_eq!(running.get("/readyz").await.0, 503);
    assert_eq!(running.get("/healthz").await, (200, json!("ok\n")));

    redis.restart().unwrap();
    running.until("/readyz", |body| body == "ok\n").await;
    let (status, ticket) = visitors[1].get("ticket").await;
    assert_eq!((status, &ticket["position"]), (200, &json!(2)), "{ticket}");
    running.stop().await;
}

const APART: &str = "TIDEGATE_TEST_SMALL_DISK";

/// The test runs itself again in a mount namespace with a small disk, and fills the disk. It needs the right to create user
/// namespaces, and fails without it.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_is_not_ready_after_its_store_has_failed() {
    if let Some(folder) = std::env::var_os(APART) {
        return fails(folder.as_ref()).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let small = r#"mount -t tmpfs -o size=24m none "$TIDEGATE_TEST_SMALL_DISK" && exec "$0" "$@""#;
    let name = "room::readiness::the_service_is_not_ready_after_its_store_has_failed";
    let mut apart = Command::new("unshare");
    apart
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", small])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", name])
        .env(APART, folder.path());
    let ended = tokio::task::spawn_blocking(move || apart.output()).await.unwrap();
    let ended = ended.unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && output.contains("1 passed"),
        "{output}\n{errors}"
    );
}

/// The test on the small disk.
#[cfg(target_os = "linux")]
async fn fails(disk: &std::path::Path) {
    let folder = tempfile::tempdir_in(disk).unwrap();
    let running = Running::with(config(Backend::Embedded, &folder, ROOM), folder).await;
    running.until("/readyz", |body| body == "ok\n").await;
    let mut filler = File::create(disk.join("filler")).unwrap();
    while filler.write_all(&[0; 4_096]).is_ok() {}
    // The journal has preallocated space, so some joins still succeed.
    let mut joins = 0;
    loop {
        let (status, body) = Visitor::of(&running, "concert").post("join", json!({})).await;
        if status == 503 {
            break;
        }
        joins += 1;
        assert!(status == 200 && joins < 10_000, "{status} {body}");
    }
    let reason = "the store of the rooms has failed: restart the service\n";
    running
        .until("/readyz", |body| {
            body.as_str().is_some_and(|body| body.contains(reason))
        })
        .await;
    assert_eq!(running.get("/readyz").await.0, 503);
    assert_eq!(running.get("/healthz").await, (200, json!("ok\n")));
    running.service.failed().await;
}
