//! The example workers and receivers in other languages, against a real service.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::TryStreamExt;
use service::{DEADLINE, Running, start};
use tidegate_client::{BatchStatus, Destination, JobState, NewJob, OpenBatch, new_job};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::service;

/// A published example of the specification: this secret, id, time and body have this signature.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
const AT: &str = "1614265330";
const BODY: &str = r#"{"test": 2432232314}"#;
const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workers")
}

/// The TypeScript examples without their types, in a folder of the test's own.
async fn erased(folder: &Path) {
    assert!(
        examples().join("node_modules/typescript").exists(),
        "the TypeScript compiler is missing: run `npm ci` in examples/workers"
    );
    let status = Command::new("node")
        .current_dir(examples())
        .arg("erase.mjs")
        .arg(folder)
        .args(["worker.ts", "receiver.ts"])
        .status();
    assert!(status.await.expect("node is needed").success());
}

fn python() -> Command {
    let mut command = Command::new("python3");
    // No files beside the examples.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

async fn ended(child: &mut Child) -> Option<i32> {
    let status = tokio::time::timeout(DEADLINE, child.wait()).await;
    status.expect("it does not end").unwrap().code()
}

fn terminate(child: &Child) {
    let id = child.id().unwrap().try_into().unwrap();
    let id = rustix::process::Pid::from_raw(id).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
}

fn job(id: &str, payload: serde_json::Value) -> NewJob {
    new_job(id, "DEMO", &payload).unwrap()
}

/// Every outcome of a job, a run that outlasts its lease, and a stop in the middle of a run.
async fn works(mut worker: Command, by: &str) {
    // A lease lasts 13 s, and the long job takes longer. The worker extends it by twelve seconds every six seconds: a
    // machine may stall for nearly that long, and the worker keeps the lease.
    let service = start("[worker_pool]\njob_timeout_ms = 12000\nlease_margin_ms = 1000\n").await;
    let client = &service.client;
    let mut jobs: Vec<NewJob> = (0..300)
        .map(|id| job(&id.to_string(), serde_json::json!({})))
        .collect();
    jobs.push(job("long", serde_json::json!({"sleep_ms": 15_000})));
    jobs.push(job("throttled", serde_json::json!({"throttle_ms": 20})));
    jobs.push(job("retried", serde_json::json!({"retry": "not yet"})));
    jobs.push(job("failed", serde_json::json!({"fail": "no such mailbox"})));
    let options = OpenBatch {
        keep_results: true,
        ..OpenBatch::default()
    };
    client.open_batch("A", "all", &options).await.unwrap();
    client
        .enqueue_in(&Destination::batch("A", "all").seal(), &jobs)
        .await
        .unwrap();

    let mut process = worker
        .env("TIDEGATE_URL", &service.url)
        .args(["--concurrency", "20", "--wait-ms", "500"])
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the worker's language is needed");
    let follow = client.follow_batch("A", "all").try_collect::<Vec<_>>();
    let seen = tokio::time::timeout(DEADLINE, follow)
        .await
        .expect("the batch does not complete");
    let last = seen.unwrap().pop().unwrap();
    assert_eq!(last.status, BatchStatus::Completed);
    assert_eq!((last.counts.success, last.counts.failed), (303, 1));
    assert_eq!(last.errors, ["no such mailbox"]);
    let long = client.job("A", "long").await.unwrap();
    assert_eq!(
        (long.state, long.attempts),
        (JobState::Completed, 1),
        "it kept its lease: one run"
    );
    let result: serde_json::Value = serde_json::from_str(long.result.unwrap().get()).unwrap();
    assert_eq!(result, serde_json::json!({"by": by, "id": "long"}));
    assert_eq!(client.job("A", "throttled").await.unwrap().throttles, 1);

    stops(&service, &mut process).await;
}

/// A worker that is stopped finishes its running jobs.
async fn stops(service: &Running, process: &mut Child) {
    let client = &service.client;
    // On a machine that stalls, a job may complete before the test sees it run. Then the test tries the next one.
    let mut number = 0;
    let slow = 'job: loop {
        number += 1;
        let slow = format!("slow-{number}");
        let jobs = [job(&slow, serde_json::json!({"sleep_ms": 14_000}))];
        client.enqueue_in(&Destination::group("B"), &jobs).await.unwrap();
        // An extended lease shows that its job runs.
        let mut first = None;
        loop {
            let seen = client.job("B", &slow).await.unwrap();
            match (first, seen.deadline) {
                (None, deadline) => first = deadline,
                (Some(before), Some(after)) if before < after => break 'job slow,
                _ => {}
            }
            if seen.state == JobState::Completed {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    terminate(process);
    assert_eq!(ended(process).await, Some(0));
    let slow = client.job("B", &slow).await.unwrap();
    assert_eq!((slow.state, slow.attempts), (JobState::Completed, 1));
}

#[tokio::test]
async fn the_worker_in_python_does_its_jobs() {
    let mut worker = python();
    worker.arg(examples().join("worker.py"));
    works(worker, "python").await;
}

#[tokio::test]
async fn the_worker_in_typescript_does_its_jobs() {
    let folder = tempfile::tempdir().unwrap();
    erased(folder.path()).await;
    let mut worker = Command::new("node");
    worker.arg(folder.path().join("worker.js"));
    works(worker, "typescript").await;
}

/// Runs a few lines of code that fail if the receiver misjudges a signature.
async fn judges(mut command: Command) {
    let output = command.output().await.expect("the receiver's language is needed");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn the_receiver_in_python_tells_genuine_calls_from_others() {
    let code = format!(
        r#"
import sys
sys.path.insert(0, {folder:?})
from receiver import NotGenuine, verify
genuine = {{"webhook-id": {ID:?}, "webhook-timestamp": {AT:?}, "webhook-signature": {SIGNATURE:?}}}
body, at = {BODY:?}.encode(), {AT}
verify({SECRET:?}, genuine, body, at)
verify({SECRET:?}, {{**genuine, "webhook-signature": "v1,AAAA v2,x " + {SIGNATURE:?}}}, body, at + 299)
for change, text, when in [
    ({{}}, body + b" ", at), ({{}}, body, at + 301), ({{}}, body, at - 301), ({{"webhook-id": "other"}}, body, at),
    ({{"webhook-timestamp": str(at + 1)}}, body, at), ({{"webhook-timestamp": "soon"}}, body, at),
    ({{"webhook-signature": "v1,AAAA"}}, body, at), ({{"webhook-signature": ""}}, body, at),
    ({{"webhook-signature": "é"}}, body, at),
]:
    try:
        verify({SECRET:?}, {{**genuine, **change}}, text, when)
    except NotGenuine:
        continue
    sys.exit(f"taken for genuine: {{change}} {{text}} {{when}}")
"#,
        folder = examples()
    );
    let mut command = python();
    command.arg("-c").arg(code);
    judges(command).await;
}

#[tokio::test]
async fn the_receiver_in_typescript_tells_genuine_calls_from_others() {
    let folder = tempfile::tempdir().unwrap();
    erased(folder.path()).await;
    let code = format!(
        r#"
import {{ NotGenuine, verify }} from "./receiver.js";
const genuine = {{ "webhook-id": {ID:?}, "webhook-timestamp": {AT:?}, "webhook-signature": {SIGNATURE:?} }};
const [body, at] = [Buffer.from({BODY:?}), {AT}];
verify({SECRET:?}, genuine, body, at);
verify({SECRET:?}, {{ ...genuine, "webhook-signature": "v1,AAAA v2,x " + {SIGNATURE:?} }}, body, at + 299);
for (const [change, text, when] of [
  [{{}}, Buffer.concat([body, Buffer.from(" ")]), at], [{{}}, body, at + 301], [{{}}, body, at - 301],
  [{{ "webhook-id": "other" }}, body, at], [{{ "webhook-timestamp": String(at + 1) }}, body, at],
  [{{ "webhook-timestamp": "soon" }}, body, at], [{{ "webhook-signature": "v1,AAAA" }}, body, at],
  [{{ "webhook-signature": "" }}, body, at], [{{ "webhook-signature": "é" }}, body, at],
]) {{
  try {{
    verify({SECRET:?}, {{ ...genuine, ...change }}, text, when);
  }} catch (error) {{
    if (error instanceof NotGenuine) continue;
    throw error;
  }}
  throw new Error(`taken for genuine: ${{JSON.stringify(change)}} ${{text}} ${{when}}`);
}}
"#
    );
    std::fs::write(folder.path().join("check.js"), code).unwrap();
    let mut command = Command::new("node");
    command.arg(folder.path().join("check.js"));
    judges(command).await;
}

/// Handles genuine calls, refuses others, and ends on a signal.
async fn receives(mut receiver: Command) {
    let mut process = receiver
        .args(["--port", "0"])
        .env("WEBHOOK_SECRET", SECRET)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the receiver's language is needed");
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap();
    let line = line.unwrap().expect("it says where it listens");
    let address = line
        .split("http://")
        .nth(1)
        .unwrap()
        .trim_end_matches('/')
        .to_owned();
    let now = clock();
    for (body, status) in [
        ("{}", 200),
        (r#"{"payload": {"throttle_sec": 3}}"#, 429),
        (r#"{"payload": {"fail": "no such mailbox"}}"#, 422),
        ("nonsense", 500),
    ] {
        assert_eq!(
            call(&address, &now, &signature(&now, body), body).await,
            status,
            "{body}"
        );
    }
    assert_eq!(call(&address, &now, &signature(&now, "{}"), "[]").await, 401);
    // The published example is genuine, but old.
    assert_eq!(call(&address, AT, SIGNATURE, BODY).await, 401);
    assert_eq!(call(&address, "", "", BODY).await, 401);
    terminate(&process);
    assert_eq!(ended(&mut process).await, Some(0));
}

/// Seconds since 1970, as the receiver's machine counts them.
fn clock() -> String {
    use tidegate_core::clock::{Clock, SystemClock};
    (SystemClock.now().0 / 1_000).to_string()
}

fn signature(at: &str, body: &str) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine};
    use hmac::{Hmac, KeyInit, Mac};
    let key = BASE64_STANDARD
        .decode(SECRET.strip_prefix("whsec_").unwrap())
        .unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{ID}.{at}.{body}").as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

#[test]
fn the_published_example_has_its_signature() {
    assert_eq!(signature(AT, BODY), SIGNATURE);
}

async fn call(address: &str, at: &str, signature: &str, body: &str) -> u16 {
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-length: {}\r\nconnection: close\r\nwebhook-id: {ID}\r\n\
         webhook-timestamp: {at}\r\nwebhook-signature: {signature}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_receiver_in_python_answers_genuine_calls_only() {
    let mut receiver = python();
    receiver.arg(examples().join("receiver.py"));
    receives(receiver).await;
}

#[tokio::test]
async fn the_receiver_in_typescript_answers_genuine_calls_only() {
    let folder = tempfile::tempdir().unwrap();
    erased(folder.path()).await;
    let mut receiver = Command::new("node");
    receiver.arg(folder.path().join("receiver.js"));
    receives(receiver).await;
}
