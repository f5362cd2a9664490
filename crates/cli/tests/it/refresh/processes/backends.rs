//! What only one backend has: the archive on S3, and a start that refuses a server of another layout.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tidegate_core::clock::{Clock, SystemClock};
use tidegate_core::refresh::Version;
use tidegate_core::time::Millis;
use tidegate_snapshots::postgres::{self, PostgresOptions};
use tidegate_snapshots::{Snapshots, SnapshotsOptions, Write};
use tidegate_testkit::servers::{KafkaServer, PostgresServer, S3Server};
use tokio::process::Command;

use super::fleet::record;

/// Runs the program with this configuration until it ends.
async fn tidegate(config: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tidegate.toml");
    let data = folder.path().join("data").display().to_string();
    std::fs::write(
        &file,
        format!("[store]\ndata = {data:?}\n[server]\nlisten = \"127.0.0.1:0\"\n{config}"),
    )
    .unwrap();
    let run = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg(args[0])
        .arg("--config")
        .arg(&file)
        .args(&args[1..])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(180), run)
        .await
        .expect("the program does not end")
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_goes_from_postgres_to_s3_and_back() {
    let database = PostgresServer::shared().create_database("archived").unwrap();
    let options = PostgresOptions {
        snapshots: SnapshotsOptions {
            history: true,
            ..SnapshotsOptions::default()
        },
        ..PostgresOptions::new(database.clone())
    };
    let snapshots = postgres::open(options).unwrap();
    snapshots.migrate().await.unwrap();
    let now = SystemClock.now();
    for version in 1..=3_u8 {
        let write = Write::Full {
            record: record("anna"),
            version: Version(version.into()),
            data: vec![version; 100].into(),
            hash: [version; 32],
            at: now - Millis((45 - u64::from(version)) * 86_400_000),
        };
        snapshots.write(&[write]).await.unwrap();
    }
    let s3 = S3Server::shared();
    s3.create_bucket("archive").unwrap();
    let config = format!(
        "[refresh.snapshots]\nurl = {database:?}\n[refresh.archive]\nto = \"s3://archive/records\"\nendpoint = {:?}\n\
         region = {:?}\naccess_key_id = {:?}\nsecret_access_key = {:?}\nallow_http = true\n\
         [[refresh.archive.tiers]]\nname = \"warm\"\nfrom_days = 30\n",
        s3.endpoint(),
        s3.region(),
        s3.access_key(),
        s3.secret_key(),
    );
    let run = async |args: &[&str]| -> Vec<Value> {
        let (code, out, errors) = tidegate(&config, args).await;
        assert_eq!(code, Some(0), "{args:?}: {errors}");
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    assert_eq!(run(&["archive", "run", "--json"]).await[0]["rows"], 2);
    let listed = run(&["archive", "list", "--json"]).await;
    assert_eq!(listed.len(), 2, "{listed:?}");
    let restored = run(&["archive", "restore", "--source", "character", "--json"]).await;
    assert_eq!(restored[0]["restored"], 2, "{restored:?}");
    assert_eq!(
        snapshots.record_history(&record("anna"), 10).await.unwrap().len(),
        2
    );
}

const SOURCE: &str = "[budgets.api]\n[sources.character]\nurl = \"http://127.0.0.1:9/{key}\"\ntarget = \"api\"\n\
                      fields = [\"name\"]\n";

/// `serve` refuses this configuration with an error that contains all of `wanted`.
async fn refused(config: &str, wanted: &[&str]) {
    let (code, _, errors) = tidegate(&format!("{SOURCE}{config}"), &["serve"]).await;
    assert_ne!(code, Some(0), "{config}");
    for part in wanted {
        assert!(
            errors.contains(part),
            "the error for {config} lacks {part:?}: {errors}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_with_another_layout_are_refused_with_what_would_be_right() {
    let kafka = KafkaServer::shared();
    kafka.create_topic("odd.update-priority-high", 5).unwrap();
    let config = format!(
        "[refresh.log]\nkind = \"kafka\"\nbrokers = [{:?}]\nreplication_factor = 1\nprefix = \"odd.\"\n",
        kafka.brokers()
    );
    refused(&config, &["odd.update-priority-high", "5", "24"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_version_is_refused_and_not_changed() {
    let server = PostgresServer::shared();
    let url = server.create_database("newer").unwrap();
    postgres::open(PostgresOptions::new(url.clone()))
        .unwrap()
        .migrate()
        .await
        .unwrap();
    server
        .execute("newer", "UPDATE schema_version SET version = 99")
        .unwrap();
    refused(
        &format!("[refresh.snapshots]\nurl = {url:?}\n"),
        &["99", "schema"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_no_database_and_a_database_that_is_unreachable_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("notes.txt");
    std::fs::write(
        &file,
        "these are no tables, only many words, more than a page of them ".repeat(100),
    )
    .unwrap();
    let url = format!("sqlite:{}", file.display());
    refused(
        &format!("[refresh.snapshots]\nurl = {url:?}\n"),
        &["notes.txt", "not a database"],
    )
    .await;
    let nobody = "postgres://nobody@127.0.0.1:1/none";
    refused(
        &format!("[refresh.snapshots]\nurl = {nobody:?}\n"),
        &["127.0.0.1"],
    )
    .await;
    refused(
        "[refresh.snapshots]\nurl = \"oracle://x\"\n",
        &["refresh.snapshots.url", "postgres://"],
    )
    .await;
}
