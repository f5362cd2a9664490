//! Who asks about a place: identified, counted and, where a room wants it, made to work first.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use sha2::{Digest, Sha256};
use tidegate_core::ids::PersonId;
use tidegate_core::room::command::{JoinOutcome, JoinParams, Refused as NotTaken};
use tidegate_core::room::ticket::{End, TicketState};
use tidegate_core::time::Timestamp;

use super::address::Block;
use super::module::{Rooms, ServedRoom};
use super::visitor::{Browser, TokenRefused};
use crate::auth::came_by_tls;
use crate::problem::{
    ApiError, ApiResult, BAD_TOKEN, INTERNAL, PROOF_NEEDED, ROOM_CLOSED, ROOM_FULL, SOLD_OUT, TOO_MANY_JOINS,
};
use crate::state::App;

/// How long a browser keeps in mind whom the shop named: a day.
const NAMED_SECONDS: u64 = 24 * 3_600;

/// Somebody who asks.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) person: PersonId,
    /// Nobody has asked by this name before: there is no ticket.
    fresh: bool,
    /// The shop's token has ended since: only the place that there is can be found.
    late: bool,
    from: Block,
    /// What the browser is given to be known again.
    cookies: Vec<HeaderValue>,
}

/// What a request tells of who asks.
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

    pub(crate) fn from(&self, rooms: &Rooms) -> Block {
        Block::of(rooms.proxies.visitor(self.peer, &self.headers))
    }

    /// The room of this name.
    pub(crate) async fn door(&self, app: &App, rooms: &Rooms, name: &str) -> ApiResult<Arc<ServedRoom>> {
        rooms.door(name, Some((self.from(rooms), app.now()))).await
    }

    /// The cookie that keeps whom the shop named, for one room.
    fn named_cookie(door: &ServedRoom, tls: bool) -> String {
        let hash = Sha256::digest(door.room.name().as_str());
        let short: String = hash[..6].iter().map(|byte| format!("{byte:02x}")).collect();
        let prefix = if tls { "__Host-" } else { "" };
        format!("{prefix}tidegate_named_{short}")
    }

    /// Whether the browser reached us by TLS, ours or that of a proxy of ours: then only cookies of TLS are believed.
    fn by_tls(&self, app: &App, rooms: &Rooms) -> bool {
        app.config.server.tls.is_some() || rooms.proxies.say_tls(self.peer, &self.headers)
    }

    fn cookie(&self, wanted: &str) -> Option<&str> {
        let all = self.headers.get_all(header::COOKIE).iter();
        all.filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'))
            .filter_map(|pair| pair.trim().split_once('='))
            .find_map(|(name, value)| (name == wanted).then_some(value))
    }

    /// Who asks: by a token of the shop, given now or kept since, or as a browser. None: a browser that nobody knows,
    /// unless `make` gives it a name.
    pub(crate) fn who(
        &self,
        app: &App,
        door: &ServedRoom,
        token: Option<&str>,
        make: bool,
    ) -> ApiResult<Option<Visitor>> {
        let rooms = app.rooms()?;
        let (tls, now, from) = (self.by_tls(app, rooms), app.now(), self.from(rooms));
        // A form or a script tells where its page is from, which a stream does not: good enough to give a better cookie, not
        // to refuse the one that a stream was given.
        let secure = tls || came_by_tls(&app.config.server, &self.headers);
        let room = door.room.name();
        let visitor = |person, fresh, cookies| Visitor {
            person,
            fresh,
            late: false,
            from,
            cookies,
        };
        if !door.shop_keys.is_empty() {
            let mut kept = [true, false]
                .into_iter()
                .filter(|secure| *secure || !tls)
                .filter_map(|secure| self.cookie(&Self::named_cookie(door, secure)));
            let kept = kept.find_map(|kept| rooms.seal.open(room, kept));
            let bad = |refused: TokenRefused| ApiError::new(BAD_TOKEN, refused.to_string());
            let given = token.map(|token| door.shop_keys.named(token, room, now));
            let given = given.transpose().map_err(bad)?;
            match (given, kept) {
                (Some(named), _) if named.until > now => {
                    let (name, value) = (Self::named_cookie(door, secure), rooms.seal.close(room, &named));
                    let secure = if secure { "; Secure" } else { "" };
                    let cookie = format!(
                        "{name}={value}; Path=/; Max-Age={NAMED_SECONDS}; HttpOnly; SameSite=Lax{secure}"
                    );
                    let cookie = HeaderValue::try_from(cookie).ok();
                    return Ok(Some(visitor(named.person, false, cookie.into_iter().collect())));
                }
                // By the old link of one person a browser that several use does not become another.
                (Some(named), Some(kept)) if named.person != kept.person => {
                    return Err(bad(TokenRefused::Expired));
                }
                (Some(_), None) => return Err(bad(TokenRefused::Expired)),
                // A stream that broke comes back with the token that it began with, however long ago that was.
                (_, Some(kept)) => {
                    return Ok(Some(Visitor {
                        late: kept.until <= now,
                        ..visitor(kept.person, false, Vec::new())
                    }));
                }
                (None, None) => {}
            }
            if !door.settings.anonymous {
                let detail =
                    "this room lets in those whom the shop names: come by the shop's link, which has a token";
                return Err(ApiError::new(BAD_TOKEN, detail));
            }
        } else if token.is_some() {
            let detail = "a token is given, but the room has no key of a shop (signed_by) to check it with";
            return Err(ApiError::new(BAD_TOKEN, detail));
        }
        if let Some(browser) = Browser::of(&self.headers, tls) {
            return Ok(Some(visitor(browser.person(room), false, Vec::new())));
        }
        if !make {
            return Ok(None);
        }
        let browser = Browser::fresh().map_err(|_| ApiError::new(INTERNAL, "there is no randomness"))?;
        let cookie = browser.cookie(secure);
        Ok(Some(visitor(browser.person(room), true, vec![cookie])))
    }
}

impl Visitor {
    pub(crate) fn remember(&self, headers: &mut HeaderMap) {
        for cookie in &self.cookies {
            headers.append(header::SET_COOKIE, cookie.clone());
        }
    }

    /// Checks whether it may come, and how it comes.
    pub(crate) async fn comes(
        &self,
        rooms: &Rooms,
        door: &ServedRoom,
        asked: &JoinOptions<'_>,
        now: Timestamp,
    ) -> ApiResult<JoinParams> {
        let found = match self.fresh {
            true => None,
            false => door.room.look(&self.person).await?,
        };
        let state = found.map(|found| found.ticket.state);
        let active = state
            .as_ref()
            .is_some_and(|state| !matches!(state, TicketState::Ended { .. }));
        let told = matches!(state, Some(TicketState::Ended { .. })) && !asked.again;
        if self.late && !(active || told) {
            return Err(ApiError::new(BAD_TOKEN, TokenRefused::Expired.to_string()));
        }
        // Whoever has a ticket, or is only told how it ended, takes nothing.
        rooms
            .joins
            .take(&self.person, self.from, active || told, now)
            .map_err(|too_many| {
                let detail = "too many have come from your address, or you too often, within a minute; try again later";
                ApiError::new(TOO_MANY_JOINS, detail).after(too_many.wait)
            })?;
        if let (Some(proof), false) = (&door.settings.proof, active || told) {
            let given = asked.proof.ok_or_else(|| {
                let room = door.room.name();
                ApiError::new(
                    PROOF_NEEDED,
                    format!("ask for a challenge at /v1/rooms/{room}/challenge, work it out, and come with the answer"),
                )
            })?;
            let verified = rooms
                .proofs
                .verify(proof, given, door.room.name(), self.from, now);
            verified.map_err(|refused| ApiError::new(PROOF_NEEDED, refused.to_string()))?;
        }
        let completed = matches!(
            state,
            Some(TicketState::Ended {
                end: End::Completed,
                ..
            })
        );
        let seen = door.room.seen_or_look().await?;
        Ok(JoinParams {
            person: self.person.clone(),
            stream: false,
            again: asked.again && (door.settings.again || !completed),
            draw: door.draw(&self.person, seen.view.opens_at),
        })
    }

    /// Somebody was turned away who had been counted.
    pub(crate) fn turned_away(&self, rooms: &Rooms, outcome: &JoinOutcome, now: Timestamp) {
        if matches!(outcome, JoinOutcome::Refused(_)) {
            rooms.joins.give_back(self.from, now);
        }
    }
}

/// How somebody wants to come.
#[derive(Debug, Default)]
pub(crate) struct JoinOptions<'a> {
    pub(crate) again: bool,
    pub(crate) proof: Option<&'a str>,
}

pub(crate) fn not_taken(refused: NotTaken) -> ApiError {
    match refused {
        NotTaken::Closed => ApiError::new(ROOM_CLOSED, "the room is closed"),
        NotTaken::SoldOut => ApiError::new(SOLD_OUT, "everything is sold"),
        NotTaken::Full => ApiError::new(ROOM_FULL, "the waiting room is full; try again later"),
    }
}

/// Against proxies that would keep events back, or an answer that is one visitor's.
pub(crate) const NOT_KEPT: [(HeaderName, HeaderValue); 2] = [
    (
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-store, no-transform"),
    ),
    (
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    ),
];
