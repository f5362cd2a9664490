//! Event streams that reconnect when the connection breaks.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures_core::Stream;
use futures_util::stream;
use http::Method;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tidegate_api::{Batch, Problem, Stats};

use crate::address::Address;
use crate::backoff::Backoff;
use crate::client::{Client, EVENTS};
use crate::error::ClientError;
use crate::sse::{Event, Parser};

/// A stream of states: the current one first, then one item per change.
pub type Events<T> = Pin<Box<dyn Stream<Item = Result<T, ClientError>> + Send>>;

/// The name of the event that ends a stream, where the service sends one.
const LAST: &str = "last";

/// The service sends something every 15 seconds. After three times that in silence, the connection is dead.
const SILENCE: Duration = Duration::from_secs(45);

impl Client {
    /// Follows a batch: yields its current state and every change; the last item is the decided batch.
    ///
    /// The stream reconnects when the connection breaks. It ends with an error when the service stays
    /// unavailable for longer than the retry budget, or when the batch no longer exists.
    ///
    /// ```no_run
    /// use futures_util::TryStreamExt;
    /// use tidegate_client::Client;
    ///
    /// # async fn example(client: Client) -> Result<(), tidegate_client::ClientError> {
    /// let mut changes = client.follow_batch("customer-7", "newsletter");
    /// while let Some(batch) = changes.try_next().await? {
    ///     let counts = batch.counts;
    ///     println!("{:?}: {} of {}", batch.status, counts.success + counts.failed, counts.total);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn follow_batch(&self, group: &str, batch: &str) -> Events<Batch> {
        let address = Address::of(&["groups", group, "batches", batch, "events"]);
        follow(self, address, "progress", |batch: &Batch| {
            batch.status.is_finished()
        })
    }

    /// Follows the whole system: yields its statistics every second until the caller drops the stream.
    pub fn follow_stats(&self) -> Events<Stats> {
        follow(self, Address::of(&["events"]), "stats", |_| false)
    }
}

struct Follower<T> {
    client: Client,
    address: Address,
    name: &'static str,
    is_last: fn(&T) -> bool,
    connection: Option<(Incoming, Parser)>,
    events: VecDeque<Event>,
    /// After a reconnect the service repeats the current state; the follower skips it.
    seen: Option<T>,
    backoff: Backoff,
    /// The time of the first failure since the last event.
    failing_since: Option<Instant>,
    over: bool,
}

fn follow<T>(client: &Client, address: Address, name: &'static str, is_last: fn(&T) -> bool) -> Events<T>
where
    T: DeserializeOwned + Clone + PartialEq + Send + 'static,
{
    start(client, address, name, is_last)
}

/// Follows until the service sends the last event.
pub(crate) fn follow_to_last<T>(client: &Client, address: Address, name: &'static str) -> Events<T>
where
    T: DeserializeOwned + Clone + PartialEq + Send + 'static,
{
    start(client, address, name, |_| false)
}

fn start<T>(client: &Client, address: Address, name: &'static str, is_last: fn(&T) -> bool) -> Events<T>
where
    T: DeserializeOwned + Clone + PartialEq + Send + 'static,
{
    let follower = Follower {
        client: client.clone(),
        address,
        name,
        is_last,
        connection: None,
        events: VecDeque::new(),
        seen: None,
        backoff: Backoff::default(),
        failing_since: None,
        over: false,
    };
    Box::pin(stream::unfold(follower, |mut follower| async move {
        let item = follower.next().await?;
        Some((item, follower))
    }))
}

impl<T: DeserializeOwned + Clone + PartialEq> Follower<T> {
    async fn next(&mut self) -> Option<Result<T, ClientError>> {
        while !self.over {
            if let Some(event) = self.events.pop_front() {
                match self.read(&event) {
                    Ok(Some(item)) => {
                        self.over = event.name == LAST || (self.is_last)(&item);
                        return Some(Ok(item));
                    }
                    Ok(None) => continue,
                    Err(error) => {
                        self.over = true;
                        return Some(Err(error));
                    }
                }
            }
            if let Err(error) = self.hear().await {
                self.connection = None;
                let failing_for = self.failing_since.get_or_insert_with(Instant::now).elapsed();
                let pause = self.backoff.pause(error.retry_after());
                if !error.is_retryable() || failing_for + pause > self.client.retry_budget() {
                    self.over = true;
                    return Some(Err(error));
                }
                tokio::time::sleep(pause).await;
            }
        }
        None
    }

    /// Waits for more of the stream; connects first if necessary.
    async fn hear(&mut self) -> Result<(), ClientError> {
        let url = self.client.url().to_owned();
        let broken = |reason: &str| ClientError::Transport {
            url: url.clone(),
            reason: reason.to_owned(),
            sent: true,
        };
        let (body, parser) = match &mut self.connection {
            Some(connection) => connection,
            None => {
                let nothing = Empty::new().map_err(|never| match never {}).boxed_unsync();
                let answer = self
                    .client
                    .send(Method::GET, &self.address, None, EVENTS, nothing);
                let answer = tokio::time::timeout(SILENCE, answer).await;
                let answer = answer.map_err(|_| broken("no answer"))??;
                self.connection.insert((answer.into_body(), Parser::default()))
            }
        };
        let frame = tokio::time::timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| broken("the stream of events fell silent"))?;
        // The service ends its streams when it stops.
        let frame = frame.ok_or_else(|| broken("the stream of events ended"))?;
        let frame = frame.map_err(|error| ClientError::transport(&url, &error, true))?;
        if let Some(data) = frame.data_ref() {
            let events = parser.feed(data).map_err(|error| broken(&error.to_string()))?;
            self.events.extend(events);
        }
        Ok(())
    }

    fn read(&mut self, event: &Event) -> Result<Option<T>, ClientError> {
        let unread = |error: serde_json::Error| {
            let reason = format!("event {:?}: {error}", event.name);
            ClientError::answer(self.client.url(), http::StatusCode::OK, reason)
        };
        if event.name == "problem" {
            let problem: Problem = serde_json::from_str(&event.data).map_err(unread)?;
            return Err(ClientError::Problem(Box::new(problem)));
        }
        if event.name != self.name && event.name != LAST {
            return Ok(None);
        }
        let item: T = serde_json::from_str(&event.data).map_err(unread)?;
        self.failing_since = None;
        self.backoff = Backoff::default();
        if self.seen.as_ref() == Some(&item) && event.name != LAST {
            return Ok(None);
        }
        self.seen = Some(item.clone());
        Ok(Some(item))
    }
}
