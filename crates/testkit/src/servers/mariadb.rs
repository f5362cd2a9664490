//! One MariaDB server, with one account that may do everything.

use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;

use super::account::Account;
use super::folder::Folder;
use super::launch::{find, find_also, finish, mortal, mortal_as};
use super::process::{Process, Refusal, StartParams, at_free_port, at_same_port};
use super::sql::{START_LIMIT, SqlOptions};

const PACKAGE: &str = "mariadb-server";
/// The account of the system that its package brings.
const ACCOUNT: &str = "mysql";
/// The account of the database, and its password.
const USER: &str = "tidegate";
const FIRST_STATEMENTS: &str = "first.sql";
const PID: &str = "mariadb.pid";
/// Limit: one readiness probe. Another process at the port may never answer.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// A running `mariadbd`. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct MariaDbServer {
    process: Process,
    account: Option<Account>,
    options: SqlOptions,
    folder: Folder,
    port: u16,
}

impl MariaDbServer {
    /// Starts a server at a free port, with a folder that has no databases of ours, and waits until it serves.
    pub fn start(options: SqlOptions) -> io::Result<Self> {
        let account = Account::for_server(ACCOUNT, PACKAGE)?;
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
        static SHARED: OnceLock<MariaDbServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            Self::start(SqlOptions::default())
                .unwrap_or_else(|error| panic!("the shared MariaDB server: {error}"))
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of the server's own database, which always exists.
    pub fn url(&self) -> String {
        self.url_of("mysql")
    }

    /// The URL of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://{USER}:{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Its data and its `mariadb.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates an empty database and returns its URL.
    pub fn create_database(&self, name: &str) -> io::Result<String> {
        let name_quoted = name.replace('`', "``");
        self.execute("mysql", &format!("CREATE DATABASE `{name_quoted}`"))?;
        Ok(self.url_of(name))
    }

    /// Runs one statement with the command line client. The answer has a line per row, with tabs between columns.
    pub fn execute(&self, database: &str, statement: &str) -> io::Result<String> {
        execute(self.port, database, statement)
    }

    /// Stops the server gracefully, and waits for its end. Does nothing if it has ended already.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.stop(Signal::TERM)
    }

    /// `kill -9`, and waits for the end. Does nothing if it has ended already.
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
    find_also(name, PACKAGE, &[PathBuf::from("/usr/sbin")])
}

fn initialise(account: Option<&Account>, folder: &Path) -> io::Result<()> {
    let mut command = in_folder(account, "mariadb-install-db", folder)?;
    command.args([
        "--skip-test-db",
        "--auth-root-authentication-method=normal",
        "--skip-name-resolve",
    ]);
    finish("mariadb-install-db", command)?;
    // The server runs them at every start, before it accepts clients.
    let statements = format!(
        "CREATE USER IF NOT EXISTS '{USER}'@'127.0.0.1' IDENTIFIED BY '{USER}';\n\
         GRANT ALL ON *.* TO '{USER}'@'127.0.0.1' WITH GRANT OPTION;\n"
    );
    fs::write(folder.join(FIRST_STATEMENTS), statements)
}

/// Starts the program and waits until it serves.
fn run(
    account: Option<&Account>,
    options: &SqlOptions,
    folder: &Path,
    port: u16,
) -> Result<Process, Refusal> {
    let mut command = in_folder(account, "mariadbd", folder)?;
    command
        .args([
            &format!("--port={port}"),
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
        ])
        .arg(format!("--socket={}", folder.join("mariadb.sock").display()))
        .arg(format!("--pid-file={}", folder.join(PID).display()))
        .arg(format!("--init-file={}", folder.join(FIRST_STATEMENTS).display()))
        .arg("--innodb-buffer-pool-size=32M");
    if !options.fsync {
        command.args([
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-flush-method=nosync",
        ]);
    }
    command.args(&options.args);
    let params = StartParams {
        name: "mariadbd",
        log: &folder.join("mariadb.log"),
        limit: START_LIMIT,
    };
    Process::start(command, &params, |process| serves(folder, port, process))
}

fn in_folder(account: Option<&Account>, name: &str, folder: &Path) -> io::Result<Command> {
    let mut command = mortal_as(account, &program(name)?)?;
    // The account may not enter the folder that the tests run in.
    command
        .current_dir(folder)
        .arg("--no-defaults")
        .arg(format!("--datadir={}", folder.join("data").display()))
        // At its start a server removes the temporary tables that it finds here, also those of others.
        .arg(format!("--tmpdir={}", folder.display()));
    Ok(command)
}

fn execute(port: u16, database: &str, statement: &str) -> io::Result<String> {
    let mut command = mortal(&find("mariadb", "mariadb-client")?)?;
    command
        .args([
            "--no-defaults",
            "--protocol=tcp",
            "--host=127.0.0.1",
            "--batch",
            "--skip-column-names",
        ])
        .args([
            format!("--port={port}"),
            format!("--user={USER}"),
            format!("--password={USER}"),
        ])
        .args([&format!("--database={database}"), "--execute", statement]);
    finish("mariadb", command)
}

/// Whether this process has written its id (at a port that was taken, another one would answer), greets and
/// answers.
fn serves(folder: &Path, port: u16, process: u32) -> bool {
    let written = fs::read_to_string(folder.join(PID)).unwrap_or_default();
    written.trim() == process.to_string()
        && greets(port).is_ok()
        && execute(port, "mysql", "SELECT 1").is_ok()
}

fn greets(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PROBE_LIMIT))?;
    stream.read_exact(&mut [0; 4])
}
