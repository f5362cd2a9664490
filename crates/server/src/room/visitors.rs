//! Visitors: identifies them, limits their joins, and requires a proof of work if the room does.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use tidegate_core::room::command::{JoinParams, Refused as NotTaken};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::identity::{Browser, TokenRefused};
use tidegate_engine::room::{AddressBlock, Applicant, EntryRefused, JoinOptions};

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
    /// The cookies to set, so that the next request identifies the visitor.
    cookies: Vec<HeaderValue>,
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

    /// Identifies the visitor: by a token of the shop, by the identity cookie of an earlier token, or as a browser. For an
    /// unknown browser it returns `None`, unless `make` is set: then it creates an identity.
    pub(crate) fn identify(
        &self,
        app: &App,
        served: &ServedRoom,
        token: Option<&str>,
        make: bool,
    ) -> ApiResult<Option<Visitor>> {
        let rooms = app.rooms()?;
        let (tls, now, from) = (self.by_tls(app, rooms), app.now(), self.from(rooms));
        // A form or a script sends the origin of its page, but a stream does not. So the origin may upgrade a cookie, but must
        // not invalidate one that a stream got.
        let secure = tls || came_by_tls(&app.config.server, &self.headers);
        let room = served.room.name();
        let visitor = |person, fresh, late, cookie: Option<HeaderValue>| Visitor {
            applicant: Applicant {
                person,
                fresh,
                late,
                from,
            },
            cookies: cookie.into_iter().collect(),
        };
        if !served.shop_keys.is_empty() {
            let mut stored = [true, false]
                .into_iter()
                .filter(|secure| *secure || !tls)
                .filter_map(|secure| cookies::value(&self.headers, &cookies::named(room, secure)));
            let stored = stored.find_map(|cookie| rooms.cookies.verify(room, cookie));
            let bad = |refused: TokenRefused| ApiError::new(BAD_TOKEN, refused.to_string());
            let given = token.map(|token| served.shop_keys.named(token, room, now));
            let given = given.transpose().map_err(bad)?;
            match (given, stored) {
                (Some(named), _) if named.until > now => {
                    let cookie = cookies::set_named(room, &rooms.cookies.sign(room, &named), secure);
                    return Ok(Some(visitor(named.person, false, false, cookie)));
                }
                // An expired link of another person must not change the identity of a shared browser.
                (Some(named), Some(stored)) if named.person != stored.person => {
                    return Err(bad(TokenRefused::Expired));
                }
                (Some(_), None) => return Err(bad(TokenRefused::Expired)),
                // A broken stream reconnects with the token that it began with, even if that has expired.
                (_, Some(stored)) => {
                    return Ok(Some(visitor(stored.person, false, stored.until <= now, None)));
                }
                (None, None) => {}
            }
            if !served.settings.anonymous {
                let detail = "the room needs a token of the shop, and the request has none; open the room by the shop's link";
                return Err(ApiError::new(BAD_TOKEN, detail));
            }
        } else if token.is_some() {
            let detail =
                "the request has a token, but the room has no shop keys (signed_by); leave the token out";
            return Err(ApiError::new(BAD_TOKEN, detail));
        }
        if let Some(browser) = cookies::browser(&self.headers, tls) {
            return Ok(Some(visitor(browser.person(room), false, false, None)));
        }
        if !make {
            return Ok(None);
        }
        let browser = Browser::fresh().map_err(|_| no_randomness())?;
        let cookie = cookies::set_browser(&browser, secure);
        Ok(Some(visitor(browser.person(room), true, false, cookie)))
    }
}

impl Visitor {
    pub(crate) fn remember(&self, headers: &mut HeaderMap) {
        for cookie in &self.cookies {
            headers.append(header::SET_COOKIE, cookie.clone());
        }
    }

    /// Checks whether the visitor may take a ticket, and returns the parameters to join with.
    pub(crate) async fn may_join(
        &self,
        rooms: &Rooms,
        served: &ServedRoom,
        options: JoinOptions<'_>,
        now: Timestamp,
    ) -> ApiResult<JoinParams> {
        let checked = served.entry(rooms).check(&self.applicant, options, now).await?;
        checked.map_err(|refused| match refused {
            EntryRefused::Token(refused) => ApiError::new(BAD_TOKEN, refused.to_string()),
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
        })
    }
}

pub(crate) fn not_taken(refused: NotTaken) -> ApiError {
    match refused {
        NotTaken::Closed => ApiError::new(ROOM_CLOSED, "the room is closed"),
        NotTaken::SoldOut => ApiError::new(SOLD_OUT, "all seats are sold"),
        NotTaken::Full => ApiError::new(ROOM_FULL, "the waiting room is full; try again later"),
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
