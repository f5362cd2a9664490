//! Visitors as bare connections: little memory and work for each, because there are many.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tidegate_client::Time;
use tidegate_core::clock::{Clock, SystemClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;

/// Connections per source address: few enough that the system finds a free port at once.
const PER_ADDRESS: u64 = 5_000;
/// Limit: bytes kept of an incomplete event.
const MAX_EVENT: usize = 16 * 1024;

/// What a visitor reports.
#[derive(Debug)]
pub(super) enum VisitorEvent {
    Granted,
}

/// Histogram of position ages in milliseconds; the last bucket holds all older ones.
#[derive(Debug)]
pub(super) struct Ages(Vec<AtomicU64>);

impl Default for Ages {
    fn default() -> Self {
        Self((0..=10_000).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Ages {
    /// The buckets that are not empty, as pairs of milliseconds and count.
    pub(super) fn counted(&self) -> Vec<(usize, u64)> {
        let counts = self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed));
        counts.enumerate().filter(|(_, count)| *count > 0).collect()
    }

    /// Adds the buckets of another process.
    pub(super) fn add_counted(&self, counted: &[(usize, u64)]) {
        for (ms, count) in counted {
            self.0[(*ms).min(self.0.len() - 1)].fetch_add(*count, Ordering::Relaxed);
        }
    }

    fn add(&self, ms: u64) {
        let bucket = usize::try_from(ms).unwrap_or(usize::MAX).min(self.0.len() - 1);
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// The percentile in milliseconds: this share was younger.
    pub(super) fn at(&self, share: f64) -> u64 {
        let wanted = (self.count() as f64 * share) as u64;
        let mut seen = 0;
        for (ms, bucket) in self.0.iter().enumerate() {
            seen += bucket.load(Ordering::Relaxed);
            if seen > wanted {
                return ms as u64;
            }
        }
        self.0.len() as u64
    }
}

/// What all visitors of a process saw.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// From the time a position was exact to its arrival.
    pub(super) arrival: Ages,
    /// How old a position was when the next one replaced it.
    pub(super) shown: Ages,
    pub(super) watching: std::sync::atomic::AtomicBool,
}

/// One visitor with an open event stream.
pub(super) struct Visitor {
    stream: TcpStream,
    text: Vec<u8>,
    pub(super) cookie: String,
    at: u64,
}

/// Connects from a loopback address of its own block, and opens the stream.
pub(super) async fn join(server: SocketAddr, room: &str, number: u64) -> anyhow::Result<Visitor> {
    tokio::time::timeout(PATIENCE, connect(server, room, number))
        .await
        .context("the service does not answer")?
}

async fn connect(server: SocketAddr, room: &str, number: u64) -> anyhow::Result<Visitor> {
    let socket = TcpSocket::new_v4()?;
    let block = u8::try_from(number / PER_ADDRESS).context("too many connections for 127.0.0.0/24")?;
    socket.bind((Ipv4Addr::new(127, 0, 0, 2 + block), 0).into())?;
    let mut stream = socket.connect(server).await?;
    let request = format!(
        "GET /events/{room}/tickets/waiting HTTP/1.1\r\nhost: {server}\r\naccept: text/event-stream\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut visitor = Visitor {
        stream,
        text: Vec::new(),
        cookie: String::new(),
        at: 0,
    };
    while find(&visitor.text, b"\r\n\r\n").is_none() {
        visitor.read().await?;
    }
    let head = String::from_utf8_lossy(&visitor.text).into_owned();
    if !head.starts_with("HTTP/1.1 200") {
        bail!(
            "the service answered {:?}",
            head.lines().next().unwrap_or_default()
        );
    }
    let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    visitor.cookie = cookie
        .and_then(|cookie| cookie.split(';').next())
        .unwrap_or_default()
        .to_owned();
    Ok(visitor)
}

/// Gives up the ticket or the slot.
pub(super) async fn leave(server: SocketAddr, room: &str, cookie: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!(
        "POST /v1/rooms/{room}/leave HTTP/1.1\r\nhost: {server}\r\ncookie: {cookie}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    anyhow::ensure!(answer.starts_with(b"HTTP/1.1 200"), "a visitor cannot leave");
    Ok(())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

impl Visitor {
    async fn read(&mut self) -> anyhow::Result<()> {
        let mut piece = [0; 1_024];
        let count = self.stream.read(&mut piece).await?;
        if count == 0 {
            bail!("the service ended the stream");
        }
        self.text.extend_from_slice(&piece[..count]);
        anyhow::ensure!(self.text.len() < MAX_EVENT, "an event has no end");
        Ok(())
    }

    /// Reads events until the stream ends.
    pub(super) async fn wait(
        mut self,
        watch: Arc<Watch>,
        events: Option<mpsc::Sender<(u64, VisitorEvent)>>,
        number: u64,
    ) {
        loop {
            while let Some(end) = find(&self.text, b"\n\n") {
                let event = &self.text[..end];
                if find(event, b"event: granted").is_some() {
                    if let Some(events) = &events {
                        let _ = events.send((number, VisitorEvent::Granted)).await;
                    }
                } else if let Some(at) = moment(event) {
                    if watch.watching.load(Ordering::Relaxed) && self.at > 0 {
                        let now = SystemClock.now().0;
                        watch.arrival.add(now.saturating_sub(at));
                        watch.shown.add(now.saturating_sub(self.at));
                    }
                    self.at = at;
                }
                self.text.drain(..end + 2);
            }
            self.text.shrink_to(256);
            if self.read().await.is_err() {
                return;
            }
        }
    }
}

/// The time at which the position of an event was exact.
fn moment(event: &[u8]) -> Option<u64> {
    let from = find(event, b"\"at\":\"")? + 6;
    let text = std::str::from_utf8(event.get(from..from + 24)?).ok()?;
    text.parse::<Time>().ok().map(|time| time.0)
}

/// Limit: the wait for an answer or an event.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
