//! One Redis server.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::folder::Folder;
use super::launch::{find, launch, mortal};
use super::resp::{Client, Reply};
use super::{port, wait::wait_for};

/// For a start, with everything that is to be loaded.
const START_LIMIT: Duration = Duration::from_secs(20);
/// For one command.
const COMMAND_LIMIT: Duration = Duration::from_secs(5);
/// For one look whether a server answers: whoever has taken its port may never do so.
const LOOK_LIMIT: Duration = Duration::from_millis(500);
/// Another process can take a port between our look and the server's.
const TRIES: usize = 5;

/// How a server is to run. The default keeps nothing on disk.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// Writes an append-only file, so that [`RedisServer::restart`] finds the data again.
    pub appendonly: bool,
    /// `always`, `everysec` or `no`.
    pub appendfsync: &'static str,
    /// More arguments, such as `["--maxmemory", "10mb"]`. They win over ours.
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
    /// What was answered is on disk.
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
    folder: Folder,
    port: u16,
    child: Child,
}

/// Why a start did not succeed.
#[derive(Debug)]
enum Refusal {
    PortTaken(io::Error),
    Other(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl RedisServer {
    /// Starts a server at a free port and waits until it answers.
    pub fn start(options: RedisOptions) -> io::Result<Self> {
        let mut tries = 1;
        loop {
            let folder = Folder::new()?;
            let port = port::free()?;
            match run(&options, folder.path(), port) {
                Ok(child) => {
                    return Ok(Self {
                        options,
                        folder,
                        port,
                        child,
                    });
                }
                Err(Refusal::PortTaken(_)) if tries < TRIES => tries += 1,
                Err(Refusal::PortTaken(error) | Refusal::Other(error)) => return Err(error),
            }
        }
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

    /// `kill -9`, and waits until it is gone. Nothing happens if it is gone already.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Kills the server if it runs and starts it again, same port and folder. Waits until it has loaded its
    /// data.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.child = wait_for("a restart", START_LIMIT, || {
            match run(&self.options, self.folder.path(), self.port) {
                Ok(child) => Ok(Some(child)),
                Err(Refusal::PortTaken(_)) => Ok(None),
                Err(Refusal::Other(error)) => Err(error),
            }
        })?;
        Ok(())
    }

    /// Stops the server where it stands: connections stay open, nothing is answered.
    pub fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // Without a wait it could still answer a command that is sent right after this.
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), either)?;
        Ok(())
    }

    /// Ends a [`pause`](Self::pause).
    pub fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// A child that has ended and was waited for has no process id of its own any more.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(kill_process(Pid::from_child(&self.child), signal)?),
            Some(status) => Err(io::Error::other(format!("redis-server has ended: {status}"))),
        }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Starts the program and waits until it answers.
fn run(options: &RedisOptions, folder: &Path, port: u16) -> Result<Child, Refusal> {
    let mut command = mortal(&find("redis-server", "redis-server")?)?;
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--daemonize", "no", "--loglevel", "warning", "--save", ""])
        .args(["--appendonly", if options.appendonly { "yes" } else { "no" }])
        .args(["--appendfsync", options.appendfsync])
        .arg("--dir")
        .arg(folder)
        .args(&options.args);
    let log = folder.join("redis.log");
    let output = File::create(&log)?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let mut child = launch(command)?;
    let ready = wait_for("an answer of redis-server", START_LIMIT, || {
        match child.try_wait()? {
            Some(status) => Err(io::Error::other(format!("redis-server has ended: {status}"))),
            None => Ok(answers(port, child.id()).then_some(())),
        }
    });
    let Err(error) = ready else { return Ok(child) };
    child.kill()?;
    child.wait()?;
    let said = fs::read_to_string(&log).unwrap_or_default();
    let taken = said.contains("Address already in use");
    let error = io::Error::new(error.kind(), format!("{error}; port {port}; it said: {said}"));
    Err(if taken {
        Refusal::PortTaken(error)
    } else {
        Refusal::Other(error)
    })
}

/// Whether this very process answers, and has loaded its data: at a port that was taken, another one does.
fn answers(port: u16, process: u32) -> bool {
    let ask = |words: &[&str]| {
        let mut client = Client::connect(port, LOOK_LIMIT)?;
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
    fn a_port_that_was_taken_is_told_from_other_failures() {
        let options = RedisOptions::default();
        let folder = Folder::new().unwrap();
        let taken = |port| matches!(run(&options, folder.path(), port), Err(Refusal::PortTaken(_)));

        let server = RedisServer::start(options.clone()).unwrap();
        assert!(taken(server.port()), "by another Redis");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(
            taken(listener.local_addr().unwrap().port()),
            "by something that says nothing"
        );
    }
}
