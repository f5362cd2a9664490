//! Connections for calls that are sent in time or not at all.
//!
//! A delayed call arrives together with those of later tokens. On an open connection it goes out at once; only a
//! connection that has to be established can delay it. If that takes too long, the call fails before anything of it
//! is sent. The connection attempt continues, and serves the next call.
//!
//! Limit: a connection that the provider's kernel accepts before the provider itself does looks like any other.

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

/// Limit: connections that wait for a call, and for how long.
const MAX_SPARE: usize = 256;
const SPARE_FOR: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// The turn of the call that this task makes.
    static TURN: Arc<Turn>;
}

/// When one call has to be sent.
#[derive(Debug)]
struct Turn {
    send_by: Instant,
    /// The result of the connection that was not ready in time.
    late: Mutex<Option<oneshot::Receiver<Result<(), BoxError>>>>,
}

/// The result of a call in its turn.
#[derive(Debug)]
pub enum Sent {
    Answered(Result<reqwest::Response, reqwest::Error>),
    /// No connection was ready in time. One is ready for the next call.
    Late,
    /// No connection was possible at all.
    Unreachable(BoxError),
}

#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
struct NotInTime;

/// Sends a request through a client that has [`Punctual`]. Without a time limit it goes out as soon as possible.
pub async fn send(request: reqwest::RequestBuilder, send_by: Option<Instant>) -> Sent {
    let Some(send_by) = send_by else {
        return Sent::Answered(request.send().await);
    };
    let turn = Arc::new(Turn {
        send_by,
        late: Mutex::default(),
    });
    let answer = TURN.scope(turn.clone(), request.send()).await;
    if !answer.as_ref().is_err_and(is_late) {
        return Sent::Answered(answer);
    }
    let late = turn.late.lock().unwrap_or_else(PoisonError::into_inner).take();
    let made = match late {
        Some(late) => late.await.ok(),
        None => None,
    };
    match made {
        Some(Err(error)) => Sent::Unreachable(error),
        Some(Ok(())) | None => Sent::Late,
    }
}

fn is_late(error: &reqwest::Error) -> bool {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = at {
        if error.is::<NotInTime>() {
            return true;
        }
        at = error.source();
    }
    false
}

/// The layer around the connector of a client, whose connections all go to one host.
#[derive(Debug, Clone)]
pub struct Punctual {
    /// How long establishing a connection may take.
    pub within: Duration,
}

impl<S> Layer<S> for Punctual {
    type Service = Connecting<S>;

    fn layer(&self, inner: S) -> Connecting<S> {
        Connecting {
            inner,
            within: self.within,
            spare: Arc::default(),
        }
    }
}

/// Connections that came too late for their call.
#[derive(Debug, Default)]
struct Spare(Mutex<VecDeque<(Instant, Box<dyn Any + Send>)>>);

impl Spare {
    fn put(&self, connection: Box<dyn Any + Send>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.truncate(MAX_SPARE - 1);
        spare.push_front((Instant::now(), connection));
    }

    /// The most recent one.
    fn take<C: 'static>(&self) -> Option<C> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.retain(|(made, _)| made.elapsed() < SPARE_FOR);
        let (_, connection) = spare.pop_front()?;
        connection.downcast().ok().map(|connection| *connection)
    }
}

#[derive(Debug, Clone)]
pub struct Connecting<S> {
    inner: S,
    within: Duration,
    spare: Arc<Spare>,
}

impl<S, R> Service<R> for Connecting<S>
where
    S: Service<R, Error = BoxError> + Clone + Send + 'static,
    S::Response: Send + 'static,
    S::Future: Send + 'static,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let connect = self.inner.call(request);
        let Ok(turn) = TURN.try_with(Arc::clone) else {
            return Box::pin(connect);
        };
        let (within, spare) = (self.within, self.spare.clone());
        Box::pin(async move {
            if let Some(connection) = spare.take() {
                return Ok(connection);
            }
            let (reply, made) = oneshot::channel();
            let (done, outcome) = oneshot::channel();
            // If the caller leaves, the connection serves the next one.
            tokio::spawn(async move {
                let connected = tokio::time::timeout(within, connect).await;
                let connected = connected.unwrap_or_else(|elapsed| Err(elapsed.into()));
                let _ = match reply.send(connected) {
                    Ok(()) => Ok(()),
                    Err(Ok(connection)) => {
                        spare.put(Box::new(connection));
                        done.send(Ok(()))
                    }
                    Err(Err(error)) => done.send(Err(error)),
                };
            });
            match tokio::time::timeout_at(turn.send_by, made).await {
                Ok(Ok(connected)) => connected,
                Ok(Err(gone)) => Err(gone.into()),
                Err(_) => {
                    *turn.late.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                    Err(NotInTime.into())
                }
            }
        })
    }
}
