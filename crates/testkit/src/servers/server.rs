//! The frame of every server: it starts at a free port in a folder of its own, ends, and starts again with both. A
//! [`Program`] supplies what differs between servers; `process` sends the signals.

use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;

use super::folder::Folder;
use super::port;
use super::process::{Process, Refusal, START_LIMIT};
use super::wait::wait_for;

/// Another process can take a port between our check and the server's bind.
const TRIES: usize = 5;
/// Limit: one readiness probe. Another process at the port may never answer.
pub(super) const PROBE_LIMIT: Duration = Duration::from_secs(2);
/// The output of the program, in its folder.
pub(super) const LOG: &str = "server.log";

/// What one kind of server runs. It keeps what a restart needs.
pub trait Program: Sized + 'static {
    type Options: Default;

    /// For messages.
    const NAME: &'static str;
    /// Stops it gracefully.
    const STOP_SIGNAL: Signal = Signal::TERM;

    /// Prepares an empty folder for the first run.
    fn prepare(options: &Self::Options, folder: &Path, port: u16) -> io::Result<Self>;

    /// A [`mortal`](super::launch::mortal) command that runs it.
    fn command(&self, folder: &Path, port: u16) -> io::Result<Command>;

    /// Whether this process serves. At a port that was taken, another one would answer.
    fn serves(&self, folder: &Path, port: u16, process: u32) -> bool;

    /// The cell for [`Server::shared`]: generic code cannot have a static for each program.
    fn shared_cell() -> &'static OnceLock<Server<Self>>;
}

/// A running server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Server<P> {
    // Before the folder: the process must end before its files go.
    process: Process,
    pub(super) program: P,
    folder: Folder,
    port: u16,
}

impl<P: Program> Server<P> {
    /// Starts a server at a free port, without any data, and waits until it serves.
    pub fn start(options: P::Options) -> io::Result<Self> {
        let mut tries = 1;
        loop {
            let folder = Folder::new()?;
            let port = port::free()?;
            let program = P::prepare(&options, folder.path(), port)?;
            match run(&program, folder.path(), port) {
                Ok(process) => {
                    return Ok(Self {
                        process,
                        program,
                        folder,
                        port,
                    });
                }
                Err(Refusal::PortTaken(_)) if tries < TRIES => tries += 1,
                Err(Refusal::PortTaken(error) | Refusal::Other(error)) => return Err(error),
            }
        }
    }

    /// The server that all tests of this process can use, with default options. Each test keeps to keys, databases,
    /// topics or buckets of its own.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn shared() -> &'static Self {
        P::shared_cell().get_or_init(|| {
            Self::start(P::Options::default())
                .unwrap_or_else(|error| panic!("the shared {}: {error}", P::NAME))
        })
    }

    /// The server's own port, also behind a proxy.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its data, its settings and its output, `server.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops the server gracefully, without waiting for its clients, and waits for its end. Does nothing if it has
    /// ended already.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.stop(P::STOP_SIGNAL)
    }

    /// `kill -9`, also of its child processes, and waits for the end. Does nothing if it has ended already.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills the server if it runs and starts it again, same port and folder. Waits until it serves. For a graceful
    /// restart [`stop`](Self::stop) it first.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        let again = || match run(&self.program, self.folder.path(), self.port) {
            Ok(process) => Ok(Some(process)),
            // The old process may still have it for a moment.
            Err(Refusal::PortTaken(_)) => Ok(None),
            Err(Refusal::Other(error)) => Err(error),
        };
        self.process = wait_for("a restart", START_LIMIT, again)?;
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

/// Starts the program and waits until it serves.
fn run<P: Program>(program: &P, folder: &Path, port: u16) -> Result<Process, Refusal> {
    let command = program.command(folder, port)?;
    Process::start(P::NAME, command, &folder.join(LOG), |process| {
        program.serves(folder, port, process)
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::super::redis::{Redis, RedisOptions, RedisServer};
    use super::*;

    #[test]
    fn a_port_that_was_taken_is_distinguished_from_other_failures() {
        let folder = Folder::new().unwrap();
        let taken = |port| {
            let redis = Redis::prepare(&RedisOptions::default(), folder.path(), port).unwrap();
            matches!(run(&redis, folder.path(), port), Err(Refusal::PortTaken(_)))
        };

        let server = RedisServer::start(RedisOptions::default()).unwrap();
        assert!(taken(server.port()), "by another Redis");

        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(
            taken(listener.local_addr().unwrap().port()),
            "by something that does not answer"
        );
    }
}
