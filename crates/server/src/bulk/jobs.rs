//! Jobs: accept, read, replay.

use std::collections::BTreeMap;

use axum::extract::{FromRequest, Request, State};
use serde::Deserialize;
use tidegate_api::{EnqueueJobs, Enqueued, Job, NewJob, Reason, RefusedJob, Role};
use tidegate_core::bulk::{self, EnqueueParams, ReplayParams};
use tidegate_core::ids::{BatchId, GroupId, JobType};
use tidegate_core::time::Timestamp;
use utoipa::{IntoParams, ToSchema};

use super::batches::seal_batch;
use super::convert;
use crate::audit::AuditedCommand;
use crate::auth::Caller;
use crate::extract::{Json, PathParams, QueryParams, media_type};
use crate::ndjson;
use crate::problem::{ApiError, ApiResult, TOO_LARGE, job_code, kind_of};
use crate::state::{App, batch_id, group_id, job_id};

/// Limit: jobs sent to the store in one call, and refusals that the response to one request lists.
const CHUNK: usize = 1_000;
const MAX_ERRORS: usize = 100;
/// Limit: bytes of payloads that wait for one call of the store.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Sealing {
    /// Seals the batch afterwards, unless the service refused a job.
    #[serde(default)]
    seal: bool,
}

/// One `NewJob` as JSON per line, any number of lines.
#[derive(ToSchema)]
#[schema(value_type = String, format = Binary)]
#[expect(dead_code, reason = "it describes a body that is read line by line")]
struct JobLines(Vec<u8>);

/// The group and the batch in the path of the request. Jobs belong to them unless they name others.
struct PathScope {
    group: Option<GroupId>,
    batch: Option<BatchId>,
}

/// Accepts jobs of any groups.
///
/// Each job names its group. A job without a batch joins its group's open batch. Repeating the call is safe: the
/// service counts a job whose id the group knows already as a duplicate and changes nothing. The service has stored an
/// accepted job durably when it answers.
#[utoipa::path(
    post, path = "/v1/jobs",
    operation_id = "enqueueJobs", tag = "jobs", security(("apiKey" = ["SUBMIT"]), ()),
    request_body(
        description = "The jobs. Send a stream of any length as `application/x-ndjson`, one job per line.",
        content(
            (EnqueueJobs = "application/json", example = json!({"jobs": [
                {"group": "acme", "id": "mail-1", "type": "MAIL", "payload": {"to": "ada@example.com"}},
                {"group": "acme", "id": "mail-2", "type": "MAIL", "priority": "LOW"}
            ]})),
            (JobLines = "application/x-ndjson")
        )
    ),
    responses(
        (
            status = 200, description = "How many jobs the service accepted, knew already and refused.", body = Enqueued,
            example = json!({"accepted": 2, "duplicates": 0, "refused": 0})
        )
    )
)]
pub(crate) async fn enqueue(
    State(app): State<App>,
    caller: Caller,
    request: Request,
) -> ApiResult<Json<Enqueued>> {
    caller.need(Role::Submit)?;
    let scope = PathScope {
        group: None,
        batch: None,
    };
    accept(&app, &caller, scope, request).await.map(Json)
}

/// Accepts jobs of one group.
///
/// Each job joins the batch that it names, or else the group's open batch. Repeating the call is safe: the service
/// counts a job whose id the group knows already as a duplicate.
#[utoipa::path(
    post, path = "/v1/groups/{group}/jobs",
    operation_id = "enqueueGroupJobs", tag = "jobs", security(("apiKey" = ["SUBMIT"]), ()),
    params(("group" = String, Path)),
    request_body(
        description = "The jobs. Send a stream of any length as `application/x-ndjson`, one job per line.",
        content(
            (EnqueueJobs = "application/json", example = json!({"jobs": [
                {"id": "mail-1", "type": "MAIL", "payload": {"to": "ada@example.com"}},
                {"id": "mail-2", "type": "MAIL", "priority": "LOW"}
            ]})),
            (JobLines = "application/x-ndjson")
        )
    ),
    responses(
        (
            status = 200, description = "How many jobs the service accepted, knew already and refused.", body = Enqueued,
            example = json!({"accepted": 2, "duplicates": 0, "refused": 0, "batch": "newsletter-7"})
        )
    )
)]
pub(crate) async fn enqueue_for_group(
    State(app): State<App>,
    caller: Caller,
    PathParams(group): PathParams<String>,
    request: Request,
) -> ApiResult<Json<Enqueued>> {
    let group = group_id(&group)?;
    caller.need_for(Role::Submit, &group)?;
    let scope = PathScope {
        group: Some(group),
        batch: None,
    };
    accept(&app, &caller, scope, request).await.map(Json)
}

/// Adds jobs to a batch.
///
/// The service opens the batch if it does not exist. Repeating the call is safe: the service counts a job whose id the
/// group knows already as a duplicate. With `seal=true` the service seals the batch afterwards, unless it refused a
/// job.
#[utoipa::path(
    post, path = "/v1/groups/{group}/batches/{batch}/jobs",
    operation_id = "enqueueBatchJobs", tag = "jobs", security(("apiKey" = ["SUBMIT"]), ()),
    params(("group" = String, Path), ("batch" = String, Path), Sealing),
    request_body(
        description = "The jobs. Send a stream of any length as `application/x-ndjson`, one job per line.",
        content(
            (EnqueueJobs = "application/json", example = json!({"jobs": [
                {"id": "mail-1", "type": "MAIL", "payload": {"to": "ada@example.com"}},
                {"id": "mail-2", "type": "MAIL", "priority": "LOW"}
            ]})),
            (JobLines = "application/x-ndjson")
        )
    ),
    responses(
        (
            status = 200, description = "How many jobs the service accepted, knew already and refused.", body = Enqueued,
            example = json!({"accepted": 2, "duplicates": 0, "refused": 0, "batch": "newsletter-7"})
        )
    )
)]
pub(crate) async fn feed(
    State(app): State<App>,
    caller: Caller,
    PathParams((group, batch)): PathParams<(String, String)>,
    QueryParams(query): QueryParams<Sealing>,
    request: Request,
) -> ApiResult<Json<Enqueued>> {
    let (group, batch) = (group_id(&group)?, batch_id(&batch)?);
    caller.need_for(Role::Submit, &group)?;
    let scope = PathScope {
        group: Some(group.clone()),
        batch: Some(batch.clone()),
    };
    let mut done = accept(&app, &caller, scope, request).await?;
    // The client may still send corrected jobs, and without an accepted job there may be no batch.
    if query.seal && done.refused == 0 && done.accepted + done.duplicates > 0 {
        seal_batch(&app, group, batch.clone()).await?;
        done.sealed = true;
    }
    done.batch = Some(batch.into());
    Ok(Json(done))
}

async fn accept(app: &App, caller: &Caller, scope: PathScope, request: Request) -> ApiResult<Enqueued> {
    let mut intake = Intake {
        app,
        caller,
        scope,
        index: 0,
        chunk: Vec::new(),
        chunk_bytes: 0,
        done: Enqueued::default(),
    };
    if media_type(request.headers()).is_some_and(|media| media.eq_ignore_ascii_case("application/x-ndjson")) {
        let mut lines = ndjson::Lines::new(
            request.into_body(),
            app.config.server.max_stream_bytes,
            // A job's line holds its payload and little else. JSON may escape each byte as six.
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
            return Err(ApiError::new(
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

/// Takes jobs one by one and passes them to the store in chunks, so that a request of any length needs the memory of one
/// chunk.
struct Intake<'a> {
    app: &'a App,
    caller: &'a Caller,
    scope: PathScope,
    index: u64,
    chunk: Vec<(u64, GroupId, Option<BatchId>, bulk::NewJob)>,
    chunk_bytes: usize,
    done: Enqueued,
}

/// Jobs for one call of the store, with their indices in the request.
#[derive(Default)]
struct Chunk {
    names: Vec<(u64, String)>,
    jobs: Vec<bulk::NewJob>,
}

impl Intake<'_> {
    async fn add(&mut self, job: NewJob) -> ApiResult<()> {
        let index = self.index;
        self.index += 1;
        let id = job.id.clone();
        match self.resolve(job) {
            Ok((group, batch, job)) => {
                self.chunk_bytes += job.payload.len();
                self.chunk.push((index, group, batch, job));
            }
            Err(refused) => self.refuse(index, Some(id), refused.kind.1, refused.detail),
        }
        if self.chunk.len() >= CHUNK || self.chunk_bytes >= CHUNK_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    fn refuse_line(&mut self, error: &serde_json::Error) {
        let index = self.index;
        self.index += 1;
        self.refuse(index, None, "bad_request", format!("invalid line: {error}"));
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

    fn resolve(&self, job: NewJob) -> ApiResult<(GroupId, Option<BatchId>, bulk::NewJob)> {
        let group = match (&self.scope.group, job.group) {
            (Some(group), None) => group.clone(),
            (Some(group), Some(named)) if group.as_str() == named => group.clone(),
            (Some(group), Some(named)) => {
                return Err(ApiError::invalid(format!(
                    "the job names group {named:?}, but the path names group {group:?}; leave the job's out"
                )));
            }
            (None, Some(named)) => {
                let group = group_id(&named)?;
                self.caller.need_for(Role::Submit, &group)?;
                group
            }
            (None, None) => {
                return Err(ApiError::invalid(
                    "neither the job nor the path names a group; name one in the job's field `group`",
                ));
            }
        };
        let batch = match (&self.scope.batch, job.batch) {
            (Some(batch), Some(named)) if batch.as_str() != named => {
                return Err(ApiError::invalid(format!(
                    "the job names batch {named:?}, but the path names batch {batch:?}; leave the job's out"
                )));
            }
            (Some(batch), _) => Some(batch.clone()),
            (None, named) => named.map(|named| batch_id(&named)).transpose()?,
        };
        let job = bulk::NewJob {
            id: job_id(&job.id)?,
            kind: JobType::new(&job.kind)?,
            priority: convert::core_priority(job.priority),
            payload: convert::bytes(job.payload),
            run_at: job.run_at.map(|at| Timestamp(at.0)),
            expires_at: job.expires_at.map(|at| Timestamp(at.0)),
            cost: job.cost,
        };
        Ok((group, batch, job))
    }

    async fn flush(&mut self) -> ApiResult<()> {
        let mut chunks: BTreeMap<(GroupId, Option<BatchId>), Chunk> = BTreeMap::new();
        for (index, group, batch, job) in self.chunk.drain(..) {
            let chunk = chunks.entry((group, batch)).or_default();
            chunk.names.push((index, job.id.as_str().to_owned()));
            chunk.jobs.push(job);
        }
        let app = self.app;
        self.chunk_bytes = 0;
        let calls = chunks.into_iter().map(|((group, batch), Chunk { names, jobs })| {
            let params = EnqueueParams {
                group,
                batch,
                base_priority: None,
                jobs,
            };
            async move { (names, app.apply(params).await) }
        });
        // Concurrently, so that the store commits them together.
        let answers = futures_util::future::join_all(calls.collect::<Vec<_>>()).await;
        for (names, answer) in answers {
            match answer? {
                Ok(outcome) => {
                    if self.scope.group.is_some() {
                        self.done.batch = Some(outcome.batch.into());
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

/// Reads one job with everything that the service keeps of it.
#[utoipa::path(
    get, path = "/v1/groups/{group}/jobs/{job}",
    operation_id = "getJob", tag = "jobs", security(("apiKey" = ["READ"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    responses((status = 200, description = "The job.", body = Job))
)]
pub(crate) async fn read(
    State(app): State<App>,
    caller: Caller,
    PathParams((group, job)): PathParams<(String, String)>,
) -> ApiResult<Json<Job>> {
    let (group, job) = (group_id(&group)?, job_id(&job)?);
    caller.need_for(Role::Read, &group)?;
    let details = app.available_store()?.job(&group, &job).await??;
    Ok(Json(convert::job(group.as_str(), details)))
}

/// Replays a dead job.
///
/// The job waits again as if it were new, with all its attempts. Its batch stays as it is if it is decided, and
/// cancelled if somebody cancelled it.
#[utoipa::path(
    post, path = "/v1/groups/{group}/jobs/{job}/replay",
    operation_id = "replayJob", tag = "jobs", security(("apiKey" = ["ADMIN"]), ()),
    params(("group" = String, Path), ("job" = String, Path)),
    request_body(
        content = Reason, description = "The reason, for the audit log.",
        example = json!({"why": "Maintenance of the mail provider"})
    ),
    responses((status = 200, description = "The replayed job.", body = Job))
)]
pub(crate) async fn replay(
    State(app): State<App>,
    caller: Caller,
    PathParams((group, job)): PathParams<(String, String)>,
    Json(reason): Json<Reason>,
) -> ApiResult<Json<Job>> {
    let (group, job) = (group_id(&group)?, job_id(&job)?);
    caller.need_for(Role::Admin, &group)?;
    let command = AuditedCommand::new("job.replay", format!("{group}/{job}")).because(reason.why);
    let params = ReplayParams {
        group: group.clone(),
        job: job.clone(),
    };
    app.audited(&caller, command, app.execute(params)).await?;
    let details = app.available_store()?.job(&group, &job).await??;
    Ok(Json(convert::job(group.as_str(), details)))
}
