//! Dead letters of the refresh part: list, inspect, replay or purge some or all of them.

use axum::extract::State;
use serde::Deserialize;
use tidegate_api::{
    DeadLetter, DeadLetterSelection, DeadLetterSkipped, DeadLettersDone, FailureReason, Page, Role,
};
use tidegate_core::ids::SourceId;
use tidegate_engine::refresh::{DeadLetterQuery, PublishOutcome, RefreshHandle, ReplayOutcome};
use tidegate_snapshots::DeadLetterPosition;
use utoipa::IntoParams;

use super::listing::page_size;
use super::records::unknown_source;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::convert::time;
use crate::convert_refresh as convert;
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{ApiError, ApiResult, BAD_CURSOR, UNKNOWN_DEAD_LETTER};
use crate::state::App;

/// Limit: dead letters named in one call, read at once, and skipped ones told.
const MAX_NAMED: usize = 1_000;
const PAGE: usize = 500;
const MAX_ERRORS: usize = 100;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeadLetterListing {
    /// The `next` of the page before; absent for the first page.
    cursor: Option<String>,
    /// The most items of the page; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only dead letters of this source.
    source: Option<String>,
    /// Only dead letters with this failure.
    reason: Option<FailureReason>,
    /// Also dead letters that somebody has replayed or purged.
    #[serde(default)]
    handled: bool,
}

/// Which dead letters are meant.
struct Filter {
    source: Option<String>,
    reason: Option<FailureReason>,
}

impl Filter {
    fn new(handle: &RefreshHandle, source: Option<&str>, reason: Option<FailureReason>) -> ApiResult<Self> {
        // One that was taken out of the settings may have left dead letters: its name only has to be one.
        if let Some(source) = source {
            SourceId::new(source).map_err(|_| unknown_source(handle, source))?;
        }
        Ok(Self {
            source: source.map(str::to_owned),
            reason,
        })
    }

    fn takes(&self, dead_letter: &DeadLetter) -> bool {
        let source = self.source.is_none() || self.source == dead_letter.source;
        source && (self.reason.is_none() || self.reason == dead_letter.failure_reason)
    }
}

fn cursor(text: Option<&str>) -> ApiResult<Option<DeadLetterPosition>> {
    let Some(text) = text else { return Ok(None) };
    let position = text.strip_prefix('d').and_then(convert::position);
    position.map(Some).ok_or_else(|| {
        let detail =
            format!("{text:?} is not a cursor; pass what `next` of the page before says, or nothing");
        ApiError::new(BAD_CURSOR, detail)
    })
}

fn position(text: &str) -> ApiResult<DeadLetterPosition> {
    convert::position(text).ok_or_else(|| {
        ApiError::invalid(format!(
            "{text:?} is no position of a dead letter; they are like \"3-17\""
        ))
    })
}

/// Lists dead letters by partition, the oldest first.
///
/// A page may be short, or even empty, and still have a `next`.
#[utoipa::path(
    get, path = "/v1/refresh/dead-letters",
    operation_id = "listDeadLetters", tag = "refresh", security(("apiKey" = ["READ"]), ()),
    params(DeadLetterListing),
    responses((status = 200, description = "One page of dead letters.", body = Page<DeadLetter>))
)]
pub(super) async fn list(
    State(app): State<App>,
    caller: Caller,
    QueryParams(asked): QueryParams<DeadLetterListing>,
) -> ApiResult<Json<Page<DeadLetter>>> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refreshes()?;
    let filter = Filter::new(handle, asked.source.as_deref(), asked.reason)?;
    let query = DeadLetterQuery {
        after: cursor(asked.cursor.as_deref())?,
        max: page_size(asked.limit)? as usize,
        handled: asked.handled,
    };
    let page = handle.dead_letters().list(query).await?;
    let dead_letters = page.dead_letters.into_iter().map(convert::dead_letter);
    Ok(Json(Page {
        items: dead_letters
            .filter(|dead_letter| filter.takes(dead_letter))
            .collect(),
        next: page.next.map(|next| format!("d{}", convert::position_text(next))),
    }))
}

/// Reads one dead letter with everything that the service keeps of it.
#[utoipa::path(
    get, path = "/v1/refresh/dead-letters/{position}",
    operation_id = "getDeadLetter", tag = "refresh", security(("apiKey" = ["READ"]), ()),
    params(("position" = String, Path)),
    responses((status = 200, description = "The dead letter.", body = DeadLetter))
)]
pub(super) async fn inspect(
    State(app): State<App>,
    caller: Caller,
    PathParams(text): PathParams<String>,
) -> ApiResult<Json<DeadLetter>> {
    caller.need_for_all(Role::Read)?;
    let found = app.refreshes()?.dead_letters().inspect(position(&text)?).await?;
    found.map(convert::dead_letter).map(Json).ok_or_else(|| {
        let detail = format!("there is no dead letter at {text}, or not any more");
        ApiError::new(UNKNOWN_DEAD_LETTER, detail)
    })
}

/// Replays dead letters.
///
/// The service requests a new refresh of each record.
#[utoipa::path(
    post, path = "/v1/refresh/dead-letters/replay",
    operation_id = "replayDeadLetters", tag = "refresh", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = DeadLetterSelection, description = "Which dead letters to take.",
        example = json!({"source": "products", "reason": "API_5XX", "why": "The provider is back"})
    ),
    responses(
        (status = 200, description = "How many dead letters the service replayed and skipped.", body = DeadLettersDone)
    )
)]
pub(super) async fn replay(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<DeadLetterSelection>,
) -> ApiResult<Json<DeadLettersDone>> {
    each(&app, &caller, asked, Fate::Replay).await.map(Json)
}

/// Marks dead letters as purged.
///
/// Listings leave purged dead letters out unless `handled` is set.
#[utoipa::path(
    post, path = "/v1/refresh/dead-letters/purge",
    operation_id = "purgeDeadLetters", tag = "refresh", security(("apiKey" = ["ADMIN"]), ()),
    request_body(
        content = DeadLetterSelection, description = "Which dead letters to take.",
        example = json!({"source": "products", "reason": "API_5XX", "why": "The provider is back"})
    ),
    responses(
        (status = 200, description = "How many dead letters the service purged and skipped.", body = DeadLettersDone)
    )
)]
pub(super) async fn purge(
    State(app): State<App>,
    caller: Caller,
    Json(asked): Json<DeadLetterSelection>,
) -> ApiResult<Json<DeadLettersDone>> {
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

/// The dead letters that are named; none if a filter says which.
fn named(asked: &DeadLetterSelection) -> ApiResult<Option<Vec<DeadLetterPosition>>> {
    let filtered = asked.source.is_some() || asked.reason.is_some();
    match &asked.positions {
        Some(_) if filtered || asked.all => Err(ApiError::invalid(
            "give `positions`, or a filter, or `all`; not several of them",
        )),
        Some(positions) if positions.len() > MAX_NAMED => Err(ApiError::invalid(format!(
            "{} dead letters are named; at most {MAX_NAMED} are allowed",
            positions.len()
        ))),
        Some(positions) => positions
            .iter()
            .map(|text| position(text))
            .collect::<ApiResult<_>>()
            .map(Some),
        None if filtered && asked.all => Err(ApiError::invalid(
            "`all` means every dead letter; leave it out with a filter",
        )),
        None if filtered || asked.all => Ok(None),
        None => Err(ApiError::invalid(
            "nothing is selected: give `positions`, or a filter (`source`, `reason`), or `all`: true",
        )),
    }
}

async fn each(
    app: &App,
    caller: &Caller,
    asked: DeadLetterSelection,
    fate: Fate,
) -> ApiResult<DeadLettersDone> {
    caller.need_for_all(Role::Admin)?;
    let handle = app.refreshes()?;
    let positions = named(&asked)?;
    let filter = Filter::new(handle, asked.source.as_deref(), asked.reason)?;
    let on = asked.source.as_deref().unwrap_or("dead letters");
    let command = AuditedCommand::new(fate.name(), on)
        .asked(&asked)
        .because(asked.why);
    app.audited(caller, command, async {
        let mut done = DeadLettersDone::default();
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
    done: &mut DeadLettersDone,
) -> ApiResult<()> {
    let mut after = None;
    loop {
        let query = DeadLetterQuery {
            after,
            max: PAGE,
            handled: false,
        };
        let page = handle.dead_letters().list(query).await?;
        let dead_letters = page.dead_letters.into_iter();
        let wanted = dead_letters.filter_map(|view| {
            let at = view.position;
            filter.takes(&convert::dead_letter(view)).then_some(at)
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
    done: &mut DeadLettersDone,
) -> ApiResult<()> {
    for position in positions {
        let skipped = match fate {
            Fate::Replay => replay_one(handle, by, position).await?,
            Fate::Purge => purge_one(handle, by, position).await?,
        };
        let Some((code, detail)) = skipped else {
            done.dead_letters += 1;
            continue;
        };
        done.skipped += 1;
        if done.errors.len() < MAX_ERRORS {
            done.errors.push(DeadLetterSkipped {
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

async fn replay_one(handle: &RefreshHandle, by: &str, position: DeadLetterPosition) -> ApiResult<Left> {
    Ok(match handle.dead_letters().replay(position, by).await? {
        ReplayOutcome::Replayed(_) => None,
        ReplayOutcome::NotQueued(PublishOutcome::Refused { why }) => Some(("not_queued", why)),
        ReplayOutcome::NotQueued(PublishOutcome::NotBefore { at }) => Some((
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
            "there is no such dead letter, or not any more".to_owned(),
        )),
        ReplayOutcome::NotReadable => Some((
            "not_readable",
            "it holds no event that could be tried again".to_owned(),
        )),
    })
}

async fn purge_one(handle: &RefreshHandle, by: &str, position: DeadLetterPosition) -> ApiResult<Left> {
    let dead_letters = handle.dead_letters();
    if dead_letters.inspect(position).await?.is_none() {
        return Ok(Some((
            "unknown_dead_letter",
            "there is no such dead letter, or not any more".to_owned(),
        )));
    }
    match dead_letters.purge(&[position], by).await? {
        0 => Ok(Some((
            "already_handled",
            "it was replayed or purged already".to_owned(),
        ))),
        _ => Ok(None),
    }
}
