//! One PostgreSQL server. Every client on this machine is its superuser, without a password.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::process::Signal;

use super::account::Account;
use super::launch::{find_also, finish, mortal, mortal_as};
use super::server::{Program, Server};
use super::sql::SqlOptions;

const PACKAGE: &str = "postgresql";
/// Debian keeps the programs of every version here.
const VERSIONS: &str = "/usr/lib/postgresql";
const USER: &str = "postgres";
const DATA: &str = "data";

/// A running `postgres`.
pub type PostgresServer = Server<Postgres>;

impl PostgresServer {
    /// The URL of the database that always exists.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port())
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
            .args(["--no-psqlrc", "--no-password", "--quiet"])
            .args(["--tuples-only", "--no-align", "--set", "ON_ERROR_STOP=1"])
            .args(["--host", "127.0.0.1", "--port", &self.port().to_string()])
            .args(["--username", USER, "--dbname", database, "--command", statement]);
        finish("psql", command)
    }
}

/// What a [`PostgresServer`] runs.
#[derive(Debug)]
pub struct Postgres {
    account: Option<Account>,
    options: SqlOptions,
}

impl Program for Postgres {
    type Options = SqlOptions;

    const NAME: &'static str = "postgres";
    // With SIGTERM it would wait for its clients.
    const STOP_SIGNAL: Signal = Signal::INT;

    fn prepare(options: &SqlOptions, folder: &Path, _port: u16) -> io::Result<Self> {
        let account = Account::for_server(USER, PACKAGE, folder)?;
        let options = options.clone();
        let postgres = Self { account, options };
        let mut command = postgres.in_folder("initdb", folder)?;
        command
            .args(["--username", USER, "--auth", "trust"])
            .args(["--encoding", "UTF8", "--locale", "C"])
            // The data need not survive a power loss.
            .arg("--no-sync");
        finish("initdb", command)?;
        Ok(postgres)
    }

    fn command(&self, folder: &Path, port: u16) -> io::Result<Command> {
        let options = &self.options;
        let mut command = self.in_folder("postgres", folder)?;
        command
            .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", ""])
            .args(["-c", if options.fsync { "fsync=on" } else { "fsync=off" }])
            .args(["-c", "shared_buffers=16MB"])
            .args(&options.args);
        Ok(command)
    }

    fn serves(&self, folder: &Path, _port: u16, process: u32) -> bool {
        // The process writes its id in the first line, and in the eighth that it accepts clients.
        let text = fs::read_to_string(folder.join(DATA).join("postmaster.pid")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        lines.first().is_some_and(|id| *id == process.to_string()) && lines.get(7) == Some(&"ready")
    }

    fn shared_cell() -> &'static OnceLock<Server<Self>> {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        &SHARED
    }
}

impl Postgres {
    fn in_folder(&self, name: &str, folder: &Path) -> io::Result<Command> {
        let mut command = mortal_as(self.account.as_ref(), &program(name)?)?;
        // The account may not enter the folder that the tests run in.
        command.current_dir(folder).args(["-D", DATA]);
        Ok(command)
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
