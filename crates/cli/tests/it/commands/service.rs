//! The commands that talk to a service, against a real one.

use std::fmt::Write;
use std::time::Instant;

use command::{fails, succeeds, tidegate};
use serde_json::Value;
use service::{DEADLINE, Running, start};
use tidegate_client::{
    Destination, JobOutcome, JobState, Lease, LeasedJob, Outcome, Settlement, Worker, new_job,
};

use crate::support::{command, service};

struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

impl Running {
    /// Runs a command against this service.
    async fn run(&self, args: &[&str], input: &str) -> CommandOutput {
        let args = [args, &["--url", &self.url]].concat();
        let output = tidegate(&args, input).await;
        CommandOutput {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// What a command prints that must succeed.
    async fn ok(&self, args: &[&str]) -> String {
        let (out, err) = succeeds(&[args, &["--url", &self.url]].concat(), "").await;
        assert!(err.is_empty(), "{args:?}: {err}");
        out
    }

    async fn json(&self, args: &[&str]) -> Vec<Value> {
        let out = self.ok(&[args, &["--json"]].concat()).await;
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Settles this many jobs as failed.
    async fn fail(&self, jobs: u32) {
        let mut leased = Vec::new();
        let begun = Instant::now();
        // A call returns with the first jobs that are ready.
        while leased.len() < jobs as usize {
            assert!(begun.elapsed() < DEADLINE, "only {} jobs come", leased.len());
            let request = Lease {
                max: Some(jobs - leased.len() as u32),
                wait_ms: Some(10_000),
                ..Lease::default()
            };
            leased.extend(self.client.lease(&request).await.unwrap().jobs);
        }
        let answer = |job: LeasedJob| Settlement {
            lease: job.lease,
            outcome: JobOutcome::Failed,
            result: None,
            error: Some("no such mailbox".into()),
            retry_after_ms: None,
            scope: None,
            overloaded: false,
            cost: None,
        };
        let answers: Vec<Settlement> = leased.into_iter().map(answer).collect();
        self.client.settle(&answers).await.unwrap();
    }

    async fn jobs(&self, group: &str, batch: &str, ids: std::ops::Range<u64>) {
        let jobs: Vec<_> = ids
            .map(|id| new_job(format!("{id}"), "SEND", &id).unwrap())
            .collect();
        let destination = Destination::batch(group, batch).seal();
        self.client.enqueue_in(&destination, &jobs).await.unwrap();
    }
}

fn lines(ids: std::ops::Range<u32>) -> String {
    ids.fold(String::new(), |mut text, id| {
        writeln!(text, r#"{{"id":"{id}","payload":{{"n":{id}}}}}"#).unwrap();
        text
    })
}

#[tokio::test]
async fn a_file_and_standard_input_are_submitted() {
    let service = start("").await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("jobs.ndjson");
    std::fs::write(&file, lines(0..2_500)).unwrap();
    let file = file.to_str().unwrap();
    let args = [
        "submit", file, "--group", "A", "--batch", "x", "--type", "SEND", "--seal",
    ];
    assert_eq!(
        service.ok(&args).await,
        "2500 accepted, 0 known already, 0 refused\n"
    );
    let batch = service.client.batch("A", "x").await.unwrap();
    assert!(batch.sealed);
    assert_eq!(batch.counts.total, 2_500);
    let job = service.client.job("A", "7").await.unwrap();
    assert_eq!((job.kind.as_str(), job.payload.get()), ("SEND", r#"{"n":7}"#));

    let args = [
        "submit", "-", "--group", "B", "--type", "SEND", "--chunk", "1000", "--json",
    ];
    let output = service.run(&args, &lines(0..2_500)).await;
    assert_eq!((output.code, output.err.as_str()), (0, ""));
    let done: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&done["accepted"], &done["refused"]), (&2_500.into(), &0.into()));

    let each =
        "{\"group\":\"C\",\"id\":\"1\",\"type\":\"SEND\"}\n{\"group\":\"D\",\"id\":\"1\",\"type\":\"SEND\"}";
    assert_eq!(
        service.run(&["submit", "-"], each).await.out,
        "2 accepted, 0 known already, 0 refused\n"
    );
    assert_eq!(
        service.run(&["submit", "-"], each).await.out,
        "0 accepted, 2 known already, 0 refused\n"
    );
}

#[tokio::test]
async fn a_batch_with_refused_jobs_is_not_sealed_and_says_so() {
    let service = start("").await;
    let args = [
        "submit", "-", "--group", "A", "--batch", "x", "--type", "SEND", "--seal",
    ];
    let output = service.run(&args, "{\"id\":\"1\"}\n{\"id\":\"\"}\n").await;
    assert_eq!(output.code, 1);
    assert!(
        output
            .err
            .contains("the batch was not sealed, because 1 jobs were refused"),
        "{}",
        output.err
    );
    assert!(!service.client.batch("A", "x").await.unwrap().sealed);
}

#[tokio::test]
async fn refused_jobs_are_named_and_the_rest_is_accepted() {
    let service = start("").await;
    let input = "{\"id\":\"1\",\"type\":\"SEND\"}\nnonsense\n{\"id\":\"\",\"type\":\"SEND\"}\n";
    for chunk in [&[][..], &["--chunk", "1"]] {
        let args = [&["submit", "-", "--group", "A"], chunk].concat();
        let output = service.run(&args, input).await;
        assert_eq!(output.code, 1, "{}", output.err);
        assert!(output.out.ends_with("2 refused\n"), "{}", output.out);
        assert!(
            output.err.starts_with("tidegate: job 2 was refused: "),
            "{}",
            output.err
        );
        assert!(
            output.err.contains("\ntidegate: job 3 () was refused: "),
            "{}",
            output.err
        );
    }
    let args = ["submit", "/does/not/exist", "--url", &service.url];
    fails(&args, "", "/does/not/exist: No such file").await;
    let output = service.run(&["submit", "-", "--seal"], "").await;
    assert_eq!(output.code, 2, "a seal needs a batch");
}

#[tokio::test]
async fn groups_and_batches_are_shown_and_changed() {
    let service = start("").await;
    service.jobs("A", "x", 0..3).await;
    service.jobs("\u{1b}[31m", "y", 0..1).await;
    let table = service.ok(&["group", "list"]).await;
    let mut rows = table.lines();
    assert!(rows.next().unwrap().starts_with("GROUP "), "{table}");
    assert_eq!(
        rows.next()
            .unwrap()
            .split_whitespace()
            .take(4)
            .collect::<Vec<_>>(),
        ["A", "1", "active", "3"]
    );
    assert!(
        !table.contains('\u{1b}'),
        "names cannot colour the terminal: {table:?}"
    );
    assert_eq!(service.json(&["group", "list", "--limit", "1"]).await.len(), 1);
    assert_eq!(service.json(&["group", "list", "--all"]).await.len(), 2);

    assert!(
        service
            .ok(&["group", "show", "A"])
            .await
            .contains("share of window")
    );
    let paused = service.ok(&["group", "pause", "A", "--why", "they asked"]).await;
    let state = ["state", "paused"];
    assert!(
        paused.lines().any(|line| line.split_whitespace().eq(state)),
        "{paused}"
    );
    assert_eq!(service.json(&["group", "resume", "A"]).await[0]["paused"], false);
    assert_eq!(
        service.json(&["group", "weight", "A", "2"]).await[0]["weight"],
        2.0
    );
    service.ok(&["group", "limit", "A", "--max-running", "5"]).await;
    let limited = ["group", "limit", "A", "--queue", "mail", "--rate", "30/min"];
    let group = service.json(&limited).await;
    assert_eq!(group[0]["limits"]["maxRunning"], 5, "the other limit stays");
    assert_eq!(group[0]["limits"]["queues"]["mail"]["rate"], "30/min");
    let shown = service.ok(&["group", "limit", "A", "--queue", "mail"]).await;
    assert!(
        shown.contains("at most 5 running\n") && !shown.contains("30/min"),
        "{shown}"
    );
    service.ok(&["group", "reset-stats", "A"]).await;
    assert!(
        service
            .ok(&["job", "show", "A", "1"])
            .await
            .contains("state      WAITING\n")
    );

    let open = [
        "batch",
        "open",
        "A",
        "z",
        "--failure-threshold",
        "50",
        "--base-priority",
        "-5",
    ];
    assert_eq!(service.json(&open).await[0]["status"], "CREATED");
    assert_eq!(
        service.ok(&["batch", "seal", "A", "z"]).await,
        "sealed with 0 jobs\n"
    );
    assert!(service.ok(&["batch", "pause", "A", "x"]).await.contains("PAUSED"));
    service.ok(&["batch", "resume", "A", "x"]).await;
    assert_eq!(service.json(&["batch", "results", "A", "x"]).await.len(), 3);
    assert!(
        service
            .ok(&["batch", "results", "A", "x", "--limit", "2"])
            .await
            .lines()
            .count()
            == 3
    );
    assert_eq!(
        service.ok(&["batch", "cancel", "A", "x"]).await,
        "3 cancelled, 0 still running\n"
    );
    assert_eq!(
        service.ok(&["group", "cancel", "A"]).await,
        "0 cancelled, 0 still running\n"
    );
    assert!(
        service
            .ok(&["batch", "show", "A", "x"])
            .await
            .to_lowercase()
            .contains("cancelled")
    );
    service.jobs("B", "w", 0..1).await;
    service.ok(&["group", "pause", "\u{1b}[31m"]).await;
    service.fail(1).await;
    let retried = service.json(&["job", "replay", "B", "0", "--why", "again"]).await;
    assert_eq!(retried[0]["state"], "WAITING");

    assert!(service.ok(&["stats"]).await.contains("embedded available"));
    assert_eq!(service.json(&["stats"]).await[0]["store"]["backend"], "EMBEDDED");
    assert!(service.ok(&["targets", "list"]).await.starts_with("TARGET"));
}

#[tokio::test]
async fn dead_jobs_are_listed_replayed_and_purged() {
    let service = start("").await;
    service.jobs("A", "x", 0..4).await;
    service.fail(4).await;
    let table = service
        .ok(&["dead", "list", "--group", "A", "--reason", "failed"])
        .await;
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(table.contains("no such mailbox"), "{table}");
    assert_eq!(service.json(&["dead", "list", "--type", "OTHER"]).await.len(), 0);

    let none = service.run(&["dead", "replay"], "").await;
    assert_eq!(none.code, 1);
    assert!(none.err.contains("nothing is selected"), "{}", none.err);
    let one = service
        .ok(&["dead", "replay", "--group", "A", "--job", "1"])
        .await;
    assert_eq!(one, "1 replayed, 0 skipped\n");
    assert_eq!(
        service.client.job("A", "1").await.unwrap().state,
        JobState::Waiting
    );
    let again = service
        .run(&["dead", "replay", "--group", "A", "--job", "1"], "")
        .await;
    assert_eq!((again.code, again.out.as_str()), (1, "0 replayed, 1 skipped\n"));
    assert!(
        again.err.contains("A/1: ") && again.err.contains("(not_dead)"),
        "{}",
        again.err
    );

    let careless = service.run(&["dead", "purge", "--all"], "").await;
    assert_eq!(careless.code, 1);
    assert!(careless.err.contains("pass --yes"), "{}", careless.err);
    assert_eq!(
        service.ok(&["dead", "purge", "--all", "--yes"]).await,
        "3 purged, 0 skipped\n"
    );
    assert_eq!(service.json(&["dead", "list"]).await.len(), 0);
}

#[tokio::test]
async fn jobs_are_listed_and_changed() {
    let service = start("").await;
    service.jobs("A", "x", 0..4).await;
    let table = service
        .ok(&["jobs", "list", "--group", "A", "--state", "waiting"])
        .await;
    assert_eq!(table.lines().count(), 5, "{table}");
    let later = "2199-01-01T00:00:00Z";
    let done = service.ok(&["jobs", "reschedule", later, "--group", "A"]).await;
    assert_eq!(done, "4 rescheduled, 0 skipped\n");
    let done = service
        .ok(&["jobs", "run-now", "--state", "delayed", "--why", "a mistake"])
        .await;
    assert_eq!(done, "4 waiting for their turn, 0 skipped\n");
    let done = service
        .ok(&["jobs", "reprioritise", "high", "--group", "A", "--job", "1"])
        .await;
    assert_eq!(done, "1 reprioritised, 0 skipped\n");
    let shown = service.ok(&["job", "show", "A", "1"]).await;
    assert!(
        shown.contains("created") && shown.to_lowercase().contains("high"),
        "{shown}"
    );
    let one = service.json(&["job", "cancel", "A", "1"]).await;
    assert_eq!(one[0]["deathReason"], "CANCELLED");
    let again = service.run(&["job", "run-now", "A", "1"], "").await;
    assert!(
        again.code != 0 && again.err.contains("replay or purge"),
        "{}",
        again.err
    );
    service.fail(1).await;
    let failed = service.ok(&["jobs", "list", "--state", "dead", "--json"]).await;
    assert!(failed.contains("no such mailbox"), "{failed}");
    let careless = service.run(&["jobs", "cancel", "--all"], "").await;
    assert!(careless.err.contains("pass --yes"), "{}", careless.err);
    let done = service.ok(&["jobs", "cancel", "--all", "--yes"]).await;
    assert_eq!(done, "2 cancelled, 0 skipped\n");
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let done = service
        .ok(&["jobs", "drop-finished", "--older-than-sec", "0"])
        .await;
    assert!(done.starts_with("4 jobs"), "{done}");
}

#[tokio::test]
async fn limits_are_changed_and_reasons_are_shown() {
    let service = start("").await;
    service.jobs("A", "x", 0..2).await;
    let changed = service
        .ok(&["limits", "set", "--rate", "3000/min", "--why", "quiet"])
        .await;
    assert!(
        changed.contains("3000/min\n") && changed.contains("quiet"),
        "{changed}"
    );
    let of_queue = [
        "limits",
        "set",
        "--queue",
        "default",
        "--group-rate",
        "600/h",
        "--max-running",
        "4",
    ];
    let changed = service.ok(&of_queue).await;
    assert!(
        changed.contains("default: at most 4 running, 600/h per group\n"),
        "{changed}"
    );
    assert_eq!(service.json(&["limits", "show"]).await[0]["rate"], "3000/min");
    let reset = service.json(&["limits", "reset", "--all"]).await;
    assert_eq!(reset[0]["rate"], "100000/s");
    assert_eq!(reset[0]["queues"].as_array().unwrap().len(), 0);
    assert_eq!(service.run(&["limits", "set"], "").await.code, 1);

    assert!(
        service
            .ok(&["why", "A", "1"])
            .await
            .contains("ehind one job of its group")
    );
    assert!(service.json(&["why", "A"]).await[0]["reasons"].is_array());
}

#[tokio::test]
async fn a_batch_is_watched_until_it_completes() {
    let service = start("").await;
    service.jobs("A", "good", 0..50).await;
    service.jobs("A", "bad", 50..51).await;
    let worker = {
        let client = service.client.clone();
        let handler = |job: LeasedJob| async move {
            match &*job.batch {
                "bad" => Outcome::failed("no such mailbox"),
                _ => Outcome::completed(),
            }
        };
        tokio::spawn(Worker::new(client).run(handler, std::future::pending()))
    };
    let good = service.json(&["watch", "A", "good"]).await;
    let last = good.last().unwrap();
    assert_eq!(
        (&last["status"], &last["counts"]["success"]),
        (&"COMPLETED".into(), &50.into())
    );
    let bad = service.run(&["watch", "A", "bad"], "").await;
    assert_eq!(bad.code, 1);
    assert!(
        bad.out.ends_with("bad: 1 of 1, FAILED, 1 failed\n"),
        "{}",
        bad.out
    );
    let both = service.run(&["watch", "A"], "").await;
    assert_eq!(both.code, 1);
    assert!(both.out.contains("good: 50 of 50, COMPLETED\n"), "{}", both.out);
    assert_eq!(both.err, "tidegate: a batch of group A FAILED\n");
    worker.abort();
}

#[tokio::test]
async fn exit_codes_tell_what_happened() {
    let service = start("").await;
    for (args, code, text) in [
        (&["group", "show", "nobody"][..], 3, "(unknown_group), request "),
        (&["job", "show", "A", "1"], 3, "(unknown_group)"),
        (&["targets", "enable", "nobody"], 3, "(unknown_target)"),
        (
            &["group", "weight", "A", "1000"],
            1,
            "it must be from 0.015625 to 64 (invalid)",
        ),
        (&["group", "weight", "A", "heavy"], 2, "invalid value 'heavy'"),
        (&["watch", "A", "nothing"], 3, "(unknown_group)"),
    ] {
        let output = service.run(args, "").await;
        assert_eq!(output.code, code, "{args:?}: {}", output.err);
        assert!(output.err.contains(text), "{args:?}: {}", output.err);
        assert!(output.out.is_empty(), "{args:?}: {}", output.out);
    }
    let mistaken = tidegate(&["stats", "--url", "localhost:7171"], "").await;
    assert_eq!(mistaken.status.code(), Some(1));
    let help = tidegate(&["--help"], "").await;
    assert!(String::from_utf8(help.stdout).unwrap().contains("Exit codes"));
}

#[tokio::test]
async fn a_service_that_is_unreachable_has_an_exit_code_of_its_own() {
    // Bound but not listening: no other process can take the port.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gone = format!("http://{}", socket.local_addr().unwrap());
    let refused = tokio::time::timeout(DEADLINE, tidegate(&["stats", "--url", &gone], ""))
        .await
        .unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(5), "{text}");
    assert!(
        text.starts_with(&format!("tidegate: cannot reach {gone}: ")),
        "{text}"
    );
}

#[tokio::test]
async fn a_key_comes_from_a_file_and_is_not_printed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "tg_secret\nof two lines\n").unwrap();
    let output = tidegate(&["stats", "--key-file", file.to_str().unwrap()], "").await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("is it the right file?") && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test]
async fn the_benchmark_of_the_port_has_its_fields() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    let args = [
        "bench", "http", "--jobs", "2000", "--groups", "3", "--json", "--dir", dir,
    ];
    let output = tidegate(&args, "").await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let figures: Value = serde_json::from_slice(&output.stdout).unwrap();
    for field in [
        "enqueuePerSec",
        "workPerSec",
        "lifecyclePerSec",
        "floorCallsPerSec",
        "floorJobsPerSec",
        "storeLifecyclePerSec",
        "serverMemoryBytes",
    ] {
        assert!(figures[field].as_u64().unwrap() > 0, "{field}: {figures}");
    }
    for call in ["enqueue", "lease", "settle"] {
        let (p50, p99) = (&figures[format!("{call}P50Ms")], &figures[format!("{call}P99Ms")]);
        assert!(
            p50.as_f64().unwrap() <= p99.as_f64().unwrap(),
            "{call}: {figures}"
        );
    }
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "the benchmark cleans up"
    );
}
