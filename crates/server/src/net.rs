//! Connections: accepts them within bounds, serves HTTP (and TLS), and drains them at shutdown.

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

/// How long the listener pauses after an error that concerns all connections, like too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Limit: the head of a request.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The preface of HTTP/2. The shortest HTTP/1 request with a host is longer.
const PREFACE: [u8; 24] = *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The pause between two peeks at an incomplete preface.
const PEEK_PAUSE: Duration = Duration::from_millis(10);
/// The ALPN name of HTTP/2.
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
        let limits = ClientTimeouts {
            first_bytes: header_timeout,
            unread: Duration::from(self.config.body_pause_ms),
        };
        let unacknowledged = Duration::from(self.config.unacknowledged_ms);
        let permits = Arc::new(Semaphore::new(self.config.max_connections as usize));
        let open = GracefulShutdown::new();
        loop {
            let permit = tokio::select! {
                permit = permits.clone().acquire_owned() => permit.expect("the semaphore is never closed"),
                () = stop.cancelled() => break,
            };
            let (stream, peer) = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        if !is_one_connections(&error) {
                            tracing::warn!(%error, "failed to accept a connection");
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                        }
                        continue;
                    }
                },
                () = stop.cancelled() => break,
            };
            // Responses are small, and clients wait for them.
            let _ = stream.set_nodelay(true);
            if let Err(error) = detect_dead_peers(&stream, unacknowledged, limits.unread) {
                tracing::debug!(%peer, %error, "failed to set keepalive; a dead peer will be detected late");
            }
            let (http, router, tls) = (http.clone(), self.router.clone(), self.tls.clone());
            let watcher = open.watcher();
            tokio::spawn(async move {
                let _permit = permit;
                // A task is as large as its largest branch. The TLS branch is boxed, because most connections are plain
                // and there may be many.
                match tls {
                    None => match tokio::time::timeout(header_timeout, is_http2(&stream)).await {
                        Ok(Ok(two)) => http.serve(limits.on(stream), two, peer, router, watcher).await,
                        Ok(Err(error)) => tracing::debug!(%peer, %error, "a connection ended"),
                        Err(_) => tracing::debug!(%peer, "the client sent no request in time"),
                    },
                    Some(tls) => {
                        let secure = async move {
                            match tokio::time::timeout(header_timeout, tls.accept(stream)).await {
                                Ok(Ok(stream)) => {
                                    let two = stream.get_ref().1.alpn_protocol() == Some(ALPN_TWO);
                                    http.serve(limits.on(stream), two, peer, router, watcher).await;
                                }
                                Ok(Err(error)) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
                                Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
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
            tracing::warn!("closing connections whose requests are still open after the grace period");
        }
    }
}

/// How long the server waits for a client.
#[derive(Clone, Copy)]
struct ClientTimeouts {
    first_bytes: Duration,
    /// The longest time in which the client reads nothing that the server writes.
    unread: Duration,
}

impl ClientTimeouts {
    fn on<S>(self, stream: S) -> TimedStream<S> {
        TimedStream {
            stream,
            timeouts: self,
            first_bytes: Some(Box::pin(tokio::time::sleep(self.first_bytes))),
            missing: PREFACE.len(),
            unread: None,
        }
    }
}

/// A connection that fails if its first bytes come too late, or if the client does not read.
///
/// HTTP/2 has no timeout of its own before its first bytes. A client that never reads would hold its response in memory,
/// and its connection permit, forever.
struct TimedStream<S> {
    stream: S,
    timeouts: ClientTimeouts,
    /// Runs until the first bytes have arrived.
    first_bytes: Option<Pin<Box<tokio::time::Sleep>>>,
    missing: usize,
    /// Runs while the client reads nothing.
    unread: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<S> TimedStream<S> {
    /// Returns the result of a write, or a timeout if the client has read nothing for too long.
    fn written<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        let longest = self.timeouts.unread;
        let unread = self
            .unread
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(longest)));
        match unread.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(first_bytes) = &mut self.first_bytes else {
            return read;
        };
        if read.is_pending() && first_bytes.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.missing = self.missing.saturating_sub(buffer.filled().len() - before);
        if self.missing == 0 {
            self.first_bytes = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
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

/// Makes the system close connections whose peer has died.
///
/// A peer may die without closing its connection (an empty battery, a cut cable). The system then keeps retransmitting for a
/// quarter of an hour, and it never notices if there is nothing to send. With keepalive it probes an idle peer after
/// `unacknowledged`, and then every third of that time. Neither the standard library nor tokio can set this; `socket2`,
/// which tokio is built on, can.
fn detect_dead_peers(stream: &TcpStream, unacknowledged: Duration, unread: Duration) -> io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    // The system counts these in seconds.
    let seconds = |time: Duration| time.max(Duration::from_secs(1));
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(seconds(unacknowledged))
        .with_interval(seconds(unacknowledged / 3));
    socket.set_tcp_keepalive(&keepalive)?;
    // This timeout also runs while the peer's receive window is full, which `unread` limits.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(unacknowledged.max(unread)))?;
    Ok(())
}

/// Whether a connection begins with the preface of HTTP/2.
///
/// It peeks at the bytes instead of reading them: a buffer of read bytes would live as long as the connection, and double
/// the memory of one with HTTP/1.
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; PREFACE.len()];
    loop {
        let seen = stream.peek(&mut first).await?;
        if seen == 0 || first[..seen] != PREFACE[..seen] {
            return Ok(false);
        }
        if seen == PREFACE.len() {
            return Ok(true);
        }
        tokio::time::sleep(PEEK_PAUSE).await;
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

/// Builds the TLS acceptor. The error names the setting and what is wrong with it.
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
        .map_err(|error| format!("server.tls.cert {shown} and server.tls.key do not match: {error}"))?;
    server.alpn_protocols = vec![ALPN_TWO.to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

/// Listens on the address. An earlier service of the same address does not block it.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dead_peer_is_detected_in_time() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let socket = socket2::SockRef::from(&stream);
        let ms = Duration::from_millis;
        for (unacknowledged, unread, longest, keepalive) in [
            (30_000, 1, 30_000, (30_000, 10_000)),
            (30_000, 30_000, 30_000, (30_000, 10_000)),
            (30_000, 90_000, 90_000, (30_000, 10_000)),
            (500, 1, 500, (1_000, 1_000)),
        ] {
            detect_dead_peers(&stream, ms(unacknowledged), ms(unread)).unwrap();
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(ms(longest)));
            assert_eq!(socket.tcp_keepalive_time().unwrap(), ms(keepalive.0));
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), ms(keepalive.1));
        }
        assert!(socket.keepalive().unwrap());
    }
}
