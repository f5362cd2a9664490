//! Connections: accepts them within bounds, speaks HTTP (and TLS), and ends them in order.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::config::ServerConfig;

/// After an error that is not one connection's, like too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Limit: the head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// What an HTTP/2 connection begins with; the shortest request with a host is longer.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Between two looks at a beginning that is not whole.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How both sides of TLS name HTTP/2.
const ALPN_TWO: &[u8] = b"h2";
const MAX_STREAMS_PER_CONNECTION: u32 = 256;

pub(crate) struct Net {
    pub(crate) listener: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) router: Router,
    pub(crate) config: ServerConfig,
}

impl Net {
    /// Serves until `stop`, then lets open requests finish within the grace period.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let header_timeout = Duration::from(self.config.header_timeout_ms);
        let http = Arc::new(Http::new(header_timeout));
        let limits = Patience {
            first_bytes: header_timeout,
            unread: Duration::from(self.config.body_pause_ms),
        };
        let unacknowledged = Duration::from(self.config.unacknowledged_ms);
        let places = Arc::new(Semaphore::new(self.config.max_connections as usize));
        let open = GracefulShutdown::new();
        loop {
            let place = tokio::select! {
                place = places.clone().acquire_owned() => place.expect("the semaphore is never closed"),
                () = stop.cancelled() => break,
            };
            let (stream, peer) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        if !is_one_connections(&error) {
                            tracing::warn!(%error, "no connection can be accepted");
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                        }
                        continue;
                    }
                },
                () = stop.cancelled() => break,
            };
            // Answers are small and wanted at once.
            let _ = stream.set_nodelay(true);
            if let Err(error) = notice_the_dead(&stream, unacknowledged, limits.unread) {
                tracing::debug!(%peer, %error, "a peer that vanishes will be noticed late");
            }
            let (http, router, tls) = (http.clone(), self.router.clone(), self.tls.clone());
            let watcher = open.watcher();
            tokio::spawn(async move {
                let _place = place;
                // A task is as large as its largest part: most connections are plain ones, and there may be many.
                match tls {
                    None => match tokio::time::timeout(header_timeout, begins_as_two(&stream)).await {
                        Ok(Ok(two)) => http.serve(limits.on(stream), two, peer, router, watcher).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "a connection ended"),
                        Err(_) => tracing::debug!(%peer, "nothing was asked in time"),
                    },
                    Some(tls) => {
                        let secure = async move {
                            match tokio::time::timeout(header_timeout, tls.accept(stream)).await {
                                Ok(Ok(stream)) => {
                                    let two = stream.get_ref().1.alpn_protocol() == Some(ALPN_TWO);
                                    http.serve(limits.on(stream), two, peer, router, watcher).await;
                                }
                                Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                                Err(_) => tracing::debug!(%peer, "TLS took too long"),
                            }
                        };
                        Box::pin(secure).await;
                    }
                }
            });
        }
        drop(self.listener);
        let grace = Duration::from(self.config.shutdown_grace_period_ms);
        if tokio::time::timeout(grace, open.shutdown()).await.is_err() {
            tracing::warn!("requests are still open after the grace period, and are left");
        }
    }
}

/// How long a client is waited for.
#[derive(Clone, Copy)]
struct Patience {
    first_bytes: Duration,
    /// While it takes nothing of what is written.
    unread: Duration,
}

impl Patience {
    fn on<S>(self, stream: S) -> Prompt<S> {
        Prompt {
            stream,
            patience: self,
            waits: Some(Box::pin(tokio::time::sleep(self.first_bytes))),
            missing: PREFACE.len(),
            unread: None,
        }
    }
}

/// A connection whose first bytes must come in time, and whose answers must be read. HTTP/2 has no timeout of its own
/// before its first bytes. A client that never reads would keep its answer in memory, and its place, for ever.
struct Prompt<S> {
    stream: S,
    patience: Patience,
    /// Until the first bytes are there.
    waits: Option<Pin<Box<tokio::time::Sleep>>>,
    missing: usize,
    /// While the client takes nothing.
    unread: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<S> Prompt<S> {
    /// What became of a write, or that the client has read nothing for too long.
    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let longest = self.patience.unread;
        let unread = self
            .unread
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        match unread.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(waits) = &mut self.waits else {
            return read;
        };
        if read.is_pending() && waits.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
        if self.missing == 0 {
            self.waits = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A peer that vanished without a word (a dead battery, a cut cable) would count as there until the system gives up what was
/// sent to it, which takes a quarter of an hour, and for ever if nothing is. Neither the standard library nor tokio can
/// set this; `socket2`, which tokio is built on, can.
///
/// A peer to which nothing is sent is asked after as long whether it is there, and again every third of it.
fn notice_the_dead(stream: &TcpStream, unacknowledged: Duration, unread: Duration) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    // The system counts these in seconds.
    let seconds = |time: Duration| time.max(Duration::from_secs(1));
    let asked = socket2::TcpKeepalive::new()
        .with_time(seconds(unacknowledged))
        .with_interval(seconds(unacknowledged / 3));
    socket.set_tcp_keepalive(&asked)?;
    // The system also counts the time in which a peer has no room for more, for which there is a limit of its own.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(unacknowledged.max(unread)))?;
    Ok(())
}

/// Whether a connection begins as HTTP/2 does. It looks without taking: a buffer of what was taken would be kept for as
/// long as the connection, and make that of HTTP/1 twice as large.
async fn begins_as_two(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 || first[..seen] != PREFACE[..seen] {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Both versions of HTTP.
struct Http {
    one: http1::Builder,
    two: http2::Builder<TokioExecutor>,
}

impl Http {
    fn new(header_timeout: Duration) -> Self {
        let mut one = http1::Builder::new();
        one.timer(TokioTimer::new())
            .header_read_timeout(header_timeout)
            .max_buf_size(MAX_HEAD_BYTES)
            .keep_alive(true);
        let mut two = http2::Builder::new(TokioExecutor::new());
        two.timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
            .max_header_list_size(MAX_HEAD_BYTES as u32)
            .keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(20));
        Self { one, two }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: S,
        two: bool,
        peer: SocketAddr,
        router: Router,
        watcher: Watcher,
    ) {
        let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            router.clone().oneshot(request)
        });
        let stream = TokioIo::new(stream);
        let ended = match two {
            false => watcher.watch(self.one.serve_connection(stream, service)).await,
            true => Box::pin(watcher.watch(self.two.serve_connection(stream, service))).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%peer, %error, "a connection ended");
        }
    }
}

fn is_one_connections(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Which certificate cannot be used, and why.
pub(crate) fn tls(config: &crate::config::TlsConfig) -> Result<TlsAcceptor, String> {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let shown = config.cert.display();
    let certificates = CertificateDer::pem_file_iter(&config.cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("server.tls.cert {shown}: {error}"))?;
    let key = PrivateKeyDer::from_pem_file(&config.key)
        .map_err(|error| format!("server.tls.key {}: {error}", config.key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| format!("server.tls.cert {shown} and server.tls.key do not go together: {error}"))?;
    server.alpn_protocols = vec![ALPN_TWO.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

/// A socket that a service of the same address before us does not block.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_peer_that_vanished_is_given_up_in_time() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let socket = socket2::SockRef::from(&stream);
        let ms = Duration::from_millis;
        for (unacknowledged, unread, longest, asked) in [
            (30_000, 1, 30_000, (30_000, 10_000)),
            (30_000, 30_000, 30_000, (30_000, 10_000)),
            (30_000, 90_000, 90_000, (30_000, 10_000)),
            (500, 1, 500, (1_000, 1_000)),
        ] {
            notice_the_dead(&stream, ms(unacknowledged), ms(unread)).unwrap();
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(ms(longest)));
            assert_eq!(socket.tcp_keepalive_time().unwrap(), ms(asked.0));
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), ms(asked.1));
        }
        assert!(socket.keepalive().unwrap());
    }
}
