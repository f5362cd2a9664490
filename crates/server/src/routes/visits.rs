//! What visitors ask: a place, how it goes, and to leave. The stream is the usual way, the others are for those who have none.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use serde::{Deserialize, Serialize};
use tidegate_api::{JoinRoom, RoomStatus, StreamClosed, StreamEnd, Ticket, TicketState, Time};
use tidegate_core::room::command::Refused as NotTaken;
use tidegate_core::room::command::{JoinOutcome, TicketView};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::{Seen, Update, Visit};
use tidegate_store::StoreError;
use utoipa::{IntoParams, ToSchema};

use crate::convert::time;
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{ApiError, ApiResult, INTERNAL, NO_TICKET, STOPPING, TOO_MANY};
use crate::room::fail_open;
use crate::room::module::{Rooms, ServedRoom};
use crate::room::ticket::end;
use crate::room::visitors::{JoinOptions, NOT_KEPT, Visitor, VisitorRequest, not_taken};
use crate::state::App;

/// When a browser comes back after its stream broke: between so many milliseconds, so that they do not come all at once.
const RETRY_MS: std::ops::Range<u64> = 1_000..4_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct JoinQuery {
    /// Takes a new ticket at the end of the line if the last one has ended. `1` means the same as `true`.
    #[param(value_type = Option<bool>)]
    again: Option<String>,
    /// A token that the shop signed and that names the visitor. Without it the browser's cookie identifies the visitor.
    token: Option<String>,
    /// The solution of the room's challenge, if it asks for one.
    proof: Option<String>,
}

impl JoinQuery {
    fn again(&self) -> bool {
        self.again
            .as_deref()
            .is_some_and(|again| matches!(again, "1" | "true"))
    }
}

/// Joins a room, and streams what becomes of the ticket.
///
/// A visitor who has a ticket already keeps it. The newest stream of a visitor wins. The events are:
///
/// - `queued` (the first one), `position`, `early`, `granted`, `paused` and `resumed` carry a `Ticket`.
/// - `closed` ends the stream. It carries `reason` (`CLOSED`, `SOLD_OUT`, `FULL` or `ENDED`) and, for `ENDED`, how the ticket ended
///   (`end`).
/// - `superseded` ends the stream: another tab or device has taken over.
#[utoipa::path(
    get, path = "/events/{room}/tickets/waiting",
    operation_id = "streamTicketEvents", tag = "visitors", security(("visitorCookie" = []), ()),
    params(("room" = String, Path), JoinQuery),
    responses(
        (
            status = 200, description = "Server-sent events about the ticket.",
            content_type = "text/event-stream", body = String,
            example = json!("event: queued\ndata: {\"room\":\"concert\",\"state\":\"WAITING\",\"position\":17}\n\nevent: closed\ndata: {\"reason\":\"SOLD_OUT\"}\n\n")
        )
    )
)]
pub(super) async fn stream(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(coming): QueryParams<JoinQuery>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    if app.stopping.is_cancelled() {
        return Err(ApiError::new(
            STOPPING,
            "the service is stopping; come again in a moment",
        ));
    }
    let door = asking.door(&app, &rooms, &name).await?;
    let Ok(held) = rooms.streams.clone().try_acquire_owned() else {
        let most = app.config.room.max_streams;
        let detail = format!(
            "{most} visitors are connected here, as many as room.max_streams allows; come again in a moment"
        );
        return Err(ApiError::new(TOO_MANY, detail));
    };
    let visitor = named(asking.who(&app, &door, coming.token.as_deref(), true)?)?;
    let wish = JoinOptions {
        again: coming.again(),
        proof: coming.proof.as_deref(),
    };
    let body = match visit(&app, &rooms, &door, &visitor, &wish).await? {
        Begun::Visit(visit) => {
            let stopping = app.stopping.clone();
            let told = VisitEvent {
                rooms: rooms.clone(),
                door: door.clone(),
                visit,
                paused: false,
                first: true,
                over: false,
            };
            let stream = futures_util::StreamExt::take_until(events(told, held), stopping.cancelled_owned());
            Body::from_stream(stream)
        }
        Begun::Over(event) => Body::from(event),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.extend(NOT_KEPT);
    visitor.remember(headers);
    Ok(response)
}

fn named(visitor: Option<Visitor>) -> ApiResult<Visitor> {
    visitor.ok_or_else(|| ApiError::new(INTERNAL, "a visitor was not given a name"))
}

enum Begun {
    Visit(Visit),
    /// All there is to tell.
    Over(Bytes),
}

async fn visit(
    app: &App,
    rooms: &Rooms,
    door: &ServedRoom,
    visitor: &Visitor,
    wish: &JoinOptions<'_>,
) -> ApiResult<Begun> {
    let joined = async {
        let params = visitor.comes(rooms, door, wish, app.now()).await?;
        Ok::<_, ApiError>(door.room.visit(params).await?)
    };
    let begun = match joined.await {
        Ok(begun) => begun,
        Err(refused) => match fail_open::place(app, rooms, door, &visitor.person, &refused) {
            Some(place) => return Ok(Begun::Over(event("granted", &place, true))),
            None => return Err(refused),
        },
    };
    match begun {
        Ok(visit) => Ok(Begun::Visit(visit)),
        Err(outcome) => {
            visitor.turned_away(rooms, &outcome, app.now());
            let closed = match outcome {
                JoinOutcome::Refused(NotTaken::Closed) => closed(StreamEnd::Closed),
                JoinOutcome::Refused(NotTaken::SoldOut) => closed(StreamEnd::SoldOut),
                JoinOutcome::Refused(NotTaken::Full) => closed(StreamEnd::Full),
                JoinOutcome::Ended(ticket) | JoinOutcome::Placed { ticket, .. } => ended(&ticket),
            };
            Ok(Begun::Over(event("closed", &closed, true)))
        }
    }
}

fn closed(reason: StreamEnd) -> StreamClosed {
    StreamClosed { reason, end: None }
}

fn ended(ticket: &TicketView) -> StreamClosed {
    use tidegate_core::room::ticket::TicketState;
    StreamClosed {
        reason: StreamEnd::Ended,
        end: match ticket.ticket.state {
            TicketState::Ended { end: how, .. } => Some(end(how)),
            _ => None,
        },
    }
}

/// Bytes that most events need.
const EVENT_BYTES: usize = 512;

/// One event as it goes over the wire. The first one says when to come back.
fn event<T: Serialize>(name: &str, data: &T, first: bool) -> Bytes {
    let mut text = Vec::with_capacity(EVENT_BYTES);
    if first {
        let mut random = [0; 8];
        // Without randomness they come back at the same time, which is better than not at all.
        let _ = getrandom::fill(&mut random);
        let spread = u64::from_be_bytes(random) % (RETRY_MS.end - RETRY_MS.start);
        text.extend_from_slice(format!("retry: {}\n", RETRY_MS.start + spread).as_bytes());
    }
    for part in ["event: ", name, "\ndata: "] {
        text.extend_from_slice(part.as_bytes());
    }
    serde_json::to_writer(&mut text, data).expect("answers are plain data without line ends of their own");
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// A stream, and what it told last.
struct VisitEvent {
    rooms: Arc<Rooms>,
    door: Arc<ServedRoom>,
    visit: Visit,
    paused: bool,
    first: bool,
    over: bool,
}

impl VisitEvent {
    /// The next event; none when there is nothing more to tell.
    async fn next(&mut self) -> Option<Bytes> {
        if self.over {
            return None;
        }
        let update = self.visit.next().await?;
        let first = std::mem::take(&mut self.first);
        match update {
            Update::Quiet => Some(Bytes::from_static(b":\n\n")),
            Update::Superseded => {
                self.over = true;
                Some(Bytes::from_static(b"event: superseded\ndata: {}\n\n"))
            }
            Update::Ticket(view) => {
                let seen = match self.visit.seen() {
                    Some(seen) => seen,
                    None => self.door.room.seen_or_look().await.ok()?,
                };
                Some(self.tell(&view, &seen, first))
            }
        }
    }

    fn tell(&mut self, view: &TicketView, seen: &Seen, first: bool) -> Bytes {
        let place = self.rooms.place(&self.door, self.visit.person(), view, seen);
        if place.state == TicketState::Ended {
            self.over = true;
            return event("closed", &ended(view), first);
        }
        let waits = matches!(place.state, TicketState::Waiting | TicketState::Early);
        if waits && let RoomStatus::Closed | RoomStatus::SoldOut = place.room_status {
            self.over = true;
            let reason = match place.room_status {
                RoomStatus::SoldOut => StreamEnd::SoldOut,
                _ => StreamEnd::Closed,
            };
            return event("closed", &closed(reason), first);
        }
        let paused = place.room_status == RoomStatus::Paused;
        let turned = std::mem::replace(&mut self.paused, paused) != paused;
        let name = match place.state {
            TicketState::Granted => "granted",
            _ if turned && paused => "paused",
            TicketState::Early => "early",
            _ if turned => "resumed",
            _ if first => "queued",
            _ => "position",
        };
        event(name, &place, first)
    }
}

fn events<H: Send + 'static>(told: VisitEvent, held: H) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold((told, held), |(mut told, held)| async move {
        let event = told.next().await?;
        Some((Ok(event), (told, held)))
    })
}

/// An answer that is one visitor's.
fn own<T: Serialize>(visitor: &Visitor, body: &T) -> Response {
    let mut response = axum::Json(body).into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    headers.extend(NOT_KEPT);
    visitor.remember(headers);
    response
}

/// Joins a room.
///
/// A visitor who has a ticket already keeps it. Read the ticket every few seconds to keep it, or use the stream.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/join",
    operation_id = "joinRoom", tag = "visitors", security(("visitorCookie" = []), ()),
    params(("room" = String, Path)),
    request_body(
        content = JoinRoom, description = "How to join. Every field has a default.",
        example = json!({"again": false})
    ),
    responses((status = 200, description = "The ticket.", body = Ticket))
)]
pub(super) async fn join(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
    Json(asked): Json<JoinRoom>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let door = asking.door(&app, &rooms, &name).await?;
    let visitor = named(asking.who(&app, &door, asked.token.as_deref(), true)?)?;
    let wish = JoinOptions {
        again: asked.again,
        proof: asked.proof.as_deref(),
    };
    let place = taken(&app, &rooms, &door, &visitor, &wish).await?;
    Ok(own(&visitor, &place))
}

/// Takes or finds a place without a stream.
pub(crate) async fn taken(
    app: &App,
    rooms: &Rooms,
    door: &ServedRoom,
    visitor: &Visitor,
    wish: &JoinOptions<'_>,
) -> ApiResult<Ticket> {
    let joined = async {
        let params = visitor.comes(rooms, door, wish, app.now()).await?;
        let outcome = door.room.join(params).await?;
        Ok::<_, ApiError>((outcome, door.room.seen_or_look().await?))
    };
    match joined.await {
        Ok((JoinOutcome::Placed { ticket, .. } | JoinOutcome::Ended(ticket), seen)) => {
            Ok(rooms.place(door, &visitor.person, &ticket, &seen))
        }
        Ok((outcome @ JoinOutcome::Refused(refused), _)) => {
            visitor.turned_away(rooms, &outcome, app.now());
            Err(not_taken(refused))
        }
        Err(refused) => fail_open::place(app, rooms, door, &visitor.person, &refused).ok_or(refused),
    }
}

/// Reads the visitor's ticket.
///
/// Reading the ticket also keeps it alive, as a stream does.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/ticket",
    operation_id = "getTicket", tag = "visitors", security(("visitorCookie" = []), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The ticket.", body = Ticket))
)]
pub(super) async fn place(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let door = asking.door(&app, &rooms, &name).await?;
    let visitor = asking
        .who(&app, &door, None, false)?
        .ok_or_else(|| no_place(&name))?;
    let place = kept(&rooms, &door, &visitor)
        .await?
        .ok_or_else(|| no_place(&name))?;
    Ok(own(&visitor, &place))
}

fn no_place(name: &str) -> ApiError {
    ApiError::new(
        NO_TICKET,
        format!("you have no place in room {name:?}; take one first"),
    )
}

/// The visitor's place, kept alive; none if there is none.
pub(crate) async fn kept(rooms: &Rooms, door: &ServedRoom, visitor: &Visitor) -> ApiResult<Option<Ticket>> {
    let found = match door.room.look(&visitor.person).await? {
        None => return Ok(None),
        Some(found) => found,
    };
    let seen = door.room.seen_or_look().await?;
    // Also gives another pass to somebody whose pass was voided.
    let outcome = visitor.stays(door, &found, &seen).await?;
    Ok(Some(rooms.place(door, &visitor.person, &outcome, &seen)))
}

/// Gives the visitor's ticket or slot back.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/leave",
    operation_id = "leaveRoom", tag = "visitors", security(("visitorCookie" = []), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The ended ticket.", body = Ticket))
)]
pub(super) async fn leave(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let door = asking.door(&app, &rooms, &name).await?;
    let visitor = asking
        .who(&app, &door, None, false)?
        .ok_or_else(|| no_place(&name))?;
    let place = left(&rooms, &door, &visitor)
        .await?
        .ok_or_else(|| no_place(&name))?;
    Ok(own(&visitor, &place))
}

pub(crate) async fn left(rooms: &Rooms, door: &ServedRoom, visitor: &Visitor) -> ApiResult<Option<Ticket>> {
    rooms
        .handle
        .store()
        .leave(door.room.name(), &visitor.person)
        .await?;
    let Some(found) = door.room.look(&visitor.person).await? else {
        return Ok(None);
    };
    let seen = door.room.seen_or_look().await?;
    Ok(Some(rooms.place(door, &visitor.person, &found, &seen)))
}

/// A proof of work that a room asks for.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Challenge {
    /// Find a nonce of at most 32 letters, digits, `-` or `_`, so that SHA-256 of this text and the nonce begins with `bits` zero
    /// bits. Join with this text, a dot and the nonce as `proof`. Null if the room asks for none.
    #[schema(required)]
    challenge: Option<String>,
    /// How many zero bits the hash must begin with.
    #[schema(required)]
    bits: Option<u8>,
}

/// Reads the proof-of-work challenge of a room.
///
/// A room may ask visitors to solve one before they join.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/challenge",
    operation_id = "getChallenge", tag = "visitors", security(()),
    params(("room" = String, Path)),
    responses(
        (status = 200, description = "The challenge, or nulls if the room asks for none.", body = Challenge)
    )
)]
pub(super) async fn challenge(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let door = asking.door(&app, &rooms, &name).await?;
    let challenge = match &door.settings.proof {
        None => Challenge {
            challenge: None,
            bits: None,
        },
        Some(proof) => {
            let made = rooms
                .proofs
                .challenge(proof, door.room.name(), asking.from(&rooms), app.now());
            Challenge {
                challenge: Some(made.map_err(|_| ApiError::new(INTERNAL, "there is no randomness"))?),
                bits: Some(proof.bits),
            }
        }
    };
    let mut response = axum::Json(challenge).into_response();
    response.headers_mut().extend(NOT_KEPT);
    Ok(response)
}

/// Which draw.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WhichDraw {
    /// An earlier opening time, for visitors who came before an operator moved it. The current opening time if absent.
    opens_at: Option<Time>,
}

/// How a draw can be checked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Draw {
    /// The opening that the draw is for; null for a room without one.
    #[schema(required)]
    opens_at: Option<Time>,
    /// SHA-256 of the seed, in hexadecimal; null without an opening.
    #[schema(required)]
    commitment: Option<String>,
    /// The seed in hexadecimal; null before the opening. The first 52 bits of SHA-256 over seed and person decide: the smaller
    /// number goes first.
    #[schema(required)]
    seed: Option<String>,
}

/// Reads what the draw of early visitors is made with.
///
/// Before the opening the answer has a commitment; after it also the seed, so that everybody can check the draw.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/draw",
    operation_id = "getDraw", tag = "visitors", security(()),
    params(("room" = String, Path), WhichDraw),
    responses((status = 200, description = "The commitment and, after the opening, the seed.", body = Draw))
)]
pub(super) async fn draw(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(which): QueryParams<WhichDraw>,
) -> ApiResult<axum::Json<Draw>> {
    let rooms = app.rooms()?.clone();
    let door = asking.door(&app, &rooms, &name).await?;
    let view = &door.room.seen_or_look().await?.view;
    let asked = which.opens_at.map(|at| Timestamp(at.0));
    let opens_at = asked.or(view.opens_at);
    let seed = door.seed(opens_at);
    let past = opens_at.is_some_and(|at| at <= view.now);
    Ok(axum::Json(Draw {
        opens_at: opens_at.map(time),
        commitment: opens_at.map(|_| crate::room::draw::commitment(&seed)),
        seed: past.then(|| seed.iter().map(|byte| format!("{byte:02x}")).collect()),
    }))
}

impl Visitor {
    /// A heartbeat without a stream.
    async fn stays(
        &self,
        door: &ServedRoom,
        found: &TicketView,
        seen: &Seen,
    ) -> Result<TicketView, StoreError> {
        use tidegate_core::room::ticket::TicketState;
        let (store, room) = (door.room.store(), door.room.name());
        match found.ticket.state {
            TicketState::Granted { wave, .. } if seen.view.voided >= wave => {
                store.reissue(room, &self.person).await?;
                Ok(door
                    .room
                    .look(&self.person)
                    .await?
                    .unwrap_or_else(|| found.clone()))
            }
            TicketState::Early { .. } | TicketState::Waiting { .. } => {
                let touch = tidegate_core::room::command::TouchParams {
                    person: self.person.clone(),
                    stream: found.ticket.stream,
                    present: true,
                };
                store.touch(room, vec![touch]).await?;
                Ok(found.clone())
            }
            _ => Ok(found.clone()),
        }
    }
}
