//! The page of a room: made here, so that it works without JavaScript. Whoever asks for it by a browser is answered by a
//! page, also where there is no room, or none that can be shown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use tidegate_engine::room::Seen;
use tidegate_store::StoreError;

use super::visits;
use crate::convert::time;
use crate::extract::{PathParams, QueryParams, whole_body};
use crate::pages::guarded;
use crate::problem::{ApiError, ApiResult, BAD_TOKEN, PROOF_NEEDED, ROOM_FULL, TOO_MANY_JOINS, UNAVAILABLE};
use crate::room::fail_open;
use crate::room::module::{Rooms, ServedRoom};
use crate::room::page::{self, Lang, Notice, PageView};
use crate::room::ticket;
use crate::room::visitors::{JoinOptions, NOT_KEPT, Visitor, VisitorRequest};
use crate::state::App;

/// Limit: a form.
const MAX_FORM_BYTES: u64 = 4_096;
/// A look at a room that is older says nothing of whether the store is there.
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
struct PresentedPass {
    lang: Option<String>,
    token: Option<String>,
    notice: Option<String>,
}

fn html(status: StatusCode, text: String) -> Response {
    let mut response = (status, text).into_response();
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response.headers_mut().extend(NOT_KEPT);
    let mut response = guarded(response);
    // Forms say where they come from, and without any referrer they would come from nowhere.
    let own = HeaderValue::from_static("same-origin");
    response.headers_mut().insert(header::REFERRER_POLICY, own);
    response
}

fn language(asking: &VisitorRequest, asked: Option<&str>) -> (Lang, bool) {
    let accept = asking.headers().get(header::ACCEPT_LANGUAGE);
    Lang::choose(asked, accept.and_then(|accept| accept.to_str().ok()))
}

async fn found(app: &App, asking: &VisitorRequest, name: &str) -> ApiResult<(Arc<Rooms>, Arc<ServedRoom>)> {
    let rooms = app.rooms()?.clone();
    let door = asking.door(app, &rooms, name).await?;
    Ok((rooms, door))
}

async fn looked_at(door: &ServedRoom) -> Result<Arc<Seen>, StoreError> {
    match door.room.seen() {
        Some(seen) if seen.read.elapsed() < FRESH => Ok(seen),
        _ => door.room.look_at_it().await,
    }
}

/// A page instead of the room's: there is none, or nothing can be told of it at the moment.
fn instead(name: &str, (lang, chosen): (Lang, bool), refused: ApiError) -> ApiResult<Response> {
    match refused.kind.0 {
        StatusCode::NOT_FOUND => Ok(html(StatusCode::NOT_FOUND, page::missing(lang))),
        status @ (StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) => {
            let mut response = html(status, page::away(name, lang, chosen));
            if let Some(seconds) = refused.problem().retry_after_sec {
                let headers = response.headers_mut();
                headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
            }
            Ok(response)
        }
        _ => Err(refused),
    }
}

/// The place as it is; asking keeps it. Takes none.
async fn show(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(shown): QueryParams<PresentedPass>,
) -> ApiResult<Response> {
    let (lang, chosen) = language(&asking, shown.lang.as_deref());
    let (rooms, door) = match found(&app, &asking, &name).await {
        Ok(found) => found,
        Err(refused) => return instead(&name, (lang, chosen), refused),
    };
    let mut notice = shown.notice.as_deref().and_then(notice_of);
    let visitor = match asking.who(&app, &door, shown.token.as_deref(), false) {
        Ok(visitor) => visitor,
        Err(refused) if refused.kind == BAD_TOKEN => {
            notice = Some(Notice::Refused);
            None
        }
        Err(refused) => return Err(refused),
    };
    let place = match &visitor {
        Some(visitor) => match visits::kept(&rooms, &door, visitor).await {
            Ok(place) => place,
            Err(refused) => match fail_open::place(&app, &rooms, &door, &visitor.person, &refused) {
                Some(place) => Some(place),
                None => return instead(&name, (lang, chosen), refused),
            },
        },
        None => None,
    };
    let seen = match looked_at(&door).await {
        Ok(seen) => Some(seen),
        Err(_) if fail_open::holds(&door, app.now()) => None,
        Err(error) => return instead(&name, (lang, chosen), error.into()),
    };
    let text = rendered(&app, &door, (lang, chosen), seen.as_deref(), place, notice);
    let mut response = html(StatusCode::OK, text);
    if let Some(visitor) = visitor {
        visitor.remember(response.headers_mut());
    }
    Ok(response)
}

fn rendered(
    app: &App,
    door: &ServedRoom,
    (lang, lang_chosen): (Lang, bool),
    seen: Option<&Seen>,
    place: Option<tidegate_api::Ticket>,
    notice: Option<Notice>,
) -> String {
    let colours = &door.settings.colours;
    page::render(&PageView {
        room: door.room.name().as_str(),
        texts: door.texts(lang),
        lang,
        lang_chosen,
        coloured: colours.accent.is_some() || colours.background.is_some(),
        status: seen.map_or(tidegate_api::RoomStatus::Open, |seen| ticket::status(&seen.view)),
        opens_at: seen.and_then(|seen| seen.view.opens_at).map(time),
        waiting: seen.map_or(0, |seen| seen.view.waiting() + seen.view.early),
        at: time(app.now()),
        proof: door.settings.proof.is_some(),
        kept_ms: door.settings.grace_ms.0,
        place,
        notice,
    })
}

async fn colours(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
) -> ApiResult<Response> {
    let (_, door) = found(&app, &asking, &name).await?;
    let css = [(header::CONTENT_TYPE, "text/css; charset=utf-8")];
    Ok(guarded(
        (css, page::stylesheet(&door.settings.colours)).into_response(),
    ))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Language {
    lang: Option<String>,
}

/// Back to the page, with what stood in the way.
fn back(name: &str, lang: (Lang, bool), notice: Option<&str>, visitor: Option<&Visitor>) -> Response {
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
    headers.extend(NOT_KEPT);
    if let Some(visitor) = visitor {
        visitor.remember(headers);
    }
    response
}

fn notice_of(name: &str) -> Option<Notice> {
    match name {
        "full" => Some(Notice::Full),
        "too_many" => Some(Notice::TooMany),
        "unavailable" => Some(Notice::Unavailable),
        "needs_script" => Some(Notice::NeedsScript),
        "refused" => Some(Notice::Refused),
        _ => None,
    }
}

fn notice(refused: &ApiError) -> &'static str {
    match refused.kind {
        ROOM_FULL => "full",
        TOO_MANY_JOINS => "too_many",
        UNAVAILABLE => "unavailable",
        PROOF_NEEDED => "needs_script",
        _ => "refused",
    }
}

async fn join(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(Language { lang }): QueryParams<Language>,
    request: Request,
) -> ApiResult<Response> {
    let lang = language(&asking, lang.as_deref());
    let pause = app.config.server.body_pause_ms.into();
    let form = whole_body(request.into_body(), MAX_FORM_BYTES, pause).await?;
    let again = form.split(|byte| *byte == b'&').any(|field| field == b"again=1");
    let (rooms, door) = match found(&app, &asking, &name).await {
        Ok(found) => found,
        Err(refused) => return instead(&name, lang, refused),
    };
    let visitor = match asking.who(&app, &door, None, true) {
        Ok(Some(visitor)) => visitor,
        Ok(None) | Err(_) => return Ok(back(&name, lang, Some("refused"), None)),
    };
    let wish = JoinOptions { again, proof: None };
    let taken = visits::taken(&app, &rooms, &door, &visitor, &wish).await;
    let notice = taken.as_ref().err().map(notice);
    Ok(back(&name, lang, notice, Some(&visitor)))
}

async fn leave(
    State(app): State<App>,
    asking: VisitorRequest,
    PathParams(name): PathParams<String>,
    QueryParams(Language { lang }): QueryParams<Language>,
) -> ApiResult<Response> {
    let lang = language(&asking, lang.as_deref());
    let (rooms, door) = match found(&app, &asking, &name).await {
        Ok(found) => found,
        Err(refused) => return instead(&name, lang, refused),
    };
    let mut notice = None;
    if let Ok(Some(visitor)) = asking.who(&app, &door, None, false)
        && let Err(refused) = visits::left(&rooms, &door, &visitor).await
    {
        notice = Some(self::notice(&refused));
    }
    Ok(back(&name, lang, notice, None))
}
