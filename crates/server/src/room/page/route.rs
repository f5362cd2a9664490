//! The routes of a room's page. The service renders the page, so that it works without JavaScript. A browser gets a page even if
//! the room does not exist or is unavailable.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tidegate_engine::room::{JoinOptions, Seen};
use tidegate_store::StoreError;

use crate::bulk::convert::time;
use crate::extract::{PathParams, QueryParams, whole_body};
use crate::pages::guarded;
use crate::problem::{ApiError, ApiResult, BAD_TOKEN, PROOF_NEEDED, ROOM_FULL, TOO_MANY_JOINS, UNAVAILABLE};
use crate::room::module::{Rooms, ServedRoom};
use crate::room::page::{self, Lang, Notice, PageView};
use crate::room::visitors::{NOT_CACHED, Visitor, VisitorRequest};
use crate::room::{ticket, visits};
use crate::state::App;

/// Limit: the size of a form.
const MAX_FORM_BYTES: u64 = 4_096;
/// An older reading does not show whether the store is available.
const FRESH: Duration = Duration::from_secs(10);

pub(crate) fn routes() -> Router<App> {
    Router::new()
        .route("/rooms/{room}", get(show))
        .route("/rooms/{room}/colours.css", get(colours))
        .route("/rooms/{room}/join", post(join))
        .route("/rooms/{room}/leave", post(leave))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageQuery {
    lang: Option<String>,
    token: Option<String>,
    notice: Option<String>,
}

fn html(status: StatusCode, text: String) -> Response {
    let mut response = (status, text).into_response();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().extend(NOT_CACHED);
    let mut response = guarded(response);
    // Without a referrer, browsers send forms with the origin `null`, which the guard would refuse.
    let own = HeaderValue::from_static("same-origin");
    response.headers_mut().insert(header::REFERRER_POLICY, own);
    response
}

fn language(request: &VisitorRequest, requested: Option<&str>) -> (Lang, bool) {
    let accept = request.headers().get(header::ACCEPT_LANGUAGE);
    Lang::choose(requested, accept.and_then(|accept| accept.to_str().ok()))
}

async fn find_room(
    app: &App,
    request: &VisitorRequest,
    name: &str,
) -> ApiResult<(Arc<Rooms>, Arc<ServedRoom>)> {
    let rooms = app.rooms()?.clone();
    let served = request.room(app, &rooms, name).await?;
    Ok((rooms, served))
}

/// The last reading of the room if it is fresh, else a new one.
async fn recent_reading(served: &ServedRoom) -> Result<Arc<Seen>, StoreError> {
    match served.room.seen() {
        Some(seen) if seen.read.elapsed() < FRESH => Ok(seen),
        _ => served.room.read_overview().await,
    }
}

/// The page for a room that does not exist or is unavailable. Other errors are returned as they are.
fn error_page(name: &str, (lang, chosen): (Lang, bool), error: ApiError) -> ApiResult<Response> {
    match error.kind.0 {
        StatusCode::NOT_FOUND => Ok(html(StatusCode::NOT_FOUND, page::missing(lang))),
        status @ (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) => {
            let mut response = html(status, page::unavailable(name, lang, chosen));
            if let Some(seconds) = error.problem().retry_after_sec {
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            Ok(response)
        }
        _ => Err(error),
    }
}

/// Shows the visitor's ticket, which counts as a heartbeat. It takes no ticket.
async fn show(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(query): QueryParams<PageQuery>,
) -> ApiResult<Response> {
    let (lang, chosen) = language(&request, query.lang.as_deref());
    let (rooms, served) = match find_room(&app, &request, &name).await {
        Ok(found) => found,
        Err(error) => return error_page(&name, (lang, chosen), error),
    };
    let mut notice = query.notice.as_deref().and_then(parse_notice);
    let visitor = match request.identify(&app, &served, query.token.as_deref()) {
        Ok(visitor) => visitor,
        Err(error) if error.kind == BAD_TOKEN => {
            notice = Some(Notice::Refused);
            None
        }
        Err(error) => return Err(error),
    };
    let ticket = match &visitor {
        Some(visitor) => match visits::keep_ticket(&rooms, &served, visitor).await {
            Ok(ticket) => ticket,
            Err(error) => {
                let person = &visitor.applicant.person;
                match served.entry(&app, &rooms).admit_without_store(person, &error) {
                    Some(claims) => Some(rooms.failed_open(&served, &claims)),
                    None => return error_page(&name, (lang, chosen), error.into()),
                }
            }
        },
        None => None,
    };
    let seen = match recent_reading(&served).await {
        Ok(seen) => Some(seen),
        Err(_) if served.entry(&app, &rooms).fails_open() => None,
        Err(error) => return error_page(&name, (lang, chosen), error.into()),
    };
    let text = render_page(&app, &served, (lang, chosen), seen.as_deref(), ticket, notice);
    let mut response = html(StatusCode::OK, text);
    if let Some(visitor) = visitor {
        visitor.remember(response.headers_mut());
    }
    Ok(response)
}

fn render_page(
    app: &App,
    served: &ServedRoom,
    (lang, lang_chosen): (Lang, bool),
    seen: Option<&Seen>,
    ticket: Option<tidegate_api::Ticket>,
    notice: Option<Notice>,
) -> String {
    let colours = &served.settings.colours;
    page::render(&PageView {
        room: served.room.name().as_str(),
        texts: served.texts(lang),
        lang,
        lang_chosen,
        coloured: colours.accent.is_some() || colours.background.is_some(),
        status: seen.map_or(tidegate_api::RoomStatus::Open, |seen| ticket::status(&seen.view)),
        opens_at: seen.and_then(|seen| seen.view.opens_at).map(time),
        waiting: seen.map_or(0, |seen| seen.view.waiting() + seen.view.early),
        at: time(app.now()),
        needs_proof: served.settings.proof.is_some(),
        grace_ms: served.settings.grace_ms.0,
        ticket,
        notice,
    })
}

async fn colours(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let (_, served) = find_room(&app, &request, &name).await?;
    let css = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    Ok(guarded(
        (css, page::stylesheet(&served.settings.colours)).into_response(),
    ))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Language {
    lang: Option<String>,
}

/// Redirects back to the page, with a notice if the form failed.
fn redirect_back(
    name: &str,
    lang: (Lang, bool),
    notice: Option<&str>,
    visitor: Option<&Visitor>,
) -> Response {
    let mut address = page::address(name, lang.0, lang.1);
    if let Some(notice) = notice {
        address += if address.contains('?') { "&" } else { "?" };
        address += "notice=";
        address += notice;
    }
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    if let Ok(address) = HeaderValue::try_from(address) {
        headers.insert(header::LOCATION, address);
    }
    headers.extend(NOT_CACHED);
    if let Some(visitor) = visitor {
        visitor.remember(headers);
    }
    response
}

fn parse_notice(name: &str) -> Option<Notice> {
    match name {
        "full" => Some(Notice::Full),
        "too_many" => Some(Notice::TooMany),
        "unavailable" => Some(Notice::Unavailable),
        "needs_script" => Some(Notice::NeedsScript),
        "refused" => Some(Notice::Refused),
        _ => None,
    }
}

fn notice_name(error: &ApiError) -> &'static str {
    match error.kind {
        ROOM_FULL => "full",
        TOO_MANY_JOINS => "too_many",
        UNAVAILABLE => "unavailable",
        PROOF_NEEDED => "needs_script",
        _ => "refused",
    }
}

async fn join(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(Language { lang }): QueryParams<Language>,
    form: Request,
) -> ApiResult<Response> {
    let lang = language(&request, lang.as_deref());
    let pause = app.config.server.body_pause_ms.into();
    let fields = whole_body(form.into_body(), MAX_FORM_BYTES, pause).await?;
    let again = fields
        .split(|byte| *byte == b'&')
        .any(|field| field == b"again=1");
    let (rooms, served) = match find_room(&app, &request, &name).await {
        Ok(found) => found,
        Err(error) => return error_page(&name, lang, error),
    };
    let Ok(visitor) = request.identify_or_create(&app, &served, None) else {
        return Ok(redirect_back(&name, lang, Some("refused"), None));
    };
    let options = JoinOptions { again, proof: None };
    let ticket = visits::take_ticket(&app, &rooms, &served, &visitor, options).await;
    let notice = ticket.as_ref().err().map(notice_name);
    Ok(redirect_back(&name, lang, notice, Some(&visitor)))
}

async fn leave(
    State(app): State<App>,
    request: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(Language { lang }): QueryParams<Language>,
) -> ApiResult<Response> {
    let lang = language(&request, lang.as_deref());
    let (rooms, served) = match find_room(&app, &request, &name).await {
        Ok(found) => found,
        Err(error) => return error_page(&name, lang, error),
    };
    let mut notice = None;
    if let Ok(Some(visitor)) = request.identify(&app, &served, None)
        && let Err(error) = visits::give_back_ticket(&rooms, &served, &visitor).await
    {
        notice = Some(notice_name(&error));
    }
    Ok(redirect_back(&name, lang, notice, None))
}
