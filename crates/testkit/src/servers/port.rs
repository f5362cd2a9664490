//! Free loopback ports.
//!
//! They come from below the range that the system gives to outgoing connections (32768 and up on Linux), so
//! that the port of a killed server is still free when it starts again. No port is handed out twice by one
//! process, for the same reason.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::seeds::fresh_seed;

const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;

/// A Redis Cluster node listens for other nodes at its port plus this.
pub(super) const BUS: u16 = 10_000;

/// A port that nothing listens at, nor at the bus port that belongs to it. Another process may still take it.
pub fn free() -> io::Result<u16> {
    static START: OnceLock<u64> = OnceLock::new();
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    let start = START.get_or_init(|| fresh_seed() % u64::from(COUNT));
    for _ in 0..COUNT {
        let step = start + TAKEN.fetch_add(1, Ordering::Relaxed);
        let offset = u16::try_from(step % u64::from(COUNT)).expect("below COUNT");
        let port = FIRST + offset;
        if is_free(port) && is_free(port + BUS) {
            return Ok(port);
        }
    }
    let last = FIRST + COUNT - 1;
    Err(io::Error::other(format!("no free port in {FIRST} to {last}")))
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
