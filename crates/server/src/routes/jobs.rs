//! Jobs: accept, read, retry.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use serde::Deserialize;
use tidegate_api::{EnqueueJobs, Enqueued, Job, NewJob, Reason, RefusedJob, Role};
use tidegate_core::bulk::{self, EnqueueParams, ReplayParams};
use tidegate_core::ids::{ActionId, GroupId, JobType};
use tidegate_core::time::Timestamp;
use utoipa::IntoParams;

use super::actions::seal_action;
use crate::audit::Deed;
use crate::auth::Caller;
use crate::convert;
use crate::extract::{Asked, Json, Names, media_type};
use crate::ndjson;
use crate::problem::{Answer, Refused, TOO_LARGE, job_code, kind_of};
use crate::state::{App, action_id, group_id, job_id};
use axum::extract::FromRequest;

/// Limit: jobs sent to the store in one call, and refusals told of one request.
const CHUNK: usize = 1_000;
const MAX_ERRORS: usize = 100;
/// Limit: bytes of payloads that wait for one call of the store.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Sealing {
    /// Seals the action afterwards, unless a job was refused: nothing more will come.
    #[serde(default)]
    seal: bool,
}

/// What a request's jobs belong to where they do not say it themselves.
struct Place {
    group: Option<GroupId>,
    action: Option<ActionId>,
}

/// Accepts jobs that each name their group.
///
/// As `{"jobs": […]}`, or one job per line as `application/x-ndjson`. Accepting is idempotent: a job that the
/// group has already is counted as a duplicate.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs",
    request_body(content((EnqueueJobs = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 200, body = Enqueued)))]
pub(super) async fn enqueue(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> Answer<Json<Enqueued>> {
    caller.need(Role::Submit)?;
    let place = Place {
        group: None,
        action: None,
    };
    accept(&app, &caller, place, request).await.map(Json)
}

/// Accepts jobs of one group, into the action that each names or the group's open one.
#[utoipa::path(post, path = "/v1/groups/{group}/jobs", tag = "jobs", params(("group" = String, Path)),
    request_body(content((EnqueueJobs = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 200, body = Enqueued)))]
pub(super) async fn enqueue_for_group(
    State(app): State<App>,
    caller: Caller,
    Names(group): Names<String>,
    request: Request,
) -> Answer<Json<Enqueued>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Submit, &group)?;
    let place = Place {
        group: Some(group),
        action: None,
    };
    accept(&app, &caller, place, request).await.map(Json)
}

/// Feeds an action; it is opened if there is none of this name.
#[utoipa::path(post, path = "/v1/groups/{group}/actions/{action}/jobs", tag = "jobs",
    params(("group" = String, Path), ("action" = String, Path), Sealing),
    request_body(content((EnqueueJobs = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 200, body = Enqueued)))]
pub(super) async fn feed(
    State(app): State<App>,
    caller: Caller,
    Names((group, action)): Names<(String, String)>,
    Asked(asked): Asked<Sealing>,
    request: Request,
) -> Answer<Json<Enqueued>> {
    let (group, action) = (group_id(&group)?, action_id(&action)?);
    caller.need_for(Role::Submit, &group)?;
    let place = Place {
        group: Some(group.clone()),
        action: Some(action.clone()),
    };
    let mut done = accept(&app, &caller, place, request).await?;
    // What was refused may still be sent; and there may be no action if nothing was accepted.
    if asked.seal && done.refused == 0 && done.accepted + done.duplicates > 0 {
        seal_action(&app, group, action.clone()).await?;
        done.sealed = true;
    }
    done.action = Some(action.into());
    Ok(Json(done))
}

async fn accept(app: &App, caller: &Caller, place: Place, request: Request) -> Answer<Enqueued> {
    let mut intake = Intake {
        app,
        caller,
        place,
        index: 0,
        batch: Vec::new(),
        batch_bytes: 0,
        done: Enqueued::default(),
    };
    if media_type(request.headers()).is_some_and(|media| media.eq_ignore_ascii_case("application/x-ndjson")) {
        let mut lines = ndjson::Lines::new(
            request.into_body(),
            app.config.server.max_stream_bytes,
            // A job's line holds its payload and little else; JSON may write each byte as six.
            app.config.limits.max_payload_bytes.saturating_mul(6) + 64 * 1024,
            app.config.server.body_pause_ms.into(),
        );
        while let Some(line) = lines.next().await? {
            match serde_json::from_slice::<NewJob>(&line) {
                Ok(job) => intake.add(job).await?,
                Err(error) => intake.refuse_line(&error),
            }
        }
    } else {
        let Json(EnqueueJobs { jobs }) = Json::<EnqueueJobs>::from_request(request, app).await?;
        let max = app.config.limits.max_enqueue_batch;
        if jobs.len() as u64 > max {
            return Err(Refused::new(
                TOO_LARGE,
                format!(
                    "{} jobs in one call; at most {max} are allowed, or any number as application/x-ndjson",
                    jobs.len()
                ),
            ));
        }
        for job in jobs {
            intake.add(job).await?;
        }
    }
    intake.flush().await?;
    Ok(intake.done)
}

/// Takes jobs one by one and hands them to the store in batches, so that a request of any length needs the
/// memory of one batch.
struct Intake<'a> {
    app: &'a App,
    caller: &'a Caller,
    place: Place,
    index: u64,
    batch: Vec<(u64, GroupId, Option<ActionId>, bulk::NewJob)>,
    batch_bytes: usize,
    done: Enqueued,
}

/// Jobs for one call of the store, with their places in the request.
#[derive(Default)]
struct Batch {
    names: Vec<(u64, String)>,
    jobs: Vec<bulk::NewJob>,
}

impl Intake<'_> {
    async fn add(&mut self, job: NewJob) -> Answer<()> {
        let index = self.index;
        self.index += 1;
        let id = job.id.clone();
        match self.place_job(job) {
            Ok((group, action, job)) => {
                self.batch_bytes += job.payload.len();
                self.batch.push((index, group, action, job));
            }
            Err(refused) => self.refuse(index, Some(id), refused.kind.1, refused.detail),
        }
        if self.batch.len() >= CHUNK || self.batch_bytes >= CHUNK_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    fn refuse_line(&mut self, error: &serde_json::Error) {
        let index = self.index;
        self.index += 1;
        self.refuse(
            index,
            None,
            "bad_request",
            format!("the line does not fit: {error}"),
        );
    }

    fn refuse(&mut self, index: u64, id: Option<String>, code: &str, detail: String) {
        self.done.refused += 1;
        if self.done.errors.len() < MAX_ERRORS {
            self.done.errors.push(RefusedJob {
                index,
                id,
                code: code.to_owned(),
                detail,
            });
        }
    }

    fn place_job(&self, job: NewJob) -> Answer<(GroupId, Option<ActionId>, bulk::NewJob)> {
        let group = match (&self.place.group, job.group) {
            (Some(group), None) => group.clone(),
            (Some(group), Some(named)) if group.as_str() == named => group.clone(),
            (Some(group), Some(named)) => {
                return Err(Refused::invalid(format!(
                    "the job names group {named:?}, the address {group:?}"
                )));
            }
            (None, Some(named)) => {
                let group = group_id(&named)?;
                self.caller.need_for(Role::Submit, &group)?;
                group
            }
            (None, None) => {
                return Err(Refused::invalid(
                    "the job names no group, and neither does the address",
                ));
            }
        };
        let action = match (&self.place.action, job.action) {
            (Some(action), Some(named)) if action.as_str() != named => {
                return Err(Refused::invalid(format!(
                    "the job names action {named:?}, the address {action:?}"
                )));
            }
            (Some(action), _) => Some(action.clone()),
            (None, named) => named.map(|named| action_id(&named)).transpose()?,
        };
        let job = bulk::NewJob {
            id: job_id(&job.id)?,
            kind: JobType::new(&job.kind)?,
            level: convert::core_level(job.level),
            payload: convert::bytes(job.payload),
            run_at: job.run_at.map(|at| Timestamp(at.0)),
            expires_at: job.expires_at.map(|at| Timestamp(at.0)),
        };
        Ok((group, action, job))
    }

    async fn flush(&mut self) -> Answer<()> {
        let mut batches: BTreeMap<(GroupId, Option<ActionId>), Batch> = BTreeMap::new();
        for (index, group, action, job) in self.batch.drain(..) {
            let batch = batches.entry((group, action)).or_default();
            batch.names.push((index, job.id.as_str().to_owned()));
            batch.jobs.push(job);
        }
        let app = self.app;
        self.batch_bytes = 0;
        let calls = batches
            .into_iter()
            .map(|((group, action), Batch { names, jobs })| {
                let params = EnqueueParams {
                    group,
                    action,
                    base_priority: None,
                    jobs,
                };
                async move { (names, app.ask(params).await) }
            });
        // Together, so that the store writes them in one go.
        let answers = futures_util::future::join_all(calls.collect::<Vec<_>>()).await;
        for (names, answer) in answers {
            match answer? {
                Ok(outcome) => {
                    if self.place.group.is_some() {
                        self.done.action = Some(outcome.action.into());
                    }
                    for ((index, id), enqueued) in names.into_iter().zip(outcome.jobs) {
                        match enqueued {
                            bulk::Enqueued::Accepted(_) => self.done.accepted += 1,
                            bulk::Enqueued::Duplicate(_) => self.done.duplicates += 1,
                            bulk::Enqueued::Refused(refusal) => {
                                self.refuse(index, Some(id), job_code(&refusal), refusal.to_string());
                            }
                        }
                    }
                }
                Err(refusal) => {
                    for (index, id) in names {
                        self.refuse(index, Some(id), kind_of(&refusal).1, refusal.to_string());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads one job with everything that is kept of it.
#[utoipa::path(get, path = "/v1/groups/{group}/jobs/{job}", tag = "jobs",
    params(("group" = String, Path), ("job" = String, Path)), responses((status = 200, body = Job)))]
pub(super) async fn read(
    State(app): State<App>,
    caller: Caller,
    Names((group, job)): Names<(String, String)>,
) -> Answer<Json<Job>> {
    let (group, job) = (group_id(&group)?, job_id(&job)?);
    caller.need_for(Role::Read, &group)?;
    let details = app.reach()?.job(&group, &job).await??;
    Ok(Json(convert::job(group.as_str(), None, details)))
}

/// Gives a dead job another life.
#[utoipa::path(post, path = "/v1/groups/{group}/jobs/{job}/retry", tag = "jobs",
    params(("group" = String, Path), ("job" = String, Path)), request_body = Reason, responses((status = 200, body = Job)))]
pub(super) async fn retry(
    State(app): State<App>,
    caller: Caller,
    Names((group, job)): Names<(String, String)>,
    Json(reason): Json<Reason>,
) -> Answer<Json<Job>> {
    let (group, job) = (group_id(&group)?, job_id(&job)?);
    caller.need_for(Role::Admin, &group)?;
    let deed = Deed::new("job.retry", format!("{group}/{job}")).because(reason.why);
    let params = ReplayParams {
        group: group.clone(),
        job: job.clone(),
    };
    app.audited(&caller, deed, app.call(params)).await?;
    let details = app.reach()?.job(&group, &job).await??;
    Ok(Json(convert::job(group.as_str(), None, details)))
}
