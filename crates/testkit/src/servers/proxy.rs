//! A TCP proxy that does on demand what networks and busy servers do: cut, refuse, stall, lose an answer, answer late,
//! go silent.
//!
//! Two threads per connection, one for each direction. A connection is closed in both directions as soon as
//! one ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const CONNECT_LIMIT: Duration = Duration::from_secs(60);

/// Forwards a port of its own to a server's. Dropping it closes all connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signals when a stall or a delay ends or a connection is closed.
    signal: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    refuse: bool,
    stall: bool,
    /// How long the proxy holds back what the server sends.
    delay: Duration,
    /// Connections with a smaller number are silent for good.
    silent_below: u64,
    /// How many replies are still to be dropped, and how many were.
    drop_replies: u64,
    dropped_replies: u64,
    /// When clients sent something.
    sent: Vec<Instant>,
    next: u64,
    open: Vec<Connection>,
}

#[derive(Debug)]
struct Connection {
    number: u64,
    client: TcpStream,
    server: TcpStream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// One direction of a connection.
#[derive(Debug)]
struct Half {
    number: u64,
    direction: Direction,
    from: TcpStream,
    to: TcpStream,
}

impl Proxy {
    pub fn start(target_port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target_port));
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let acceptor = thread::spawn(move || theirs.accept(&listener, target));
        Ok(Self {
            port,
            shared,
            acceptor: Some(acceptor),
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Closes all open connections. Clients can connect again.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// While on, the proxy closes new connections at once. Open ones stay.
    pub fn refuse(&self, on: bool) {
        self.shared.lock().refuse = on;
    }

    /// While on, the proxy forwards nothing in either direction, on old and new connections. It forwards what it held
    /// back afterwards.
    pub fn stall(&self, on: bool) {
        self.shared.lock().stall = on;
        self.shared.signal.notify_all();
    }

    /// Holds back whatever the server sends for this long, on old and new connections. Zero ends it at once, also for
    /// what is being held.
    pub fn delay_replies(&self, delay: Duration) {
        self.shared.lock().delay = delay;
        self.shared.signal.notify_all();
    }

    /// Forwards nothing more on the open connections, and keeps them open: the machine behind them has lost its power.
    /// Later connections work.
    pub fn silence_open(&self) {
        let mut state = self.shared.lock();
        state.silent_below = state.next;
    }

    /// Swallows the next bytes that the server sends on any connection and closes that connection: the
    /// command ran, but the client never gets the reply. Called twice, it does so twice.
    pub fn drop_next_reply(&self) {
        self.shared.lock().drop_replies += 1;
    }

    /// How many replies were dropped so far.
    pub fn dropped_replies(&self) -> u64 {
        self.shared.lock().dropped_replies
    }

    /// How often a client sent something, whether or not it was forwarded: requests, where each fits into one packet.
    pub fn sent(&self) -> u64 {
        self.shared.lock().sent.len() as u64
    }

    /// How often in any sliding second.
    pub fn most_sent_in_second(&self) -> usize {
        let sent = &self.shared.lock().sent;
        let within = |(first, from): (usize, &Instant)| {
            let after = sent.partition_point(|at| at.duration_since(*from) < Duration::from_secs(1));
            after - first
        };
        sent.iter().enumerate().map(within).max().unwrap_or(0)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().open.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().ended = true;
        self.shared.cut();
        // A last connection wakes the acceptor. Without it there is nothing to wait for.
        let woken = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
        if let Some(acceptor) = self.acceptor.take().filter(|_| woken) {
            let _ = acceptor.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts until the end, and then waits for the threads of all connections.
    fn accept(&self, listener: &TcpListener, target: SocketAddr) {
        thread::scope(|scope| {
            for client in listener.incoming().map_while(Result::ok) {
                if self.lock().ended {
                    return;
                }
                if self.lock().refuse {
                    continue;
                }
                // Without a server the client's connection is dropped, that is closed.
                let Ok(server) = TcpStream::connect_timeout(&target, CONNECT_LIMIT) else {
                    continue;
                };
                let Ok(halves) = self.open(client, server) else {
                    continue;
                };
                for half in halves {
                    scope.spawn(move || self.forward(half));
                }
            }
        });
    }

    /// Registers a connection.
    fn open(&self, client: TcpStream, server: TcpStream) -> io::Result<[Half; 2]> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let mut state = self.lock();
        if state.ended {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        let number = state.next;
        let to_server = Half {
            number,
            direction: Direction::ToServer,
            from: client.try_clone()?,
            to: server.try_clone()?,
        };
        let to_client = Half {
            number,
            direction: Direction::ToClient,
            from: server.try_clone()?,
            to: client.try_clone()?,
        };
        state.next += 1;
        state.open.push(Connection {
            number,
            client,
            server,
        });
        Ok([to_server, to_client])
    }

    fn forward(&self, mut half: Half) {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = half.from.read(&mut bytes) {
            if half.direction == Direction::ToServer {
                let mut state = self.lock();
                // Under the lock: they are in order.
                state.sent.push(Instant::now());
            }
            if !self.passes(half.number, half.direction) || half.to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.close(|connection| connection.number == half.number);
    }

    /// Waits for the end of a stall, and for as long as replies are held back. False if the bytes must not go on and
    /// the connection is to be closed.
    fn passes(&self, number: u64, direction: Direction) -> bool {
        let is_open = |state: &State| state.open.iter().any(|connection| connection.number == number);
        let came = Instant::now();
        let mut state = self
            .signal
            .wait_while(self.lock(), |state| {
                (state.stall || number < state.silent_below) && is_open(state)
            })
            .unwrap_or_else(PoisonError::into_inner);
        while direction == Direction::ToClient && is_open(&state) {
            let left = state.delay.saturating_sub(came.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = self.signal.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !is_open(&state) {
            return false;
        }
        if direction == Direction::ToClient && state.drop_replies > 0 {
            state.drop_replies -= 1;
            state.dropped_replies += 1;
            return false;
        }
        true
    }

    fn cut(&self) {
        self.close(|_| true);
    }

    fn close(&self, which: impl Fn(&Connection) -> bool) {
        for connection in self.lock().open.extract_if(.., |connection| which(connection)) {
            let _ = connection.client.shutdown(Shutdown::Both);
            let _ = connection.server.shutdown(Shutdown::Both);
        }
        self.signal.notify_all();
    }
}
