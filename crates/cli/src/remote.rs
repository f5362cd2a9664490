//! How commands reach a service, and how they print its answers.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use tidegate_client::Client;

/// Address, API key and output format.
#[derive(Debug, Clone, Args)]
pub(super) struct Remote {
    /// Address of the service
    #[arg(
        long,
        env = "TIDEGATE_URL",
        default_value = "http://127.0.0.1:7171",
        value_name = "URL",
        global = true
    )]
    url: String,
    /// API key; a process listing shows it, unlike the variable or a key file
    #[arg(long, env = "TIDEGATE_KEY", hide_env_values = true, global = true)]
    key: Option<String>,
    /// File with the API key; takes precedence over --key
    #[arg(long, value_name = "FILE", global = true)]
    key_file: Option<PathBuf>,
    /// Trust the CA certificate in this PEM file instead of the system's
    #[arg(long, env = "TIDEGATE_CA_FILE", value_name = "FILE", global = true)]
    ca_file: Option<PathBuf>,
    /// JSON, one value per line, instead of text
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// The reason for a command.
#[derive(Debug, Clone, Args)]
pub(super) struct WhyArg {
    /// The reason, kept in the audit log
    #[arg(long, value_name = "TEXT")]
    pub(super) why: Option<String>,
}

impl Remote {
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        let mut builder =
            Client::builder(&self.url).user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")));
        let key = match &self.key_file {
            Some(path) => Some(std::fs::read_to_string(path).with_context(|| path.display().to_string())?),
            None => self.key.clone(),
        };
        // An empty variable counts as unset.
        if let Some(key) = key.filter(|key| !key.trim().is_empty()) {
            builder = builder.key(key.trim());
        }
        if let Some(path) = &self.ca_file {
            let pem = std::fs::read(path).with_context(|| path.display().to_string())?;
            builder = builder.root_certificate(pem);
        }
        Ok(builder.build()?)
    }

    /// Runs a command that talks to the service.
    pub(super) fn run<F>(&self, command: impl FnOnce(Client) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let client = self.client()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(command(client))
    }

    /// Prints one value: as JSON, or as the text that `text` makes of it.
    pub(super) fn print<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let line = if self.json {
            serde_json::to_string(value)? + "\n"
        } else {
            text(value)
        };
        say(&line)
    }
}

/// Writes to standard output and flushes. Returns an error where `print!` would panic.
pub(super) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}
