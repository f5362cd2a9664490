//! The measured service: this binary again, as a child process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Child {
    process: tokio::process::Child,
    url: String,
}

impl Child {
    /// Starts it with its configuration in `folder`, and waits until it listens.
    pub(super) async fn start(folder: &Path, settings: &Value) -> anyhow::Result<Self> {
        let config = folder.join("tidegate.toml");
        std::fs::write(&config, toml::to_string(settings)?)?;
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the service cannot be started")?;
        let out = process.stdout.take().context("the service has no output")?;
        let mut lines = BufReader::new(out).lines();
        let find = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(at) = line.find("http://") {
                    let url = line[at..].split_whitespace().next().unwrap_or_default();
                    return Ok(url.trim_end_matches(['.', '/']).to_owned());
                }
            }
            bail!("the service ended without saying where it listens")
        };
        let url = tokio::time::timeout(PATIENCE, find)
            .await
            .context("the service does not listen")??;
        Ok(Self { process, url })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id().unwrap_or_default()
    }

    /// Kills the process. Its folder is temporary, so nothing needs to finish.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.process.kill().await?)
    }
}
