//! A visitor's stream of events, as a browser reads it.

use std::io;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::served::PATIENCE;

pub(crate) struct Stream {
    socket: TcpStream,
    text: String,
    /// Identifies the visitor to the next stream.
    pub(crate) cookie: String,
}

impl Stream {
    /// Joins, or continues with the ticket of the cookie.
    pub(crate) async fn open(address: SocketAddr, cookie: Option<&str>) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address).await?;
        let line = cookie.map_or_else(String::new, |cookie| format!("cookie: {cookie}\r\n"));
        // Closed after the last event, so that the end can be seen.
        let request = format!(
            "GET /events/concert/tickets/waiting HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{line}\r\n"
        );
        socket.write_all(request.as_bytes()).await?;
        let mut stream = Self {
            socket,
            text: String::new(),
            cookie: String::new(),
        };
        let head = stream.read_to("\r\n\r\n").await?;
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let given = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
        let given = given.and_then(|line| line.split(';').next());
        stream.cookie = given.or(cookie).expect("a visitor has a name").to_owned();
        Ok(stream)
    }

    /// Reads up to and including `end`.
    async fn read_to(&mut self, end: &str) -> io::Result<String> {
        loop {
            if let Some(at) = self.text.find(end) {
                return Ok(self.text.drain(..at + end.len()).collect());
            }
            let mut piece = [0; 2_048];
            let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut piece));
            let count = read.await.expect("the stream sends something")?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.text += &String::from_utf8_lossy(&piece[..count]);
        }
    }

    /// The next event: its name and what it carries.
    pub(crate) async fn next(&mut self) -> io::Result<(String, Value)> {
        loop {
            let text = self.read_to("\n\n").await?;
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
            if let (Some(name), Some(data)) = (field("event: "), field("data: ")) {
                return Ok((name.to_owned(), serde_json::from_str(data).unwrap()));
            }
        }
    }

    /// Reads on to an event of this name. Only positions and heartbeats may come before it.
    pub(crate) async fn until(&mut self, wanted: &str) -> io::Result<Value> {
        loop {
            let (name, data) = self.next().await?;
            if name == wanted {
                return Ok(data);
            }
            assert!(["queued", "position"].contains(&&*name), "{name} {data}");
        }
    }
}
