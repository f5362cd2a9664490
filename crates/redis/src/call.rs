//! One call that can be sent again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Cmd;

use crate::{Args, Live, PATIENCE, Request, Script};

#[derive(Debug)]
enum Target {
    Function(&'static Script),
    Command(&'static str),
    /// The server's time: no key goes along.
    Time,
}

#[derive(Debug)]
enum Argument {
    Values(Args),
    /// `1` if an earlier attempt may have run, else empty.
    Again,
    /// The run id of the server that replies: changes whenever it restarts.
    RunId,
}

/// One function or command on keys of one slot.
#[derive(Debug)]
pub struct Call {
    target: Target,
    keys: Vec<String>,
    arguments: Vec<Argument>,
    patience: Duration,
    /// It was sent, and no reply said that it did not run.
    maybe_ran: AtomicBool,
}

impl Call {
    fn new(target: Target, key: String) -> Self {
        Self {
            target,
            keys: vec![key],
            arguments: Vec::new(),
            patience: PATIENCE,
            maybe_ran: AtomicBool::new(false),
        }
    }

    /// Calls a function.
    pub fn function(script: &'static Script, key: String) -> Self {
        Self::new(Target::Function(script), key)
    }

    /// Runs a plain command, whose first argument is the key.
    pub fn command(command: &'static str, key: String) -> Self {
        Self::new(Target::Command(command), key)
    }

    /// Asks for the time of the server that has this key.
    pub fn time(key: String) -> Self {
        Self::new(Target::Time, key)
    }

    /// One more key, in the same slot.
    #[must_use]
    pub fn also(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    /// The next argument says whether an earlier attempt may have run.
    #[must_use]
    pub fn again(mut self) -> Self {
        self.arguments.push(Argument::Again);
        self
    }

    /// The next argument is the run id of the server.
    #[must_use]
    pub fn run_id(mut self) -> Self {
        self.arguments.push(Argument::RunId);
        self
    }

    /// The next arguments.
    #[must_use]
    pub fn args(mut self, args: Args) -> Self {
        self.arguments.push(Argument::Values(args));
        self
    }

    /// The next argument.
    #[must_use]
    pub fn arg(mut self, bytes: impl AsRef<[u8]>) -> Self {
        if !matches!(self.arguments.last(), Some(Argument::Values(_))) {
            self.arguments.push(Argument::Values(Args::default()));
        }
        if let Some(Argument::Values(args)) = self.arguments.last_mut() {
            args.bytes(bytes.as_ref());
        }
        self
    }

    /// The next argument, a number.
    #[must_use]
    pub fn number(self, number: u64) -> Self {
        self.arg(number.to_string())
    }

    /// Limit: how long to try.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The key that decides which server runs it.
    pub fn key(&self) -> &str {
        &self.keys[0]
    }

    /// Whether it may have run although no reply came.
    pub fn maybe_ran(&self) -> bool {
        self.maybe_ran.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Request for Call {
    fn command(&self, live: &Live, maybe_ran: bool) -> Cmd {
        self.maybe_ran.store(true, Ordering::Relaxed);
        let mut command = match self.target {
            Target::Function(script) => {
                let mut command = redis::cmd("FCALL");
                command.arg(&script.function).arg(self.keys.len());
                command
            }
            Target::Command(name) => redis::cmd(name),
            Target::Time => return redis::cmd("TIME"),
        };
        for key in &self.keys {
            command.arg(key);
        }
        for argument in &self.arguments {
            match argument {
                Argument::Again => {
                    command.arg(if maybe_ran { "1" } else { "" });
                }
                Argument::RunId => {
                    command.arg(&live.run_id);
                }
                Argument::Values(args) => args.each().for_each(|bytes| {
                    command.arg(bytes);
                }),
            }
        }
        command
    }

    fn refused(&self, maybe_ran: bool) {
        self.maybe_ran.store(maybe_ran, Ordering::Relaxed);
    }

    fn patience(&self) -> Duration {
        self.patience
    }
}
