//! One PostgreSQL server. Every client on this machine is its superuser, without a password.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

use super::account::Account;
use super::folder::Folder;
use super::launch::{find_also, finish, mortal, mortal_as};
use super::process::{Process, Refusal, StartParams, at_free_port, at_same_port};
use super::sql::{START_LIMIT, SqlOptions};

const PACKAGE: &str = "postgresql";
/// Debian keeps the programs of every version here.
const VERSIONS: &str = "/usr/lib/postgresql";
const USER: &str = "postgres";
const DATA: &str = "data";

/// A running `postgres`. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct PostgresServer {
    process: Process,
    account: Option<Account>,
    options: SqlOptions,
    folder: Folder,
    port: u16,
}

impl PostgresServer {
    /// Starts a server at a free port, with a folder that has no databases of ours, and waits until it serves.
    pub fn start(options: SqlOptions) -> io::Result<Self> {
        let account = Account::for_server(USER, PACKAGE)?;
        let first = |folder: &Folder, port: u16| {
            folder.give_to(account.as_ref())?;
            initialise(account.as_ref(), folder.path())?;
            run(account.as_ref(), &options, folder.path(), port)
        };
        let (process, folder, port) = at_free_port(first)?;
        Ok(Self {
            process,
            account,
            options,
            folder,
            port,
        })
    }

    /// The server that all tests of this process can use, each with a database of its own.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::start(SqlOptions::default())
                .unwrap_or_else(|error| panic!("the shared PostgreSQL server: {error}"))
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the database that always exists.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Its data and its `postgres.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates an empty database and returns its URL.
    pub fn create_database(&self, name: &str) -> io::Result<String> {
        let name_quoted = name.replace('"', "\"\"");
        self.execute("postgres", &format!("CREATE DATABASE \"{name_quoted}\""))?;
        Ok(self.url_of(name))
    }

    /// Runs one statement with `psql`. The answer has a line per row, with `|` between columns.
    pub fn execute(&self, database: &str, statement: &str) -> io::Result<String> {
        let mut command = mortal(&program("psql")?)?;
        command
            .args([
                "--no-psqlrc",
                "--no-password",
                "--quiet",
                "--tuples-only",
                "--no-align",
            ])
            .args([
                "--set",
                "ON_ERROR_STOP=1",
                "--host",
                "127.0.0.1",
                "--username",
                USER,
            ])
            .args(["--port", &self.port.to_string(), "--dbname", database])
            .args(["--command", statement]);
        finish("psql", command)
    }

    /// Stops the server without waiting for its clients, and waits for its end. Does nothing if it has ended
    /// already.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.stop(Signal::INT)
    }

    /// `kill -9`, also of the processes that serve its clients, and waits for the end. Does nothing if it has ended
    /// already.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills the server if it runs and starts it again, same port and folder. Waits until it serves. For a graceful
    /// restart [`stop`](Self::stop) it first.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        let again = || {
            run(
                self.account.as_ref(),
                &self.options,
                self.folder.path(),
                self.port,
            )
        };
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

fn program(name: &str) -> io::Result<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(VERSIONS)
        .map(|versions| {
            versions
                .flatten()
                .map(|version| version.path().join("bin"))
                .collect()
        })
        .unwrap_or_default();
    // `initdb` and `postgres` have to be of one version, whichever it is.
    folders.sort();
    find_also(name, PACKAGE, &folders)
}

fn initialise(account: Option<&Account>, folder: &Path) -> io::Result<()> {
    let mut command = in_folder(account, "initdb", folder)?;
    command
        .args([
            "--username",
            USER,
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
        ])
        // The data need not survive a power loss.
        .arg("--no-sync");
    finish("initdb", command).map(drop)
}

/// Starts the program and waits until it serves.
fn run(
    account: Option<&Account>,
    options: &SqlOptions,
    folder: &Path,
    port: u16,
) -> Result<Process, Refusal> {
    let mut command = in_folder(account, "postgres", folder)?;
    command
        .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
        .args(["-c", if options.fsync { "fsync=on" } else { "fsync=off" }])
        .args(["-c", "shared_buffers=16MB"])
        .args(&options.args);
    let params = StartParams {
        name: "postgres",
        log: &folder.join("postgres.log"),
        limit: START_LIMIT,
    };
    Process::start(command, &params, |process| serves(folder, process))
}

fn in_folder(account: Option<&Account>, name: &str, folder: &Path) -> io::Result<Command> {
    let mut command = mortal_as(account, &program(name)?)?;
    // The account may not enter the folder that the tests run in.
    command.current_dir(folder).args(["-D", DATA]);
    Ok(command)
}

/// Whether this process reports that it accepts clients, in the first and the eighth line of its own file. At a
/// port that was taken, another one would answer.
fn serves(folder: &Path, process: u32) -> bool {
    let text = fs::read_to_string(folder.join(DATA).join("postmaster.pid")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.first().is_some_and(|id| *id == process.to_string()) && lines.get(7) == Some(&"ready")
}
