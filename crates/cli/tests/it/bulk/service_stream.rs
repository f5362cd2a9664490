//! A million jobs in one stream: neither the client nor the server holds them in memory.

use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;
use served::{Served, free_port, memory_now, peak_memory};
use tidegate_testkit::servers::{RedisOptions, RedisServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::support::served;

const MIB: u64 = 1024 * 1024;
/// Each line has some 200 bytes: a client or server that kept them would need 200 MB.
const FILLER: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";

/// Pipes jobs through `tidegate submit`; its summary, and the most memory it had.
async fn submit(url: &str, jobs: u64) -> (Value, u64) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["submit", "-", "--json", "--url", url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = process.id().unwrap();
    let mut stdin = process.stdin.take().unwrap();
    let mut peak = 0;
    let mut lines = String::new();
    for n in 0..jobs {
        let group = n % 10;
        lines += &format!(
            "{{\"group\":\"g{group}\",\"batch\":\"bulk\",\"id\":\"job-{n}\",\"type\":\"MAIL\",\"payload\":{{\"n\":{n},\"text\":\"{FILLER}\"}}}}\n"
        );
        if lines.len() > 64 * 1024 {
            stdin.write_all(lines.as_bytes()).await.unwrap();
            lines.clear();
            peak = peak.max(peak_memory(pid));
        }
    }
    stdin.write_all(lines.as_bytes()).await.unwrap();
    drop(stdin);
    let mut said = String::new();
    process
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .await
        .unwrap();
    let status = process.wait().await.unwrap();
    assert!(status.success(), "{status}: {said}");
    (serde_json::from_str(&said).unwrap(), peak)
}

/// The server's memory may grow by what its store keeps of a job, and no more.
async fn flat(settings: &str, jobs: u64, kept_per_job: u64) {
    let folder = tempfile::tempdir().unwrap();
    let service = Served::start(folder.path(), free_port(), settings).await;
    let (_, _) = submit(&service.url, 1_000).await;
    let before = memory_now(service.pid());
    let begun = Instant::now();
    let (summary, client) = submit(&service.url, jobs).await;
    let took = begun.elapsed();
    assert_eq!(summary["accepted"].as_u64().unwrap(), jobs - 1_000, "{summary}");
    assert_eq!(summary["duplicates"], 1_000, "{summary}");
    let after = memory_now(service.pid());
    assert!(client < 64 * MIB, "the client took {} MiB", client / MIB);
    let grown = after.saturating_sub(before);
    let allowed = jobs * kept_per_job + 96 * MIB;
    assert!(grown < allowed, "the server grew by {} MiB", grown / MIB);
    // The same again: all jobs are duplicates, and nothing grows.
    let (summary, _) = submit(&service.url, jobs).await;
    assert_eq!(summary["duplicates"].as_u64().unwrap(), jobs, "{summary}");
    let again = memory_now(service.pid()).saturating_sub(after);
    assert!(
        again < 64 * MIB,
        "the server grew by {} MiB over duplicates",
        again / MIB
    );
    println!(
        "{jobs} jobs in {took:.1?}: client at most {} MiB, server {} MiB before, {} MiB after, {} MiB more for the same again",
        client / MIB,
        before / MIB,
        after / MIB,
        again / MIB
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_jobs_on_the_embedded_store() {
    // The embedded store keeps an index in memory: some 150 bytes per job, as ARCHITECTURE.md says.
    flat("", 1_000_000, 256).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_thousand_jobs_on_redis() {
    let redis = RedisServer::start(RedisOptions::default()).unwrap();
    flat(&format!("[redis]\nurls = [\"{}\"]", redis.url()), 200_000, 0).await;
}
