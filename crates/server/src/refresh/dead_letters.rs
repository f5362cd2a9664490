//! Dead letters of the refresh module: list, inspect, replay and purge.

use axum::extract::State;
use serde::Deserialize;
use tidegate_api::{DeadLetter, DeadLetterName, DeadLetterSelection, DeadOutcome, FailureReason, Page, Role};
use tidegate_core::ids::SourceId;
use tidegate_engine::refresh::{DeadLetterQuery, PublishOutcome, RefreshHandle, ReplayOutcome};
use tidegate_snapshots::DeadLetterPosition;
use utoipa::IntoParams;

use super::convert;
use super::records::unknown_source;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::bulk::convert::time;
use crate::dead_items::{Command, PAGE, Selection, Skip, count};
use crate::extract::{Json, PathParams, QueryParams};
use crate::problem::{ApiError, ApiResult, BAD_CURSOR, UNKNOWN_DEAD_LETTER};
use crate::routes::listing::page_size;
use crate::state::App;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadLetterListing {
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

/// Selects dead letters.
struct Filter {
    source: Option<String>,
    reason: Option<FailureReason>,
}

impl Filter {
    fn new(handle: &RefreshHandle, source: Option<&str>, reason: Option<FailureReason>) -> ApiResult<Self> {
        // A source that the configuration no longer has may have left dead letters, so any valid name is accepted.
        if let Some(source) = source {
            SourceId::new(source).map_err(|_| unknown_source(handle, source))?;
        }
        Ok(Self {
            source: source.map(str::to_owned),
            reason,
        })
    }

    fn matches(&self, dead_letter: &DeadLetter) -> bool {
        let source = self.source.is_none() || self.source == dead_letter.source;
        source && (self.reason.is_none() || self.reason == dead_letter.failure_reason)
    }
}

fn cursor(text: Option<&str>) -> ApiResult<Option<DeadLetterPosition>> {
    let Some(text) = text else { return Ok(None) };
    let position = text.strip_prefix('d').and_then(convert::position);
    position.map(Some).ok_or_else(|| {
        let detail =
            format!("{text:?} is not a cursor; pass `next` of the previous page, or leave the cursor out");
        ApiError::new(BAD_CURSOR, detail)
    })
}

fn position(text: &str) -> ApiResult<DeadLetterPosition> {
    convert::position(text).ok_or_else(|| {
        ApiError::invalid(format!(
            "{text:?} is not the position of a dead letter; it must be like \"3-17\""
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
pub(crate) async fn list(
    State(app): State<App>,
    caller: Caller,
    QueryParams(params): QueryParams<DeadLetterListing>,
) -> ApiResult<Json<Page<DeadLetter>>> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refresh_handle()?;
    let filter = Filter::new(handle, params.source.as_deref(), params.reason)?;
    let query = DeadLetterQuery {
        after: cursor(params.cursor.as_deref())?,
        max: page_size(params.limit)? as usize,
        handled: params.handled,
    };
    let page = handle.dead_letters().list(query).await?;
    let dead_letters = page.dead_letters.into_iter().map(convert::dead_letter);
    Ok(Json(Page {
        items: dead_letters
            .filter(|dead_letter| filter.matches(dead_letter))
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
pub(crate) async fn inspect(
    State(app): State<App>,
    caller: Caller,
    PathParams(text): PathParams<String>,
) -> ApiResult<Json<DeadLetter>> {
    caller.need_for_all(Role::Read)?;
    let handle = app.refresh_handle()?;
    let found = handle.dead_letters().inspect(position(&text)?).await?;
    found.map(convert::dead_letter).map(Json).ok_or_else(|| {
        let detail = format!("there is no dead letter at position {text}, or the log has dropped it");
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
        (status = 200, description = "How many dead letters the service replayed and skipped.", body = DeadOutcome<DeadLetterName>)
    )
)]
pub(crate) async fn replay(
    State(app): State<App>,
    caller: Caller,
    Json(selection): Json<DeadLetterSelection>,
) -> ApiResult<Json<DeadOutcome<DeadLetterName>>> {
    run(&app, &caller, selection, Command::Replay).await.map(Json)
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
        (status = 200, description = "How many dead letters the service purged and skipped.", body = DeadOutcome<DeadLetterName>)
    )
)]
pub(crate) async fn purge(
    State(app): State<App>,
    caller: Caller,
    Json(selection): Json<DeadLetterSelection>,
) -> ApiResult<Json<DeadOutcome<DeadLetterName>>> {
    run(&app, &caller, selection, Command::Purge).await.map(Json)
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Replay => "dead_letters.replay",
        Command::Purge => "dead_letters.purge",
    }
}

async fn run(
    app: &App,
    caller: &Caller,
    selection: DeadLetterSelection,
    command: Command,
) -> ApiResult<DeadOutcome<DeadLetterName>> {
    caller.need_for_all(Role::Admin)?;
    let handle = app.refresh_handle()?;
    Selection {
        named: selection.positions.as_ref().map(Vec::len),
        filtered: selection.source.is_some() || selection.reason.is_some(),
        all: selection.all,
        field: "positions",
        filters: "`source`, `reason`",
    }
    .check()?;
    let named = selection.positions.as_ref();
    let named: Option<Vec<_>> = named
        .map(|texts| texts.iter().map(|text| position(text)).collect::<ApiResult<_>>())
        .transpose()?;
    let filter = Filter::new(handle, selection.source.as_deref(), selection.reason)?;
    let on = selection.source.as_deref().unwrap_or("dead letters");
    let audited = AuditedCommand::new(name(command), on)
        .with_detail(&selection)
        .because(selection.why);
    app.audited(caller, audited, async {
        let mut outcome = DeadOutcome::default();
        match named {
            Some(positions) => run_on(handle, &caller.name, positions, command, &mut outcome).await?,
            None => run_on_filtered(handle, &caller.name, &filter, command, &mut outcome).await?,
        }
        Ok(outcome)
    })
    .await
}

async fn run_on_filtered(
    handle: &RefreshHandle,
    by: &str,
    filter: &Filter,
    command: Command,
    outcome: &mut DeadOutcome<DeadLetterName>,
) -> ApiResult<()> {
    let mut after = None;
    loop {
        let query = DeadLetterQuery {
            after,
            max: PAGE as usize,
            handled: false,
        };
        let page = handle.dead_letters().list(query).await?;
        let dead_letters = page.dead_letters.into_iter();
        let wanted = dead_letters.filter_map(|view| {
            let at = view.position;
            filter.matches(&convert::dead_letter(view)).then_some(at)
        });
        run_on(handle, by, wanted.collect(), command, outcome).await?;
        after = page.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn run_on(
    handle: &RefreshHandle,
    by: &str,
    positions: Vec<DeadLetterPosition>,
    command: Command,
    outcome: &mut DeadOutcome<DeadLetterName>,
) -> ApiResult<()> {
    for position in positions {
        let skipped = match command {
            Command::Replay => replay_one(handle, by, position).await?,
            Command::Purge => purge_one(handle, by, position).await?,
        };
        let item = DeadLetterName {
            position: convert::position_text(position),
        };
        count(outcome, item, skipped);
    }
    Ok(())
}

/// Why a command skipped a dead letter.
fn skip(code: &'static str, detail: impl Into<String>) -> Option<Skip> {
    let detail = detail.into();
    Some(Skip { code, detail })
}

fn not_found() -> Option<Skip> {
    skip(
        "unknown_dead_letter",
        "there is no such dead letter, or the log has dropped it",
    )
}

async fn replay_one(
    handle: &RefreshHandle,
    by: &str,
    position: DeadLetterPosition,
) -> ApiResult<Option<Skip>> {
    Ok(match handle.dead_letters().replay(position, by).await? {
        ReplayOutcome::Replayed(_) => None,
        ReplayOutcome::NotQueued(PublishOutcome::Refused { why }) => skip("not_queued", why),
        ReplayOutcome::NotQueued(PublishOutcome::NotBefore { at }) => {
            let detail = format!("the record cannot be refreshed before {}", time(at));
            skip("refresh_held", detail)
        }
        ReplayOutcome::NotQueued(_) => skip(
            "not_queued",
            "the log did not confirm in time whether the refresh is queued",
        ),
        ReplayOutcome::AlreadyHandled(mark) => {
            let how = format!("{:?}", mark.how).to_lowercase();
            skip(
                "already_handled",
                format!("{} has {how} it at {}", mark.by, time(mark.at)),
            )
        }
        ReplayOutcome::NotFound => not_found(),
        ReplayOutcome::NotReadable => skip("not_readable", "it contains no valid refresh event to replay"),
    })
}

async fn purge_one(
    handle: &RefreshHandle,
    by: &str,
    position: DeadLetterPosition,
) -> ApiResult<Option<Skip>> {
    let dead_letters = handle.dead_letters();
    if dead_letters.inspect(position).await?.is_none() {
        return Ok(not_found());
    }
    Ok(match dead_letters.purge(&[position], by).await? {
        0 => skip("already_handled", "somebody has already replayed or purged it"),
        _ => None,
    })
}
