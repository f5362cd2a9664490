//! One S3 server over a folder (S3Proxy), from the jars that `scripts/fetch-s3-server` fetches. It checks
//! signatures, knows conditional writes, and keeps every object as a file.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::process::Signal;

use super::folder::Folder;
use super::jars::{Jars, JavaParams};
use super::process::{Process, Refusal, StartParams, at_free_port, at_same_port};
use crate::seeds::fresh_seed;

/// Limit: a start on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Limit: one readiness probe. Another process at the port may never answer.
const PROBE_LIMIT: Duration = Duration::from_secs(2);
const ACCESS_KEY: &str = "tidegate";
/// A folder per bucket.
const BUCKETS: &str = "buckets";
const SETTINGS: &str = "s3proxy.conf";
const LOGGING: &str = "logback.xml";
const LOG: &str = "s3proxy.log";

const JARS: Jars = Jars {
    name: "s3proxy",
    main: "s3proxy",
    list: include_str!("../../jars/s3proxy/jars.sha256"),
    script: "scripts/fetch-s3-server",
};

/// A running S3 server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    secret: String,
    folder: Folder,
    port: u16,
}

impl S3Server {
    /// Starts a server without buckets at a free port and waits until it answers.
    pub fn start() -> io::Result<Self> {
        let secret = format!("{:016x}", fresh_seed());
        let first = |folder: &Folder, port: u16| {
            write_settings(folder.path(), port, &secret)?;
            run(folder.path(), port)
        };
        let (process, folder, port) = at_free_port(first)?;
        Ok(Self {
            process,
            secret,
            folder,
            port,
        })
    }

    /// The server that all tests of this process can use, each with a bucket of its own.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<S3Server> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().unwrap_or_else(|error| panic!("the shared S3 server: {error}")))
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Plain HTTP; buckets are the first part of the path.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn access_key(&self) -> &str {
        ACCESS_KEY
    }

    pub fn secret_key(&self) -> &str {
        &self.secret
    }

    /// Any will do for the server; signatures need one.
    pub fn region(&self) -> &str {
        "us-east-1"
    }

    /// Its buckets, its settings and its `s3proxy.log`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Creates an empty bucket. An error if it exists.
    pub fn create_bucket(&self, name: &str) -> io::Result<()> {
        // What the server itself would do, without a signed request.
        fs::create_dir(self.folder.path().join(BUCKETS).join(name))
    }

    /// Stops the server gracefully, and waits for its end. Does nothing if it has ended already.
    pub fn stop(&mut self) -> io::Result<()> {
        self.process.stop(Signal::TERM)
    }

    /// `kill -9`, and waits for the end. Does nothing if it has ended already.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()
    }

    /// Kills the server if it runs and starts it again, same port, folder and keys. Waits until it answers.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill()?;
        self.process = at_same_port(START_LIMIT, || run(self.folder.path(), self.port))?;
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

fn write_settings(folder: &Path, port: u16, secret: &str) -> io::Result<()> {
    let buckets = folder.join(BUCKETS);
    fs::create_dir(&buckets)?;
    let settings = format!(
        "s3proxy.endpoint=http://127.0.0.1:{port}\n\
         s3proxy.authorization=aws-v4\n\
         s3proxy.identity={ACCESS_KEY}\n\
         s3proxy.credential={secret}\n\
         jclouds.provider=filesystem-nio2\n\
         jclouds.filesystem.basedir={}\n",
        buckets.display()
    );
    fs::write(folder.join(SETTINGS), settings)?;
    let logging = "<configuration>\n\
                   <appender name=\"out\" class=\"ch.qos.logback.core.ConsoleAppender\">\n\
                   <encoder><pattern>%d{HH:mm:ss.SSS} %level %msg%n</pattern></encoder>\n\
                   </appender>\n\
                   <root level=\"INFO\"><appender-ref ref=\"out\"/></root>\n\
                   </configuration>\n";
    fs::write(folder.join(LOGGING), logging)
}

/// Starts the program and waits until it answers.
fn run(folder: &Path, port: u16) -> Result<Process, Refusal> {
    let logging = folder.join(LOGGING);
    let mut command = JARS.java(&JavaParams {
        class: "org.gaul.s3proxy.Main",
        heap: "-Xmx160m",
        settings: &[format!("-Dlogback.configurationFile={}", logging.display())],
        folder,
    })?;
    command.args(["--properties", SETTINGS]);
    let params = StartParams {
        name: "S3Proxy",
        log: &folder.join(LOG),
        limit: START_LIMIT,
    };
    Process::start(command, &params, |_| {
        listens(folder, port) && answers(port).is_ok()
    })
}

/// Whether this server reports that it has the port: at one that was taken, another would answer.
fn listens(folder: &Path, port: u16) -> bool {
    let log = fs::read_to_string(folder.join(LOG)).unwrap_or_default();
    let here = format!("{{127.0.0.1:{port}}}");
    log.lines()
        .any(|line| line.contains("INFO Started ") && line.contains(&here))
}

fn answers(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PROBE_LIMIT))?;
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    )?;
    stream.read_exact(&mut [0; "HTTP/1.1 403".len()])
}
