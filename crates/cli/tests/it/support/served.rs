//! `tidegate serve` as a process: started on a port of its own, stopped, killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// Longer than any machine needs for one step.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Served {
    pub(crate) process: Child,
    pub(crate) url: String,
    pub(crate) http: reqwest::Client,
}

/// A port that no other test of this process and no outgoing connection gets.
pub(crate) fn free_port() -> u16 {
    tidegate_testkit::servers::free_port().unwrap()
}

impl Served {
    /// Starts the service with this configuration and waits until it says where it listens.
    pub(crate) async fn start(folder: &Path, port: u16, settings: &str) -> Self {
        Self::start_in(folder, port, settings, &[]).await
    }

    /// The same, with more variables in its environment.
    pub(crate) async fn start_in(
        folder: &Path,
        port: u16,
        settings: &str,
        environment: &[(&str, String)],
    ) -> Self {
        let address = (Ipv4Addr::LOCALHOST, port).into();
        Self::start_at(folder, address, "", settings, environment).await
    }

    /// The same, at any address, and with more settings of the server.
    pub(crate) async fn start_at(
        folder: &Path,
        address: SocketAddr,
        server: &str,
        settings: &str,
        environment: &[(&str, String)],
    ) -> Self {
        let file = folder.join("tidegate.toml");
        let data = folder.join("data");
        let text = format!(
            "{settings}\n[server]\nlisten = \"{address}\"\n{server}\n[log]\nfilter = \"warn\"\n[store]\ndata = {:?}\n{}",
            data.display().to_string(),
            if settings.contains("[redis]") {
                "kind = \"redis\"\n"
            } else {
                ""
            },
        );
        std::fs::write(&file, text).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--config"])
            .arg(&file)
            .env_remove("TIDEGATE_LOG")
            .envs(environment.iter().map(|(name, value)| (*name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let url = format!("http://{address}");
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let listens = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains(&url) {
                    return;
                }
            }
            panic!("the service ended without saying where it listens");
        };
        tokio::time::timeout(PATIENCE, listens)
            .await
            .expect("the service does not listen");
        // Read on, or a full pipe would block the service.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { process, url, http }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it gracefully, and waits for its end.
    pub(crate) async fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        let ended = tokio::time::timeout(PATIENCE, self.process.wait()).await;
        let status = ended.expect("the service does not stop").unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) async fn kill(mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.process.wait().await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.http.get(format!("{}{path}", self.url)).send().await.unwrap();
        response.json().await.unwrap()
    }
}

/// The most memory a process has had so far, in bytes.
pub(crate) fn peak_memory(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// The memory a process has at this moment, in bytes.
pub(crate) fn memory_now(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Polls until the condition holds.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
