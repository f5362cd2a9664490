//! One Redis server.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use super::launch::{find, mortal};
use super::resp::{Client, Reply};
use super::server::{PROBE_LIMIT, Program, Server};

/// Limit: one command.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// How a server is to run. The default keeps nothing on disk.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Writes an append-only file, so that [`RedisServer::restart`] finds the data again.
    pub appendonly: bool,
    /// `always`, `everysec` or `no`.
    pub appendfsync: &'static str,
    /// More arguments, such as `["--maxmemory", "10mb"]`. They take precedence over ours.
    pub args: Vec<String>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            appendonly: false,
            appendfsync: "no",
            args: Vec::new(),
        }
    }
}

impl RedisOptions {
    /// Acknowledged writes are on disk.
    pub fn durable() -> Self {
        Self {
            appendonly: true,
            appendfsync: "always",
            args: Vec::new(),
        }
    }
}

/// A running `redis-server`.
pub type RedisServer = Server<Redis>;

impl RedisServer {
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port())
    }

    /// A connection of its own.
    pub fn client(&self) -> io::Result<Client> {
        Client::connect(self.port(), COMMAND_LIMIT)
    }

    /// One command over a new connection.
    pub fn command(&self, words: &[&str]) -> io::Result<Reply> {
        self.client()?.command(words)
    }
}

/// What a [`RedisServer`] runs.
#[derive(Debug)]
pub struct Redis {
    options: RedisOptions,
}

impl Program for Redis {
    type Options = RedisOptions;

    const NAME: &'static str = "redis-server";

    fn prepare(options: &RedisOptions, _folder: &Path, _port: u16) -> io::Result<Self> {
        let options = options.clone();
        Ok(Self { options })
    }

    fn command(&self, folder: &Path, port: u16) -> io::Result<Command> {
        let options = &self.options;
        let mut command = mortal(&find("redis-server", "redis-server")?)?;
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--daemonize", "no", "--loglevel", "warning", "--save", ""])
            .args(["--appendonly", if options.appendonly { "yes" } else { "no" }])
            .args(["--appendfsync", options.appendfsync])
            .arg("--dir")
            .arg(folder)
            .args(&options.args);
        Ok(command)
    }

    fn serves(&self, _folder: &Path, port: u16, process: u32) -> bool {
        let ask = |words: &[&str]| Client::connect(port, PROBE_LIMIT)?.command(words);
        let ours = format!("process_id:{process}\r\n");
        // It answers PING with an error while it loads its data.
        ask(&["PING"]).is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
            && ask(&["INFO", "server"])
                .is_ok_and(|reply| reply.text().is_some_and(|text| text.contains(&ours)))
    }

    fn shared_cell() -> &'static OnceLock<Server<Self>> {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        &SHARED
    }
}
