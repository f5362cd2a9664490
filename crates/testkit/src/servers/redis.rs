//! One Redis server.

use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use super::folder::Folder;
use super::launch::{find, mortal};
use super::process::{Process, Refusal, StartParams, at_free_port, at_same_port};
use super::resp::{Client, Reply};

/// Limit: a start, with everything that the server loads.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Limit: one command.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);
/// Limit: one readiness probe. Another process at the port may never answer.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

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

/// A running `redis-server`. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    process: Process,
    folder: Folder,
    port: u16,
}

impl RedisServer {
    /// Starts a server at a free port and waits until it answers.
    pub fn start(options: RedisOptions) -> io::Result<Self> {
        let (process, folder, port) = at_free_port(|folder, port| run(&options, folder.path(), port))?;
        Ok(Self {
            options,
            process,
            folder,
            port,
        })
    }

    /// The server that all tests of this process can use. It keeps nothing on disk.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::start(RedisOptions::default())
                .unwrap_or_else(|error| panic!("the shared Redis server: {error}"))
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Its data and its `redis.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A connection of its own.
    pub fn client(&self) -> io::Result<Client> {
        Client::connect(self.port, COMMAND_LIMIT)
    }

    /// One command over a new connection.
    pub fn command(&self, words: &[&str]) -> io::Result<Reply> {
        self.client()?.command(words)
    }

    /// `kill -9`, and waits for the end. Does nothing if it has ended already.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills the server if it runs and starts it again, same port and folder. Waits until it has loaded its
    /// data.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        let again = || run(&self.options, self.folder.path(), self.port);
        self.process = at_same_port(START_LIMIT, again)?;
        Ok(())
    }

    /// Suspends the server: connections stay open, nothing is answered.
    pub fn pause(&mut self) -> io::Result<()> {
        self.process.pause()
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&mut self) -> io::Result<()> {
        self.process.resume()
    }
}

/// Starts the program and waits until it answers.
fn run(options: &RedisOptions, folder: &Path, port: u16) -> Result<Process, Refusal> {
    let mut command = mortal(&find("redis-server", "redis-server")?)?;
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--daemonize", "no", "--loglevel", "warning", "--save", ""])
        .args(["--appendonly", if options.appendonly { "yes" } else { "no" }])
        .args(["--appendfsync", options.appendfsync])
        .arg("--dir")
        .arg(folder)
        .args(&options.args);
    let params = StartParams {
        name: "redis-server",
        log: &folder.join("redis.log"),
        limit: START_LIMIT,
    };
    Process::start(command, &params, |process| answers(port, process))
}

/// Whether this process answers, not another one at a port that was taken, and has loaded its data.
fn answers(port: u16, process: u32) -> bool {
    let ask = |words: &[&str]| {
        let mut client = Client::connect(port, PROBE_LIMIT)?;
        client.command(words)
    };
    let ours = format!("process_id:{process}\r\n");
    ask(&["PING"]).is_ok_and(|reply| reply == Reply::Simple("PONG".to_owned()))
        && ask(&["INFO", "server"]).is_ok_and(|reply| reply.text().is_some_and(|text| text.contains(&ours)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_that_was_taken_is_distinguished_from_other_failures() {
        let options = RedisOptions::default();
        let folder = Folder::new().unwrap();
        let taken = |port| matches!(run(&options, folder.path(), port), Err(Refusal::PortTaken(_)));

        let server = RedisServer::start(options.clone()).unwrap();
        assert!(taken(server.port()), "by another Redis");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(
            taken(listener.local_addr().unwrap().port()),
            "by something that does not answer"
        );
    }
}
