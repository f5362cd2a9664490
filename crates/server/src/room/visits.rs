//! The routes of visitors: join, read the ticket, leave. Browsers use the stream; the other routes serve clients without one.

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
use tidegate_core::room::command::{Refused as NotTaken, TicketView};
use tidegate_core::time::Timestamp;
use tidegate_engine::room::{Begun, Entered, EntryRefused, JoinOptions, Seen, SeenTicket, Update, Visit};
use tidegate_store::StoreError;
use utoipa::{IntoParams, ToSchema};

use crate::bulk::convert::time;
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{ApiError, ApiResult, NO_TICKET, STOPPING, TOO_MANY};
use crate::room::module::{Rooms, ServedRoom};
use crate::room::ticket::end;
use crate::room::visitors::{NOT_CACHED, Visitor, VisitorRequest, entry_refused, no_randomness};
use crate::state::App;

/// How long a browser waits before it reopens a broken stream, in milliseconds. It is random, so that browsers do not reconnect
/// all at once.
const RETRY_MS: std::ops::Range<u64> = 1_000..4_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct JoinQuery {
    /// Takes a new ticket at the end of the line if the last one has ended. `1` means the same as `true`.
    #[param(value_type = Option<bool>)]
    again: Option<String>,
    /// A token that the shop signed and that names the visitor. Without it the browser's cookie identifies the visitor.
    token: Option<String>,
    /// The solution of the room's challenge, if the room requires one.
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
/// - `superseded` ends the stream: another tab or device of the visitor has taken over.
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
pub(crate) async fn stream(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<JoinQuery>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    if app.stopping.is_cancelled() {
        return Err(ApiError::new(
            STOPPING,
            "the service is shutting down; try again in a moment",
        ));
    }
    let served = request.room(&app, &rooms, &name).await?;
    let Ok(permit) = rooms.streams.clone().try_acquire_owned() else {
        let most = app.config.room.max_streams;
        let detail = format!(
            "{most} visitors' streams are open, and room.max_streams allows no more; try again in a moment"
        );
        return Err(ApiError::new(TOO_MANY, detail));
    };
    let visitor = request.identify_or_create(&app, &served, query.token.as_deref())?;
    let options = JoinOptions {
        again: query.again(),
        proof: query.proof.as_deref(),
    };
    let entered = served
        .entry(&app, &rooms)
        .visit(&visitor.applicant, options)
        .await?;
    let body = match entered {
        Entered::Ticket(Begun::Visit(visit)) => {
            let stopping = app.stopping.clone();
            let tickets = TicketStream {
                rooms: rooms.clone(),
                served: served.clone(),
                visit,
                paused: false,
                first: true,
                over: false,
            };
            let stream = events(tickets, permit);
            let stream = futures_util::StreamExt::take_until(stream, stopping.cancelled_owned());
            Body::from_stream(stream)
        }
        // The only event of a stream that ends at once.
        Entered::Ticket(Begun::Ended(ticket)) => Body::from(event("closed", &ended(&ticket), true)),
        Entered::FailedOpen(claims) => {
            let ticket = rooms.failed_open(&served, &claims);
            Body::from(event("granted", &ticket, true))
        }
        Entered::Refused(EntryRefused::Room(refused)) => {
            let reason = match refused {
                NotTaken::Closed => StreamEnd::Closed,
                NotTaken::SoldOut => StreamEnd::SoldOut,
                NotTaken::Full => StreamEnd::Full,
            };
            Body::from(event("closed", &closed(reason), true))
        }
        Entered::Refused(refused) => return Err(entry_refused(&served, refused)),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.extend(NOT_CACHED);
    visitor.remember(headers);
    Ok(response)
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

/// The size that most events need.
const EVENT_BYTES: usize = 512;

/// Encodes one event. The first one says when to reconnect.
fn event<T: Serialize>(name: &str, data: &T, first: bool) -> Bytes {
    let mut text = Vec::with_capacity(EVENT_BYTES);
    if first {
        let mut random = [0; 8];
        // Without randomness all browsers reconnect at the same time, which is better than not at all.
        let _ = getrandom::fill(&mut random);
        let spread = u64::from_be_bytes(random) % (RETRY_MS.end - RETRY_MS.start);
        text.extend_from_slice(format!("retry: {}\n", RETRY_MS.start + spread).as_bytes());
    }
    for part in ["event: ", name, "\ndata: "] {
        text.extend_from_slice(part.as_bytes());
    }
    serde_json::to_writer(&mut text, data).expect("tickets serialize to JSON");
    text.extend_from_slice(b"\n\n");
    text.into()
}

/// The stream of one visitor's ticket, and the state of its last event.
struct TicketStream {
    rooms: Arc<Rooms>,
    served: Arc<ServedRoom>,
    visit: Visit,
    paused: bool,
    first: bool,
    over: bool,
}

impl TicketStream {
    /// Returns the next event; `None` after the last one.
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
                    None => self.served.room.seen_or_read().await.ok()?,
                };
                Some(self.render(&view, &seen, first))
            }
        }
    }

    fn render(&mut self, view: &TicketView, seen: &Seen, first: bool) -> Bytes {
        let ticket = self.rooms.ticket(&self.served, self.visit.person(), view, seen);
        if ticket.state == TicketState::Ended {
            self.over = true;
            return event("closed", &ended(view), first);
        }
        let waits = matches!(ticket.state, TicketState::Waiting | TicketState::Early);
        if waits && let RoomStatus::Closed | RoomStatus::SoldOut = ticket.room_status {
            self.over = true;
            let reason = match ticket.room_status {
                RoomStatus::SoldOut => StreamEnd::SoldOut,
                _ => StreamEnd::Closed,
            };
            return event("closed", &closed(reason), first);
        }
        let paused = ticket.room_status == RoomStatus::Paused;
        let changed = std::mem::replace(&mut self.paused, paused) != paused;
        let name = match ticket.state {
            TicketState::Granted => "granted",
            _ if changed && paused => "paused",
            TicketState::Early => "early",
            _ if changed => "resumed",
            _ if first => "queued",
            _ => "position",
        };
        event(name, &ticket, first)
    }
}

/// The events of a ticket. The stream holds the permit while it lives.
fn events<P: Send + 'static>(
    tickets: TicketStream,
    permit: P,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold((tickets, permit), |(mut tickets, permit)| async move {
        let event = tickets.next().await?;
        Some((Ok(event), (tickets, permit)))
    })
}

/// The response to one visitor, which no proxy may cache.
fn own<T: Serialize>(visitor: &Visitor, body: &T) -> Response {
    let mut response = axum::Json(body).into_response();
    let headers: &mut HeaderMap = response.headers_mut();
    headers.extend(NOT_CACHED);
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
pub(crate) async fn join(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
    Json(body): Json<JoinRoom>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let served = request.room(&app, &rooms, &name).await?;
    let visitor = request.identify_or_create(&app, &served, body.token.as_deref())?;
    let options = JoinOptions {
        again: body.again,
        proof: body.proof.as_deref(),
    };
    let ticket = take_ticket(&app, &rooms, &served, &visitor, options).await?;
    Ok(own(&visitor, &ticket))
}

/// Takes a ticket without a stream, or finds the visitor's ticket.
pub(crate) async fn take_ticket(
    app: &App,
    rooms: &Rooms,
    served: &ServedRoom,
    visitor: &Visitor,
    options: JoinOptions<'_>,
) -> ApiResult<Ticket> {
    let applicant = &visitor.applicant;
    match served.entry(app, rooms).join(applicant, options).await? {
        Entered::Ticket(SeenTicket { ticket, seen }) => {
            Ok(rooms.ticket(served, &applicant.person, &ticket, &seen))
        }
        Entered::FailedOpen(claims) => Ok(rooms.failed_open(served, &claims)),
        Entered::Refused(refused) => Err(entry_refused(served, refused)),
    }
}

/// Reads the visitor's ticket.
///
/// Reading the ticket also counts as a heartbeat, as a stream does.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/ticket",
    operation_id = "getTicket", tag = "visitors", security(("visitorCookie" = []), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The ticket.", body = Ticket))
)]
pub(crate) async fn ticket(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let served = request.room(&app, &rooms, &name).await?;
    let visitor = request
        .identify(&app, &served, None)?
        .ok_or_else(|| no_ticket(&name))?;
    let ticket = keep_ticket(&rooms, &served, &visitor)
        .await?
        .ok_or_else(|| no_ticket(&name))?;
    Ok(own(&visitor, &ticket))
}

fn no_ticket(name: &str) -> ApiError {
    ApiError::new(
        NO_TICKET,
        format!("you have no ticket for room {name:?}; join the room first"),
    )
}

/// Reads the visitor's ticket, which counts as a heartbeat; `None` without a ticket.
pub(crate) async fn keep_ticket(
    rooms: &Rooms,
    served: &ServedRoom,
    visitor: &Visitor,
) -> Result<Option<Ticket>, StoreError> {
    let person = &visitor.applicant.person;
    let kept = served.room.keep(person).await?;
    Ok(kept.map(|SeenTicket { ticket, seen }| rooms.ticket(served, person, &ticket, &seen)))
}

/// Gives the visitor's ticket or slot back.
#[utoipa::path(
    post, path = "/v1/rooms/{room}/leave",
    operation_id = "leaveRoom", tag = "visitors", security(("visitorCookie" = []), ()),
    params(("room" = String, Path)),
    responses((status = 200, description = "The ended ticket.", body = Ticket))
)]
pub(crate) async fn leave(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let served = request.room(&app, &rooms, &name).await?;
    let visitor = request
        .identify(&app, &served, None)?
        .ok_or_else(|| no_ticket(&name))?;
    let ticket = give_back_ticket(&rooms, &served, &visitor)
        .await?
        .ok_or_else(|| no_ticket(&name))?;
    Ok(own(&visitor, &ticket))
}

/// Gives the visitor's ticket or slot back; `None` without a ticket.
pub(crate) async fn give_back_ticket(
    rooms: &Rooms,
    served: &ServedRoom,
    visitor: &Visitor,
) -> ApiResult<Option<Ticket>> {
    rooms
        .handle
        .store()
        .leave(served.room.name(), &visitor.applicant.person)
        .await?;
    let Some(found) = served.room.look(&visitor.applicant.person).await? else {
        return Ok(None);
    };
    let seen = served.room.seen_or_read().await?;
    Ok(Some(rooms.ticket(
        served,
        &visitor.applicant.person,
        &found,
        &seen,
    )))
}

/// The proof of work that a room requires.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Challenge {
    /// Find a nonce of at most 32 letters, digits, `-` or `_`, so that SHA-256 of this text and the nonce begins with `bits` zero
    /// bits. Join with this text, a dot and the nonce as `proof`. Null if the room requires none.
    #[schema(required)]
    challenge: Option<String>,
    /// How many zero bits the hash must begin with.
    #[schema(required)]
    bits: Option<u8>,
}

/// Reads the proof-of-work challenge of a room.
///
/// A room may require visitors to solve one before they join.
#[utoipa::path(
    get, path = "/v1/rooms/{room}/challenge",
    operation_id = "getChallenge", tag = "visitors", security(()),
    params(("room" = String, Path)),
    responses(
        (status = 200, description = "The challenge, or nulls if the room requires none.", body = Challenge)
    )
)]
pub(crate) async fn challenge(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let rooms = app.rooms()?.clone();
    let served = request.room(&app, &rooms, &name).await?;
    let challenge = match &served.settings.proof {
        None => Challenge {
            challenge: None,
            bits: None,
        },
        Some(proof) => {
            let made = rooms
                .proofs
                .challenge(proof, served.room.name(), request.from(&rooms), app.now());
            Challenge {
                challenge: Some(made.map_err(|_| no_randomness())?),
                bits: Some(proof.bits),
            }
        }
    };
    let mut response = axum::Json(challenge).into_response();
    response.headers_mut().extend(NOT_CACHED);
    Ok(response)
}

/// Which draw.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichDraw {
    /// An earlier opening time, for visitors who came before an operator moved it. The current opening time if absent.
    opens_at: Option<Time>,
}

/// How a draw can be checked.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Draw {
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
pub(crate) async fn draw(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(which): QueryParams<WhichDraw>,
) -> ApiResult<axum::Json<Draw>> {
    let rooms = app.rooms()?.clone();
    let served = request.room(&app, &rooms, &name).await?;
    let view = &served.room.seen_or_read().await?.view;
    let requested = which.opens_at.map(|at| Timestamp(at.0));
    let opens_at = requested.or(view.opens_at);
    let seed = served.seed(opens_at);
    let past = opens_at.is_some_and(|at| at <= view.now);
    Ok(axum::Json(Draw {
        opens_at: opens_at.map(time),
        commitment: opens_at.map(|_| tidegate_engine::room::commitment(&seed)),
        seed: past.then(|| seed.iter().map(|byte| format!("{byte:02x}")).collect()),
    }))
}
