//! A TCP proxy that does on demand what networks do: cut, refuse, stall, lose an answer, go silent.
//!
//! Two threads per connection, one for each direction. A connection is closed in both directions as soon as
//! one ends.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);

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
    /// Rings when a stall ends or a connection is closed.
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    ended: bool,
    refuse: bool,
    stall: bool,
    /// Connections with a smaller number are silent for good.
    silent_below: u64,
    /// How many replies are still to be dropped, and how many were.
    drop_replies: u64,
    dropped_replies: u64,
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

    /// Closes all connections that there are. Clients can connect again.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// While on, new connections are closed at once. Those that there are stay.
    pub fn refuse(&self, on: bool) {
        self.shared.lock().refuse = on;
    }

    /// While on, nothing is forwarded in either direction, on old and new connections. What was held back
    /// goes on its way afterwards.
    pub fn stall(&self, on: bool) {
        self.shared.lock().stall = on;
        self.shared.bell.notify_all();
    }

    /// From here on nothing is forwarded on the connections that there are, and they stay open: the machine behind them
    /// has lost its power. Connections that are made later work.
    pub fn silence_open(&self) {
        let mut state = self.shared.lock();
        state.silent_below = state.next;
    }

    /// Swallows the next bytes that the server sends on any connection and closes that connection: the
    /// command ran, but the client never hears. Called twice, it does so twice.
    pub fn drop_next_reply(&self) {
        self.shared.lock().drop_replies += 1;
    }

    /// How many replies were dropped so far.
    pub fn dropped_replies(&self) -> u64 {
        self.shared.lock().dropped_replies
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

    /// Until the end; then waits for the threads of all connections.
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

    /// Takes a connection into the list.
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
            if !self.passes(half.number, half.direction) || half.to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.close(|connection| connection.number == half.number);
    }

    /// Waits for the end of a stall. False if the bytes must not go on and the connection is to be closed.
    fn passes(&self, number: u64, direction: Direction) -> bool {
        let is_open = |state: &State| state.open.iter().any(|connection| connection.number == number);
        let mut state = self
            .bell
            .wait_while(self.lock(), |state| {
                (state.stall || number < state.silent_below) && is_open(state)
            })
            .unwrap_or_else(PoisonError::into_inner);
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
        self.bell.notify_all();
    }
}
