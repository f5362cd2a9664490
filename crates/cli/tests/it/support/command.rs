//! The command as a process: what it prints, and how it fails.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Longer than any machine needs for one command; the longest is the demo.
const DEADLINE: Duration = Duration::from_secs(600);

pub(crate) async fn tidegate(args: &[&str], input: &str) -> Output {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .env_remove("TIDEGATE_LOG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    // A command that fails early does not read all of its input.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let ended = tokio::time::timeout(DEADLINE, process.wait_with_output()).await;
    ended.expect("the command does not end").unwrap()
}

/// What it writes to standard output and to standard error.
pub(crate) async fn succeeds(args: &[&str], input: &str) -> (String, String) {
    let output = tidegate(args, input).await;
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{args:?}: {errors}");
    (String::from_utf8(output.stdout).unwrap(), errors)
}

/// Fails with one line that contains the reason.
pub(crate) async fn fails(args: &[&str], input: &str, reason: &str) {
    let output = tidegate(args, input).await;
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    assert!(errors.starts_with("tidegate: "), "{args:?}: {errors}");
    assert!(errors.contains(reason), "{args:?}: {errors}");
    assert!(
        output.stdout.is_empty(),
        "{args:?}: half a stream on standard output"
    );
}
