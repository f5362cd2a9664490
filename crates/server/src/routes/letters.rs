//! Dead letters of the refresh part: list, inspect, replay or purge some or all of them.

use axum::extract::State;
use serde::Deserialize;
use tidegate_api::{DeadLetter, FailureReason, LetterSelection, LetterSkipped, LettersDone, Page, Role};
use tidegate_core::ids::SourceId;
use tidegate_engine::refresh::{AskOutcome, DeadLetterQuery, RefreshHandle, ReplayOutcome};
use tidegate_snapshots::DeadLetterPosition;
use utoipa::IntoParams;

use super::listing::page_size;
use super::records::unknown_source;
use crate::audit::Deed;
use crate::auth::Caller;
use crate::convert::time;
use crate::convert_refresh as convert;
use crate::extract::{Asked, Json, Names};
use crate::problem::{Answer, BAD_CURSOR, Refused, UNKNOWN_LETTER};
use crate::state::App;

/// Limit: letters named in one call, read at once, and skipped ones told.
const MAX_NAMED: usize = 1_000;
const PAGE: usize = 500;
const MAX_ERRORS: usize = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LetterListing {
    /// What `next` of the page before says.
    cursor: Option<String>,
    /// Most items of the page, 1 to 1,000; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    source: Option<String>,
    #[param(inline)]
    reason: Option<FailureReason>,
    /// Also those that were replayed or purged.
    #[serde(default)]
    handled: bool,
}

/// Which letters are meant.
struct Filter {
    source: Option<String>,
    reason: Option<FailureReason>,
}

impl Filter {
    fn new(handle: &RefreshHandle, source: Option<&str>, reason: Option<FailureReason>) -> Answer<Self> {
        // One that was taken out of the settings may have left letters: its name only has to be one.
        if let Some(source) = source {
            SourceId::new(source).map_err(|_| unknown_source(handle, source))?;
        }
        Ok(Self {
            source: source.map(str::to_owned),
            reason,
        })
    }

    fn takes(&self, letter: &DeadLetter) -> bool {
        let source = self.source.is_none() || self.source == letter.source;
        source && (self.reason.is_none() || self.reason == letter.failure_reason)
    }
}

fn cursor(text: Option<&str>) -> Answer<Option<DeadLetterPosition>> {
    let Some(text) = text else { return Ok(None) };
    let position = text.strip_prefix('d').and_then(convert::position);
    position.map(Some).ok_or_else(|| {
        let detail =
            format!("{text:?} is not a cursor; pass what `next` of the page before says, or nothing");
        Refused::new(BAD_CURSOR, detail)
    })
}

fn position(text: &str) -> Answer<DeadLetterPosition> {
    convert::position(text).ok_or_else(|| {
        Refused::invalid(format!(
            "{text:?} is no position of a dead letter; they are like \"3-17\""
        ))
    })
}

/// Lists dead letters by partition, the oldest first. A page may be short, or even empty, and yet have a next one.
#[utoipa::path(get, path = "/v1/refresh/dead-letters", tag = "refresh", params(LetterListing), responses((status = 200, body = Page<DeadLetter>)))]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    Asked(asked): Asked<LetterListing>,
) -> Answer<Json<Page<DeadLetter>>> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refreshes()?;
    let filter = Filter::new(handle, asked.source.as_deref(), asked.reason)?;
    let query = DeadLetterQuery {
        after: cursor(asked.cursor.as_deref())?,
        max: page_size(asked.limit)? as usize,
        handled: asked.handled,
    };
    let page = handle.dead_letters().list(query).await?;
    let letters = page.letters.into_iter().map(convert::letter);
    Ok(Json(Page {
        items: letters.filter(|letter| filter.takes(letter)).collect(),
        next: page.next.map(|next| format!("d{}", convert::position_text(next))),
    }))
}

/// One dead letter with everything that is kept of it.
#[utoipa::path(get, path = "/v1/refresh/dead-letters/{position}", tag = "refresh", params(("position" = String, Path)), responses((status = 200, body = DeadLetter)))]
pub(super) async fn inspect(
    State(app): State<App>,
    caller: Caller,
    Names(text): Names<String>,
) -> Answer<Json<DeadLetter>> {
    caller.need_for_all(Role::Read)?;
    let found = app.refreshes()?.dead_letters().inspect(position(&text)?).await?;
    found.map(convert::letter).map(Json).ok_or_else(|| {
        let detail = format!("there is no dead letter at {text}, or not any more");
        Refused::new(UNKNOWN_LETTER, detail)
    })
}

/// Asks for the records of dead letters again.
#[utoipa::path(post, path = "/v1/refresh/dead-letters/replay", tag = "refresh", request_body = LetterSelection, responses((status = 200, body = LettersDone)))]
pub(super) async fn replay(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<LetterSelection>,
) -> Answer<Json<LettersDone>> {
    each(&app, &caller, asked, Fate::Replay).await.map(Json)
}

/// Puts dead letters away: nobody needs them any more.
#[utoipa::path(post, path = "/v1/refresh/dead-letters/purge", tag = "refresh", request_body = LetterSelection, responses((status = 200, body = LettersDone)))]
pub(super) async fn purge(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<LetterSelection>,
) -> Answer<Json<LettersDone>> {
    each(&app, &caller, asked, Fate::Purge).await.map(Json)
}

#[derive(Debug, Clone, Copy)]
enum Fate {
    Replay,
    Purge,
}

impl Fate {
    fn name(self) -> &'static str {
        match self {
            Fate::Replay => "dead_letters.replay",
            Fate::Purge => "dead_letters.purge",
        }
    }
}

/// The letters that are named; none if a filter says which.
fn named(asked: &LetterSelection) -> Answer<Option<Vec<DeadLetterPosition>>> {
    let filtered = asked.source.is_some() || asked.reason.is_some();
    match &asked.positions {
        Some(_) if filtered || asked.all => Err(Refused::invalid(
            "give `positions`, or a filter, or `all`; not several of them",
        )),
        Some(positions) if positions.len() > MAX_NAMED => Err(Refused::invalid(format!(
            "{} letters are named; at most {MAX_NAMED} are allowed",
            positions.len()
        ))),
        Some(positions) => positions
            .iter()
            .map(|text| position(text))
            .collect::<Answer<_>>()
            .map(Some),
        None if filtered && asked.all => Err(Refused::invalid(
            "`all` means every dead letter; leave it out with a filter",
        )),
        None if filtered || asked.all => Ok(None),
        None => Err(Refused::invalid(
            "nothing is selected: give `positions`, or a filter (`source`, `reason`), or `all`: true",
        )),
    }
}

async fn each(app: &App, caller: &Caller, asked: LetterSelection, fate: Fate) -> Answer<LettersDone> {
    caller.need_for_all(Role::Admin)?;
    let handle = app.refreshes()?;
    let positions = named(&asked)?;
    let filter = Filter::new(handle, asked.source.as_deref(), asked.reason)?;
    let on = asked.source.as_deref().unwrap_or("dead letters");
    let deed = Deed::new(fate.name(), on).asked(&asked).because(asked.why);
    app.audited(caller, deed, async {
        let mut done = LettersDone::default();
        match positions {
            Some(positions) => these(handle, &caller.name, positions, fate, &mut done).await?,
            None => filtered_ones(handle, &caller.name, &filter, fate, &mut done).await?,
        }
        Ok(done)
    })
    .await
}

async fn filtered_ones(
    handle: &RefreshHandle,
    by: &str,
    filter: &Filter,
    fate: Fate,
    done: &mut LettersDone,
) -> Answer<()> {
    let mut after = None;
    loop {
        let query = DeadLetterQuery {
            after,
            max: PAGE,
            handled: false,
        };
        let page = handle.dead_letters().list(query).await?;
        let letters = page.letters.into_iter();
        let wanted = letters.filter_map(|view| {
            let at = view.position;
            filter.takes(&convert::letter(view)).then_some(at)
        });
        these(handle, by, wanted.collect(), fate, done).await?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn these(
    handle: &RefreshHandle,
    by: &str,
    positions: Vec<DeadLetterPosition>,
    fate: Fate,
    done: &mut LettersDone,
) -> Answer<()> {
    for position in positions {
        let skipped = match fate {
            Fate::Replay => replay_one(handle, by, position).await?,
            Fate::Purge => purge_one(handle, by, position).await?,
        };
        let Some((code, detail)) = skipped else {
            done.letters += 1;
            continue;
        };
        done.skipped += 1;
        if done.errors.len() < MAX_ERRORS {
            done.errors.push(LetterSkipped {
                position: convert::position_text(position),
                code: code.to_owned(),
                detail,
            });
        }
    }
    Ok(())
}

/// Why it was left alone, if it was.
type Left = Option<(&'static str, String)>;

async fn replay_one(handle: &RefreshHandle, by: &str, position: DeadLetterPosition) -> Answer<Left> {
    Ok(match handle.dead_letters().replay(position, by).await? {
        ReplayOutcome::Replayed(_) => None,
        ReplayOutcome::NotQueued(AskOutcome::Refused { why }) => Some(("not_queued", why)),
        ReplayOutcome::NotQueued(AskOutcome::NotBefore { at }) => Some((
            "refresh_held",
            format!("the record is not tried again before {}", time(at)),
        )),
        ReplayOutcome::NotQueued(_) => Some((
            "not_queued",
            "whether it is queued was not heard in time".to_owned(),
        )),
        ReplayOutcome::AlreadyHandled(mark) => {
            let how = format!("{:?}", mark.how).to_lowercase();
            Some((
                "already_handled",
                format!("it was {how} by {} at {}", mark.by, time(mark.at)),
            ))
        }
        ReplayOutcome::NotFound => Some((
            "unknown_dead_letter",
            "there is no such letter, or not any more".to_owned(),
        )),
        ReplayOutcome::NotReadable => Some((
            "not_readable",
            "it holds no event that could be tried again".to_owned(),
        )),
    })
}

async fn purge_one(handle: &RefreshHandle, by: &str, position: DeadLetterPosition) -> Answer<Left> {
    let letters = handle.dead_letters();
    if letters.inspect(position).await?.is_none() {
        return Ok(Some((
            "unknown_dead_letter",
            "there is no such letter, or not any more".to_owned(),
        )));
    }
    match letters.purge(&[position], by).await? {
        0 => Ok(Some((
            "already_handled",
            "it was replayed or purged already".to_owned(),
        ))),
        _ => Ok(None),
    }
}
