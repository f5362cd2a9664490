//! Waiting rooms, for visitors: join, follow the ticket, leave.
//!
//! The cookie identifies the visitor. The service sets it with the first response, and the client sends it with
//! every later request.

use std::collections::VecDeque;
use std::time::Duration;

use http::header::SET_COOKIE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tidegate_api::{JoinRoom, StreamClosed, Ticket};

use crate::address::Address;
use crate::client::{Call, Client, EVENTS};
use crate::error::ClientError;
use crate::sse::{Event, Parser};

/// The service sends something every 15 seconds. After three times that in silence, the connection is dead.
const SILENCE: Duration = Duration::from_secs(45);

/// The cookie that identifies a visitor and its ticket. It is a secret, so `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketCookie(HeaderValue);

impl std::fmt::Debug for TicketCookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TicketCookie(***)")
    }
}

impl TicketCookie {
    /// Restores a cookie from its text: `name=value`, several separated by `; `.
    pub fn new(text: &str) -> Result<Self, ClientError> {
        let mut value = HeaderValue::try_from(text)
            .map_err(|_| ClientError::Input("the cookie has characters that no cookie has".into()))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Returns the cookie as text, to store it in a safe place.
    pub fn expose(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    /// Returns the cookies that a browser would hold after this response.
    fn after(held: Option<&Self>, headers: &HeaderMap) -> Result<Option<Self>, ClientError> {
        let given = headers.get_all(SET_COOKIE).iter();
        let given = given.filter_map(|cookie| cookie.to_str().ok()?.split(';').next());
        let given: Vec<&str> = given.collect();
        // A cookie replaces the one of the same name.
        let replaced = |held: &str| given.iter().any(|given| name(given) == name(held));
        let held = held.into_iter().flat_map(|held| held.expose().split("; "));
        let held = held.filter(|held| !replaced(held));
        let all: Vec<&str> = held.chain(given.iter().copied()).collect();
        match all.is_empty() {
            true => Ok(None),
            false => Self::new(&all.join("; ")).map(Some),
        }
    }
}

/// The name of a cookie, `name=value`.
fn name(cookie: &str) -> Option<&str> {
    cookie.split('=').next()
}

/// A visitor who joined without a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// The visitor's ticket.
    pub ticket: Ticket,
    /// The cookie for later requests; none if the service identifies the visitor in another way.
    pub cookie: Option<TicketCookie>,
}

/// An event of a visitor's stream.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum RoomEvent {
    /// The ticket: at first, when the position changes, and when the room pauses or resumes.
    Ticket(Ticket),
    /// The service admitted the visitor: the ticket carries the pass.
    Granted(Ticket),
    /// Another stream of the same visitor took over. This is the last event.
    Superseded,
    /// The stream ended for this reason. This is the last event.
    Closed(StreamClosed),
}

/// The event stream of a visitor. After a drop the service keeps the ticket for the grace period.
pub struct Waiting {
    url: String,
    cookie: Option<TicketCookie>,
    body: Incoming,
    parser: Parser,
    events: VecDeque<Event>,
    over: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("url", &self.url)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Joins a room, or finds the ticket of the cookie, and follows it. The newest stream of a visitor wins.
    ///
    /// The stream does not reconnect. When it breaks, call again with [`Waiting::cookie`] to keep the ticket.
    ///
    /// ```no_run
    /// use tidegate_client::{Client, JoinRoom, RoomEvent};
    ///
    /// # async fn example(client: Client) -> Result<(), tidegate_client::ClientError> {
    /// let mut waiting = client.wait_in_room("concert", &JoinRoom::default(), None).await?;
    /// while let Some(event) = waiting.next().await {
    ///     match event? {
    ///         RoomEvent::Ticket(ticket) => println!("position {:?}, {:?}", ticket.position, ticket.eta),
    ///         RoomEvent::Granted(ticket) => println!("admitted with {:?}", ticket.pass),
    ///         RoomEvent::Closed(closed) => println!("closed: {:?}", closed.reason),
    ///         other => println!("{other:?}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn wait_in_room(
        &self,
        room: &str,
        join: &JoinRoom,
        cookie: Option<&TicketCookie>,
    ) -> Result<Waiting, ClientError> {
        let address = Address::root(&["events", room, "tickets", "waiting"])
            .ask("again", join.again.then_some("1"))
            .ask("token", join.token.as_deref())
            .ask("proof", join.proof.as_deref());
        let nothing = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let shown = cookie.map(|cookie| &cookie.0);
        let answer = self.send_as(shown, Method::GET, &address, None, EVENTS, nothing);
        let answer = tokio::time::timeout(SILENCE, answer).await;
        let answer = answer.map_err(|_| broken(self.url(), "no answer"))??;
        Ok(Waiting {
            url: self.url().to_owned(),
            cookie: TicketCookie::after(cookie, answer.headers())?,
            body: answer.into_body(),
            parser: Parser::default(),
            events: VecDeque::new(),
            over: false,
        })
    }

    /// Joins a room without a stream, or finds the ticket of the cookie. Read the ticket every few seconds to keep
    /// it ([`Client::ticket_in_room`]). Without a cookie and a token the client does not repeat a call that may
    /// have taken effect.
    pub async fn join_room(
        &self,
        room: &str,
        join: &JoinRoom,
        cookie: Option<&TicketCookie>,
    ) -> Result<Joined, ClientError> {
        let mut call = Call::post(Address::of(&["rooms", room, "join"])).json(join)?;
        if let Some(cookie) = cookie {
            call = call.cookie(&cookie.0);
        }
        // A repetition by an unknown visitor would take a second ticket.
        let known = cookie.is_some() || join.token.is_some();
        let call = if known { call.idempotent() } else { call };
        let (headers, ticket) = self.call_with_headers(call).await?;
        Ok(Joined {
            ticket,
            cookie: TicketCookie::after(cookie, &headers)?,
        })
    }

    /// Reads a visitor's ticket. Reading keeps the ticket alive, as a stream does.
    pub async fn ticket_in_room(&self, room: &str, cookie: &TicketCookie) -> Result<Ticket, ClientError> {
        let call = Call::get(Address::of(&["rooms", room, "ticket"]));
        self.call(call.cookie(&cookie.0)).await
    }

    /// Gives up a visitor's ticket, or the slot of an admitted visitor.
    pub async fn leave_room(&self, room: &str, cookie: &TicketCookie) -> Result<Ticket, ClientError> {
        let call = Call::post(Address::of(&["rooms", room, "leave"]));
        self.call(call.cookie(&cookie.0).idempotent()).await
    }
}

fn broken(url: &str, reason: &str) -> ClientError {
    ClientError::Transport {
        url: url.to_owned(),
        reason: reason.to_owned(),
        sent: true,
    }
}

impl Waiting {
    /// Returns the cookie for later requests; none if the service identifies the visitor in another way.
    pub fn cookie(&self) -> Option<&TicketCookie> {
        self.cookie.as_ref()
    }

    /// Returns the next event; none after the last one, and after an error.
    pub async fn next(&mut self) -> Option<Result<RoomEvent, ClientError>> {
        while !self.over {
            let event = match self.events.pop_front() {
                Some(event) => self.read(&event),
                None => self.hear().await.map(|()| None),
            };
            self.over = matches!(
                event,
                Err(_) | Ok(Some(RoomEvent::Superseded | RoomEvent::Closed(_)))
            );
            if let Some(event) = event.transpose() {
                return Some(event);
            }
        }
        None
    }

    /// Waits for more of the stream.
    async fn hear(&mut self) -> Result<(), ClientError> {
        let frame = tokio::time::timeout(SILENCE, self.body.frame()).await;
        let frame = frame.map_err(|_| broken(&self.url, "the stream of events fell silent"))?;
        // The service ends its streams when it stops.
        let frame = frame.ok_or_else(|| broken(&self.url, "the stream of events ended"))?;
        let frame = frame.map_err(|error| ClientError::transport(&self.url, &error, true))?;
        if let Some(data) = frame.data_ref() {
            let events = self.parser.feed(data);
            let events = events.map_err(|error| broken(&self.url, &error.to_string()))?;
            self.events.extend(events);
        }
        Ok(())
    }

    fn read(&self, event: &Event) -> Result<Option<RoomEvent>, ClientError> {
        Ok(Some(match event.name.as_str() {
            "queued" | "position" | "early" | "paused" | "resumed" => RoomEvent::Ticket(self.parse(event)?),
            "granted" => RoomEvent::Granted(self.parse(event)?),
            "superseded" => RoomEvent::Superseded,
            "closed" => RoomEvent::Closed(self.parse(event)?),
            // A later version of the service may send other events.
            _ => return Ok(None),
        }))
    }

    fn parse<T: DeserializeOwned>(&self, event: &Event) -> Result<T, ClientError> {
        serde_json::from_str(&event.data).map_err(|error| {
            let reason = format!("event {:?}: {error}", event.name);
            ClientError::answer(&self.url, StatusCode::OK, reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_kept_and_not_shown() {
        let mut headers = HeaderMap::new();
        assert_eq!(TicketCookie::after(None, &headers).unwrap(), None);
        for cookie in ["place=secret; Path=/; HttpOnly", "token=other"] {
            headers.append(SET_COOKIE, cookie.parse().unwrap());
        }
        let cookie = TicketCookie::after(None, &headers).unwrap().unwrap();
        assert_eq!(cookie.expose(), "place=secret; token=other");
        assert!(!format!("{cookie:?}").contains("secret"));
        let held = TicketCookie::after(Some(&cookie), &HeaderMap::new()).unwrap();
        assert_eq!(held.as_ref(), Some(&cookie));
        let mut headers = HeaderMap::new();
        headers.append(SET_COOKIE, "place=newer; Path=/".parse().unwrap());
        let newer = TicketCookie::after(held.as_ref(), &headers).unwrap().unwrap();
        assert_eq!(newer.expose(), "token=other; place=newer");
        assert!(TicketCookie::new("two\nlines").is_err());
    }
}
