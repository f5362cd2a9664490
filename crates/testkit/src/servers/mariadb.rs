//! One MariaDB server, with one account that may do everything.

use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::account::Account;
use super::launch::{find, find_also, finish, mortal, mortal_as};
use super::server::{PROBE_LIMIT, Program, Server};
use super::sql::SqlOptions;

const PACKAGE: &str = "mariadb-server";
/// The account of the system that its package brings.
const ACCOUNT: &str = "mysql";
/// The account of the database, and its password.
const USER: &str = "tidegate";
const FIRST_STATEMENTS: &str = "first.sql";
const PID: &str = "mariadb.pid";

/// A running `mariadbd`.
pub type MariaDbServer = Server<MariaDb>;

impl MariaDbServer {
    /// The URL of the server's own database, which always exists.
    pub fn url(&self) -> String {
        self.url_of("mysql")
    }

    /// The URL of one of its databases.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://{USER}:{USER}@127.0.0.1:{}/{database}", self.port())
    }

    /// Creates an empty database and returns its URL.
    pub fn create_database(&self, name: &str) -> io::Result<String> {
        let name_quoted = name.replace('`', "``");
        self.execute("mysql", &format!("CREATE DATABASE `{name_quoted}`"))?;
        Ok(self.url_of(name))
    }

    /// Runs one statement with the command line client. The answer has a line per row, with tabs between columns.
    pub fn execute(&self, database: &str, statement: &str) -> io::Result<String> {
        execute(self.port(), database, statement)
    }
}

/// What a [`MariaDbServer`] runs.
#[derive(Debug)]
pub struct MariaDb {
    account: Option<Account>,
    options: SqlOptions,
}

impl Program for MariaDb {
    type Options = SqlOptions;

    const NAME: &'static str = "mariadbd";

    fn prepare(options: &SqlOptions, folder: &Path, _port: u16) -> io::Result<Self> {
        let account = Account::for_server(ACCOUNT, PACKAGE, folder)?;
        let options = options.clone();
        let mariadb = Self { account, options };
        let mut command = mariadb.in_folder("mariadb-install-db", folder)?;
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
        fs::write(folder.join(FIRST_STATEMENTS), statements)?;
        Ok(mariadb)
    }

    fn command(&self, folder: &Path, port: u16) -> io::Result<Command> {
        let mut command = self.in_folder("mariadbd", folder)?;
        command
            .arg(format!("--port={port}"))
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve"])
            .arg(format!("--socket={}", folder.join("mariadb.sock").display()))
            .arg(format!("--pid-file={}", folder.join(PID).display()))
            .arg(format!("--init-file={}", folder.join(FIRST_STATEMENTS).display()))
            .arg("--innodb-buffer-pool-size=32M");
        if !self.options.fsync {
            command.args([
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-flush-method=nosync",
            ]);
        }
        command.args(&self.options.args);
        Ok(command)
    }

    fn serves(&self, folder: &Path, port: u16, process: u32) -> bool {
        let written = fs::read_to_string(folder.join(PID)).unwrap_or_default();
        written.trim() == process.to_string()
            && greets(port).is_ok()
            && execute(port, "mysql", "SELECT 1").is_ok()
    }

    fn shared_cell() -> &'static OnceLock<Server<Self>> {
        static SHARED: OnceLock<MariaDbServer> = OnceLock::new();
        &SHARED
    }
}

impl MariaDb {
    fn in_folder(&self, name: &str, folder: &Path) -> io::Result<Command> {
        let mut command = mortal_as(self.account.as_ref(), &program(name)?)?;
        // The account may not enter the folder that the tests run in.
        command
            .current_dir(folder)
            .arg("--no-defaults")
            .arg(format!("--datadir={}", folder.join("data").display()))
            // At its start a server removes the temporary tables that it finds here, also those of others.
            .arg(format!("--tmpdir={}", folder.display()));
        Ok(command)
    }
}

fn program(name: &str) -> io::Result<PathBuf> {
    find_also(name, PACKAGE, &[PathBuf::from("/usr/sbin")])
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

fn greets(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PROBE_LIMIT))?;
    stream.read_exact(&mut [0; 4])
}
