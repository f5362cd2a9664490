//! A second process that a test can kill or starve: the same test, run again by itself, which finds a folder to work in
//! ([`folder`]) and runs the child's part.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const FOLDER: &str = "TIDEGATE_TEST_CHILD_FOLDER";

/// Longer than any machine needs for one step; a test that gets here has failed.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// The folder that a child works in; none in the process of the tests themselves.
pub fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// A child at work; it is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    pub process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Runs the test `name` as a child; `prelude` is shell code that runs before it.
pub fn spawn(name: &str, folder: &Path, prelude: &str) -> Running {
    let this = std::env::current_exe().expect("a test has a program");
    let mut process = Command::new("bash")
        .args(["-c", &format!(r#"{prelude} exec "$0" "$@""#)])
        .arg(this)
        .args(["--exact", "--nocapture", "--test-threads=1", name])
        .env(FOLDER, folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("bash starts");
    let lines = BufReader::new(process.stdout.take().expect("piped")).lines();
    Running { process, lines }
}

impl Running {
    /// Reads the child's output up to a line that contains `beginning`, and returns the rest of that line.
    pub async fn says(&mut self, beginning: &str) -> String {
        let find = async {
            let mut seen = Vec::new();
            while let Some(line) = self.lines.next_line().await.expect("readable") {
                // The harness writes the test's name without a line end, so look inside the line.
                if let Some((_, rest)) = line.split_once(beginning) {
                    return rest.trim().to_owned();
                }
                seen.push(line);
            }
            panic!("the child ended without printing {beginning:?}, but {seen:#?}")
        };
        tokio::time::timeout(DEADLINE, find)
            .await
            .expect("the child prints nothing")
    }
}
