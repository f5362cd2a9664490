//! A service for a test: `tidegate serve` as a process of its own, on a free port, with its own data folder.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_client::Client;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Longer than any machine needs for one step; a test that gets here has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(240);

pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) client: Client,
    _folder: TempDir,
    _process: Child,
}

/// Starts a service with these settings (TOML) beside those that a test needs.
pub(crate) async fn start(settings: &str) -> Running {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("tidegate.toml");
    let data = folder.path().join("data");
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[store]\ndata = {data:?}\n\
         [backpressure]\nglobal_rps = 100000.0\nrate_limit_window_sec = 0.05\n{settings}"
    );
    std::fs::write(&config, text).unwrap();
    let (process, url) = serve(&config).await;
    Running {
        client: Client::new(&url).unwrap(),
        url,
        _folder: folder,
        _process: process,
    }
}

async fn serve(config: &Path) -> (Child, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--config"])
        .arg(config)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let find = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if let Some(at) = line.find("http://") {
                let url = line[at..].split_whitespace().next().unwrap();
                return url.trim_end_matches(['/', '.']).to_owned();
            }
        }
        panic!("the service ended without saying where it listens")
    };
    let url = tokio::time::timeout(DEADLINE, find)
        .await
        .expect("the service does not listen");
    (process, url)
}
