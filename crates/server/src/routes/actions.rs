//! Actions: open, read, seal, pause, resume, cancel, results, progress.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tidegate_api::{Action, Cancelled, Job, OpenAction, Page, Reason, Role, Sealed, StreamEvent};
use tidegate_core::bulk::views::{Query, View};
use tidegate_core::bulk::{
    ActionOptions, OpenActionParams, Opened, PauseParams, ResumeParams, SealActionParams, Target,
};
use tidegate_core::ids::{ActionId, GroupId};
use tidegate_store::JobDetails;

use super::groups::cancel_all;
use super::listing::{Filling, Listing, page_size};
use crate::audit::Deed;
use crate::auth::Caller;
use crate::convert;
use crate::events::{event, events};
use crate::extract::{Asked, Json, Names, cursor};
use crate::problem::{Answer, Refused};
use crate::state::{App, action_id, group_id};

/// How often progress is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// Names a group and an action of it.
type Pair = Names<(String, String)>;

fn pair(names: &(String, String)) -> Answer<(GroupId, ActionId)> {
    Ok((group_id(&names.0)?, action_id(&names.1)?))
}

fn on(group: &GroupId, action: &ActionId) -> String {
    format!("{group}/{action}")
}

async fn view(app: &App, group: GroupId, action: ActionId) -> Answer<Action> {
    match app.view(Query::Action(group, action)).await? {
        View::Action(view) => Ok(convert::action(view)),
        other => unreachable!("an action is answered with an action, not {other:?}"),
    }
}

/// Opens an action that jobs can be fed to. Opening it again changes nothing.
#[utoipa::path(put, path = "/v1/groups/{group}/actions/{action}", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)), request_body = OpenAction,
    responses((status = 201, description = "It was opened", body = Action), (status = 200, description = "It was open already", body = Action)))]
pub(super) async fn open(
    State(app): State<App>,
    caller: Caller,
    Names(names): Pair,
    Json(asked): Json<OpenAction>,
) -> Answer<Response> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Submit, &group)?;
    if let Some(callback) = &asked.callback
        && !app.config.callbacks.contains_key(callback)
    {
        let known: Vec<&str> = app.config.callbacks.keys().map(String::as_str).collect();
        return Err(Refused::invalid(format!(
            "callback {callback:?} is not configured; known are {known:?}"
        )));
    }
    let params = OpenActionParams {
        group: group.clone(),
        action: action.clone(),
        base_priority: asked.base_priority,
        options: ActionOptions {
            failure_threshold_percent: asked.failure_threshold_percent.unwrap_or(100),
            keep_results: asked.keep_results,
            callback: asked.callback,
        },
    };
    let status = match app.call(params).await? {
        Opened::New => StatusCode::CREATED,
        Opened::Already => StatusCode::OK,
    };
    let body = Json(view(&app, group, action).await?);
    Ok((status, body).into_response())
}

/// Reads one action.
#[utoipa::path(get, path = "/v1/groups/{group}/actions/{action}", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)), responses((status = 200, body = Action)))]
pub(super) async fn read(State(app): State<App>, caller: Caller, Names(names): Pair) -> Answer<Json<Action>> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    Ok(Json(view(&app, group, action).await?))
}

/// Says that an action takes no more jobs, so that it can complete.
#[utoipa::path(post, path = "/v1/groups/{group}/actions/{action}/seal", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)), responses((status = 200, body = Sealed)))]
pub(super) async fn seal(State(app): State<App>, caller: Caller, Names(names): Pair) -> Answer<Json<Sealed>> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Submit, &group)?;
    seal_action(&app, group, action).await.map(Json)
}

pub(super) async fn seal_action(app: &App, group: GroupId, action: ActionId) -> Answer<Sealed> {
    let params = SealActionParams {
        group,
        action: Some(action),
    };
    let sealed = app.call(params).await?;
    Ok(Sealed {
        action: sealed.action.into(),
        total_jobs: sealed.total_jobs,
        action_complete: sealed.action_complete,
    })
}

/// Takes an action's jobs out of the order.
#[utoipa::path(post, path = "/v1/groups/{group}/actions/{action}/pause", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)), request_body = Reason, responses((status = 200, body = Action)))]
pub(super) async fn pause(
    State(app): State<App>,
    caller: Caller,
    Names(names): Pair,
    Json(reason): Json<Reason>,
) -> Answer<Json<Action>> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let deed = Deed::new("action.pause", on(&group, &action)).because(reason.why);
    let target = Target::Action(group.clone(), action.clone());
    app.audited(&caller, deed, app.call(PauseParams { target }))
        .await?;
    Ok(Json(view(&app, group, action).await?))
}

/// Puts them back.
#[utoipa::path(post, path = "/v1/groups/{group}/actions/{action}/resume", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)), request_body = Reason, responses((status = 200, body = Action)))]
pub(super) async fn resume(
    State(app): State<App>,
    caller: Caller,
    Names(names): Pair,
    Json(reason): Json<Reason>,
) -> Answer<Json<Action>> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let deed = Deed::new("action.resume", on(&group, &action)).because(reason.why);
    let target = Target::Action(group.clone(), action.clone());
    app.audited(&caller, deed, app.call(ResumeParams { target }))
        .await?;
    Ok(Json(view(&app, group, action).await?))
}

/// Ends every job of an action that is not running.
#[utoipa::path(post, path = "/v1/groups/{group}/actions/{action}/cancel", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)), request_body = Reason, responses((status = 200, body = Cancelled)))]
pub(super) async fn cancel(
    State(app): State<App>,
    caller: Caller,
    Names(names): Pair,
    Json(reason): Json<Reason>,
) -> Answer<Json<Cancelled>> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Admin, &group)?;
    let deed = Deed::new("action.cancel", on(&group, &action)).because(reason.why);
    let cancelled = cancel_all(&app, Target::Action(group, action));
    app.audited(&caller, deed, cancelled).await.map(Json)
}

/// Lists an action's jobs with their results, in the order in which they came.
#[utoipa::path(get, path = "/v1/groups/{group}/actions/{action}/results", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path), Listing), responses((status = 200, body = Page<Job>)))]
pub(super) async fn results(
    State(app): State<App>,
    caller: Caller,
    Names(names): Pair,
    Asked(asked): Asked<Listing>,
) -> Answer<Json<Page<Job>>> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    let (after, max) = (cursor(asked.cursor.as_deref())?, page_size(asked.limit)?);
    let mut filling = Filling::new(after, max);
    while let Some((after, max)) = filling.wants() {
        let read = app.reach()?.results(&group, &action, after, max).await??;
        filling.take(read, JobDetails::bytes);
    }
    let page = filling.page();
    Ok(Json(convert::page(page, |details| {
        convert::job(group.as_str(), Some(action.as_str()), details)
    })))
}

/// Follows an action: an event `progress` whenever it has changed, the last one when it is decided.
#[utoipa::path(get, path = "/v1/groups/{group}/actions/{action}/progress", tag = "actions",
    params(("group" = String, Path), ("action" = String, Path)),
    responses((status = 200, description = "Events named `progress`, each with an Action", body = StreamEvent, content_type = "text/event-stream")))]
pub(super) async fn progress(State(app): State<App>, caller: Caller, Names(names): Pair) -> Answer<Response> {
    let (group, action) = pair(&names)?;
    caller.need_for(Role::Read, &group)?;
    let first = view(&app, group.clone(), action.clone()).await?;
    let stream = follow(app.clone(), group, action, first);
    events(&app, stream)
}

fn follow(
    app: App,
    group: GroupId,
    action: ActionId,
    first: Action,
) -> impl Stream<Item = Result<Event, Infallible>> {
    futures_util::stream::unfold(Some((None, Some(first))), move |state| {
        let (app, group, action) = (app.clone(), group.clone(), action.clone());
        async move {
            let (mut last, mut first) = state?;
            loop {
                let seen = match first.take() {
                    Some(seen) => Ok(seen),
                    None => {
                        tokio::time::sleep(INTERVAL).await;
                        view(&app, group.clone(), action.clone()).await
                    }
                };
                match seen {
                    Ok(seen) => {
                        let key = (seen.status, seen.counts, seen.paused, seen.cancelled, seen.sealed);
                        if last == Some(key) {
                            continue;
                        }
                        last = Some(key);
                        let more = !seen.status.is_finished();
                        return Some((Ok(event("progress", &seen)), more.then_some((last, None))));
                    }
                    // The store may come back; what is gone does not.
                    Err(refused) if refused.kind.0.is_server_error() => {
                        tokio::time::sleep(INTERVAL * 5).await;
                    }
                    Err(refused) => return Some((Ok(event("problem", &refused.problem())), None)),
                }
            }
        }
    })
}
