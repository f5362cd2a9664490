//! One S3 server over a folder (S3Proxy), from the jars that `scripts/fetch-s3-server` fetches. It checks
//! signatures, knows conditional writes, and keeps every object as a file.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use super::jars::{Jars, JavaParams};
use super::server::{LOG, PROBE_LIMIT, Program, Server};
use crate::seeds::fresh_seed;

const ACCESS_KEY: &str = "tidegate";
/// A folder per bucket.
const BUCKETS: &str = "buckets";
const SETTINGS: &str = "s3proxy.conf";
const LOGGING: &str = "logback.xml";

const JARS: Jars = Jars {
    name: "s3proxy",
    main: "s3proxy",
    list: include_str!("../../jars/s3proxy/jars.sha256"),
    script: "scripts/fetch-s3-server",
};

/// A running S3 server. It starts without buckets.
pub type S3Server = Server<S3Proxy>;

impl S3Server {
    /// Plain HTTP; buckets are the first part of the path.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port())
    }

    pub fn access_key(&self) -> &str {
        ACCESS_KEY
    }

    pub fn secret_key(&self) -> &str {
        &self.program.secret
    }

    /// Any will do for the server; signatures need one.
    pub fn region(&self) -> &str {
        "us-east-1"
    }

    /// Creates an empty bucket. An error if it exists.
    pub fn create_bucket(&self, name: &str) -> io::Result<()> {
        // What the server itself would do, without a signed request.
        fs::create_dir(self.folder().join(BUCKETS).join(name))
    }
}

/// What an [`S3Server`] runs.
#[derive(Debug)]
pub struct S3Proxy {
    secret: String,
}

impl Program for S3Proxy {
    type Options = ();

    const NAME: &'static str = "S3Proxy";

    fn prepare(_options: &(), folder: &Path, port: u16) -> io::Result<Self> {
        let secret = format!("{:016x}", fresh_seed());
        write_settings(folder, port, &secret)?;
        Ok(Self { secret })
    }

    fn command(&self, folder: &Path, _port: u16) -> io::Result<Command> {
        let logging = folder.join(LOGGING);
        let mut command = JARS.java(&JavaParams {
            class: "org.gaul.s3proxy.Main",
            heap: "-Xmx160m",
            settings: &[format!("-Dlogback.configurationFile={}", logging.display())],
            folder,
        })?;
        command.args(["--properties", SETTINGS]);
        Ok(command)
    }

    fn serves(&self, folder: &Path, port: u16, _process: u32) -> bool {
        listens(folder, port) && answers(port).is_ok()
    }

    fn shared_cell() -> &'static OnceLock<Server<Self>> {
        static SHARED: OnceLock<S3Server> = OnceLock::new();
        &SHARED
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

/// Whether this server reports that it has the port.
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
