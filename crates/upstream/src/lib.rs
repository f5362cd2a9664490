//! A simulated provider for tests and the demo: characters of a game behind limits that it enforces and counts itself.
//!
//! It runs on a thread of its own, so that a test's runtime does not affect the arrivals. It counts exactly and at
//! arrival: it finds a caller that stays within a limit on its own side and bunches calls on the way. It knows nothing
//! of Tidegate.

mod answer;
mod call_counter;
mod clock;
mod document;
mod library;
mod piece;
mod serve;
mod settings;
mod shared;
mod text_number;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::oneshot;

pub use call_counter::{Busiest, Report};
pub use document::{CORE_FIELDS, sample};
pub use settings::{Answer, UpstreamSettings};
use shared::Shared;

/// A running provider; it stops when it is dropped.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts the provider; it listens when this returns.
    pub fn start(settings: UpstreamSettings) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            listen(&settings)?
        };
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(settings)?);
        let (stop, stopped) = oneshot::channel();
        let served = shared.clone();
        let thread = std::thread::Builder::new()
            .name("upstream".to_owned())
            .spawn(move || {
                runtime.block_on(serve::serve(listener, served, stopped));
            })?;
        Ok(Self {
            address,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn settings(&self) -> UpstreamSettings {
        self.shared.current().0.as_ref().clone()
    }

    /// Changes the behaviour for calls from here on; open calls keep theirs.
    pub fn set(&self, change: impl FnOnce(&mut UpstreamSettings)) -> io::Result<()> {
        let mut settings = self.settings();
        change(&mut settings);
        self.shared.set(settings)
    }

    /// The counts so far, with those of every key.
    pub fn report(&self) -> Report {
        self.shared.counter.report(true)
    }

    /// Resets the counts.
    pub fn reset(&self) {
        self.shared.counter.reset();
    }

    /// Ends every connection, frees the port, and returns the counts.
    pub fn stop(mut self) -> Report {
        self.end();
        self.report()
    }

    fn end(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn listen(settings: &UpstreamSettings) -> io::Result<TcpListener> {
    let socket = match settings.listen {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // As every server does: a port that only old connections still use is free.
    socket.set_reuseaddr(true)?;
    socket.bind(settings.listen)?;
    socket.listen(settings.backlog)
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.end();
    }
}
