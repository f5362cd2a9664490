//! A server's process: started with a time limit, stopped, suspended, and never left behind.
//!
//! Signals go to its children, too: PostgreSQL answers every client from a process of its own.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::launch::launch;
use super::wait::wait_for;

/// Limit: a start on a busy machine, with everything that the server loads or recovers after a kill.
pub(super) const START_LIMIT: Duration = Duration::from_secs(300);
/// Limit: a graceful stop, with everything that the server still has to write.
const STOP_LIMIT: Duration = Duration::from_secs(120);
const PAUSE_LIMIT: Duration = Duration::from_secs(120);
const KILL_LIMIT: Duration = Duration::from_secs(120);

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub(super) struct Process {
    name: &'static str,
    child: Child,
}

/// Why a start did not succeed.
#[derive(Debug)]
pub(super) enum Refusal {
    PortTaken(io::Error),
    Other(io::Error),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

impl Process {
    /// Starts a [`mortal`](super::launch::mortal) command, with its output in a file, and waits until `is_ready` holds
    /// for its process id.
    pub(super) fn start(
        name: &'static str,
        mut command: Command,
        log: &Path,
        mut is_ready: impl FnMut(u32) -> bool,
    ) -> Result<Self, Refusal> {
        let output = File::create(log)?;
        command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let mut process = Self {
            name,
            child: launch(command)?,
        };
        let ready = wait_for(&format!("an answer of {name}"), START_LIMIT, || {
            match process.child.try_wait()? {
                Some(status) => Err(ended(name, status)),
                None => Ok(is_ready(process.child.id()).then_some(())),
            }
        });
        let Err(error) = ready else { return Ok(process) };
        process.kill()?;
        let output = fs::read_to_string(log).unwrap_or_default();
        let taken = output.contains("Address already in use");
        let error = io::Error::new(error.kind(), format!("{error}; its output: {output}"));
        Err(if taken {
            Refusal::PortTaken(error)
        } else {
            Refusal::Other(error)
        })
    }

    /// `kill -9`, and waits for the end. Does nothing if it has ended already.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // Suspended first, or it could start more children. If that fails, it is killed all the same.
        let _ = self.pause();
        let children = children(self.child.id()).unwrap_or_default();
        for child in &children {
            // It may have ended meanwhile.
            let _ = kill_process(*child, Signal::KILL);
        }
        self.child.kill()?;
        self.child.wait()?;
        // PostgreSQL does not start again while one of its processes still has its memory.
        for child in children {
            wait_for("the end of a process", KILL_LIMIT, || {
                Ok(stat(child).is_none_or(|stat| stat.has_ended()).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Stops it gracefully, with the signal of this server, and waits for its end. Does nothing if it has ended
    /// already.
    pub(super) fn stop(&mut self, signal: Signal) -> io::Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        // A suspended process could not handle the signal.
        self.resume()?;
        self.signal(signal)?;
        let what = format!("the end of {}", self.name);
        wait_for(&what, STOP_LIMIT, || self.child.try_wait()).map(drop)
    }

    /// Suspends it: connections stay open, nothing is answered.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        self.signal(Signal::STOP)?;
        // Without a wait it could still answer a request that is sent right after this.
        let either = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), either)?;
        for child in children(self.child.id())? {
            if kill_process(child, Signal::STOP).is_ok() {
                wait_for("a stopped process", PAUSE_LIMIT, || {
                    Ok(stat(child)
                        .is_none_or(|stat| stat.has_ended() || stat.state == "T")
                        .then_some(()))
                })?;
            }
        }
        Ok(())
    }

    /// Ends a [`pause`](Self::pause).
    pub(super) fn resume(&mut self) -> io::Result<()> {
        self.signal(Signal::CONT)?;
        for child in children(self.child.id())? {
            let _ = kill_process(child, Signal::CONT);
        }
        Ok(())
    }

    /// A child that was waited for has no process id any more.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        match self.child.try_wait()? {
            None => Ok(kill_process(Pid::from_child(&self.child), signal)?),
            Some(status) => Err(ended(self.name, status)),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn ended(name: &str, status: ExitStatus) -> io::Error {
    io::Error::other(format!("{name} has ended: {status}"))
}

/// What the system says about a process.
struct Stat {
    parent: u32,
    state: String,
}

impl Stat {
    /// It may be a zombie until it was waited for, but it holds nothing any more.
    fn has_ended(&self) -> bool {
        self.state == "Z" || self.state == "X"
    }
}

fn stat(process: Pid) -> Option<Stat> {
    let line = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).ok()?;
    // The second field is the program's name in parentheses, whatever characters that has.
    let (_, fields) = line.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.to_owned();
    let parent = fields.next()?.parse().ok()?;
    Some(Stat { parent, state })
}

/// The direct children of a process.
fn children(parent: u32) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = number.and_then(Pid::from_raw)
            && stat(process).is_some_and(|stat| stat.parent == parent)
        {
            found.push(process);
        }
    }
    Ok(found)
}
