//! Visitors: what a request presents of an identity, the cookies that a response sets, and the problems of visitors whom a
//! room refuses.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use tidegate_core::room::command::Refused as NotTaken;
use tidegate_engine::room::identity::{Identity, IdentityRefused, Presented, Remember, TokenRefused};
use tidegate_engine::room::{AddressBlock, Applicant, EntryRefused};

use super::cookies;
use super::module::{Rooms, ServedRoom};
use crate::auth::came_by_tls;
use crate::problem::{
    ApiError, ApiResult, BAD_TOKEN, INTERNAL, PROOF_NEEDED, ROOM_CLOSED, ROOM_FULL, SOLD_OUT, TOO_MANY_JOINS,
};
use crate::state::App;

/// An identified visitor.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) applicant: Applicant,
    /// The cookie to set, so that the next request identifies the visitor.
    cookie: Option<HeaderValue>,
}

/// The properties of a request that identify its visitor.
#[derive(Debug)]
pub(crate) struct VisitorRequest {
    headers: HeaderMap,
    peer: IpAddr,
}

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for VisitorRequest {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>();
        Ok(Self {
            headers: parts.headers.clone(),
            peer: peer.map_or(IpAddr::from([127, 0, 0, 1]), |peer| peer.0.ip()),
        })
    }
}

impl VisitorRequest {
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    pub(crate) fn from(&self, rooms: &Rooms) -> AddressBlock {
        AddressBlock::of(rooms.proxies.visitor(self.peer, &self.headers))
    }

    /// The room of this name.
    pub(crate) async fn room(&self, app: &App, rooms: &Rooms, name: &str) -> ApiResult<Arc<ServedRoom>> {
        rooms.room(name, Some((self.from(rooms), app.now()))).await
    }

    /// Whether the browser used TLS to this service or to a trusted proxy. Then only cookies set over TLS count.
    fn by_tls(&self, app: &App, rooms: &Rooms) -> bool {
        app.config.server.tls.is_some() || rooms.proxies.report_tls(self.peer, &self.headers)
    }

    /// Identifies the visitor; `None` if nothing in the request does.
    pub(crate) fn identify(
        &self,
        app: &App,
        served: &ServedRoom,
        token: Option<&str>,
    ) -> ApiResult<Option<Visitor>> {
        let rooms = app.rooms()?;
        let presented = self.presented(app, rooms, served, token);
        let found = served.identifier(rooms).identify(presented, app.now());
        let found = found.map_err(identity_refused)?;
        Ok(found.map(|identity| self.visitor(app, rooms, served, identity)))
    }

    /// Identifies the visitor; an unknown one becomes a new browser.
    pub(crate) fn identify_or_create(
        &self,
        app: &App,
        served: &ServedRoom,
        token: Option<&str>,
    ) -> ApiResult<Visitor> {
        let rooms = app.rooms()?;
        let presented = self.presented(app, rooms, served, token);
        let identity = served.identifier(rooms).identify_or_create(presented, app.now());
        Ok(self.visitor(app, rooms, served, identity.map_err(identity_refused)?))
    }

    fn presented<'a>(
        &'a self,
        app: &App,
        rooms: &Rooms,
        served: &ServedRoom,
        token: Option<&'a str>,
    ) -> Presented<'a> {
        let tls = self.by_tls(app, rooms);
        Presented {
            token,
            identity_cookies: cookies::named_values(&self.headers, served.room.name(), tls),
            browser: cookies::browser(&self.headers, tls),
        }
    }

    fn visitor(&self, app: &App, rooms: &Rooms, served: &ServedRoom, identity: Identity) -> Visitor {
        // A form or a script sends the origin of its page, but a stream does not. So the origin may upgrade a cookie, but must
        // not invalidate one that a stream got.
        let secure = self.by_tls(app, rooms) || came_by_tls(&app.config.server, &self.headers);
        let cookie = identity.remember.and_then(|remember| match remember {
            Remember::Person(signed) => cookies::set_named(served.room.name(), &signed, secure),
            Remember::Browser(browser) => cookies::set_browser(&browser, secure),
        });
        Visitor {
            applicant: Applicant {
                person: identity.person,
                fresh: identity.fresh,
                late: identity.late,
                from: self.from(rooms),
            },
            cookie,
        }
    }
}

impl Visitor {
    pub(crate) fn remember(&self, headers: &mut HeaderMap) {
        if let Some(cookie) = &self.cookie {
            headers.append(header::SET_COOKIE, cookie.clone());
        }
    }
}

fn identity_refused(refused: IdentityRefused) -> ApiError {
    match refused {
        IdentityRefused::Token(refused) => bad_token(refused),
        IdentityRefused::TokenNeeded => {
            let detail = "the room needs a token of the shop, and the request has none; open the room by the shop's link";
            ApiError::new(BAD_TOKEN, detail)
        }
        IdentityRefused::TokenNotExpected => {
            let detail =
                "the request has a token, but the room has no shop keys (signed_by); leave the token out";
            ApiError::new(BAD_TOKEN, detail)
        }
        IdentityRefused::NoRandomness => no_randomness(),
    }
}

fn bad_token(refused: TokenRefused) -> ApiError {
    ApiError::new(BAD_TOKEN, refused.to_string())
}

/// The problem of a visitor who gets no ticket.
pub(crate) fn entry_refused(served: &ServedRoom, refused: EntryRefused) -> ApiError {
    match refused {
        EntryRefused::Token(refused) => bad_token(refused),
        EntryRefused::TooMany(too_many) => {
            let detail = "too many joins by you or from your address within a minute; try again later";
            ApiError::new(TOO_MANY_JOINS, detail).after(too_many.wait)
        }
        EntryRefused::ProofNeeded => {
            let room = served.room.name();
            let detail = format!(
                "the request has no proof of work; solve the challenge of /v1/rooms/{room}/challenge, and send the solution as `proof`"
            );
            ApiError::new(PROOF_NEEDED, detail)
        }
        EntryRefused::Proof(refused) => ApiError::new(PROOF_NEEDED, refused.to_string()),
        EntryRefused::Room(NotTaken::Closed) => ApiError::new(ROOM_CLOSED, "the room is closed"),
        EntryRefused::Room(NotTaken::SoldOut) => ApiError::new(SOLD_OUT, "all seats are sold"),
        EntryRefused::Room(NotTaken::Full) => {
            ApiError::new(ROOM_FULL, "the waiting room is full; try again later")
        }
    }
}

pub(crate) fn no_randomness() -> ApiError {
    ApiError::new(INTERNAL, "the operating system provides no randomness")
}

/// Headers against proxies that would buffer events, or cache the response to one visitor.
pub(crate) const NOT_CACHED: [(HeaderName, HeaderValue); 2] = [
    (
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    ),
    (
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    ),
];
