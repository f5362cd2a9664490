//! Problems as the API reports them (RFC 9457). Their codes stay the same between versions.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_api::Problem;
use tidegate_core::bulk::{JobRefusal, Refusal};
use tidegate_core::ids::IdError;
use tidegate_core::time::Millis;
use tidegate_store::StoreError;

/// When a client should retry while the store is unavailable, in seconds.
pub(crate) const RETRY_AFTER_SEC: u64 = 2;

/// A kind of problem: its status, its code and its title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(
    pub(crate) StatusCode,
    pub(crate) &'static str,
    pub(crate) &'static str,
);

macro_rules! kinds {
    ($($name:ident = $status:ident $code:literal $title:literal;)+) => {
        $(pub(crate) const $name: Kind = Kind(StatusCode::$status, $code, $title);)+

        /// Every kind, for the documentation.
        pub(crate) const KINDS: &[Kind] = &[$($name),+];
    };
}

kinds! {
    BAD_REQUEST = BAD_REQUEST "bad_request" "Invalid request";
    BAD_CURSOR = BAD_REQUEST "bad_cursor" "Invalid cursor";
    CURSOR_LOST = CONFLICT "cursor_lost" "The cursor no longer points into the list";
    UNAUTHORIZED = UNAUTHORIZED "unauthorized" "Authentication required";
    FORBIDDEN = FORBIDDEN "forbidden" "Permission denied";
    BAD_HOST = MISDIRECTED_REQUEST "bad_host" "Unknown host name";
    BAD_ORIGIN = FORBIDDEN "bad_origin" "Cross-origin request rejected";
    BAD_CSRF = FORBIDDEN "bad_csrf" "Missing or invalid CSRF token";
    NOT_FOUND = NOT_FOUND "not_found" "Not found";
    UNKNOWN_GROUP = NOT_FOUND "unknown_group" "Unknown group";
    UNKNOWN_BATCH = NOT_FOUND "unknown_batch" "Unknown batch";
    UNKNOWN_JOB = NOT_FOUND "unknown_job" "Unknown job";
    UNKNOWN_SOURCE = NOT_FOUND "unknown_source" "Unknown source";
    UNKNOWN_DEAD_LETTER = NOT_FOUND "unknown_dead_letter" "Unknown dead letter";
    NO_REFRESH = NOT_FOUND "no_refresh" "Refresh is not configured";
    UNKNOWN_TARGET = NOT_FOUND "unknown_target" "Unknown target";
    UNKNOWN_ROOM = NOT_FOUND "unknown_room" "Unknown room";
    NO_ROOMS = NOT_FOUND "no_rooms" "Rooms are not configured";
    NO_TICKET = NOT_FOUND "no_ticket" "No ticket";
    BAD_TOKEN = UNAUTHORIZED "bad_token" "Missing or invalid shop token";
    BAD_PASS = FORBIDDEN "bad_pass" "Invalid pass";
    PROOF_NEEDED = FORBIDDEN "proof_needed" "Proof of work required";
    METHOD = METHOD_NOT_ALLOWED "method_not_allowed" "Method not allowed";
    TIMEOUT = REQUEST_TIMEOUT "timeout" "Request timed out";
    NO_OPEN_BATCH = CONFLICT "no_open_batch" "The group has no open batch";
    SEALED = CONFLICT "sealed" "The batch is sealed";
    CANCELLED = CONFLICT "cancelled" "The batch is cancelled";
    BATCH_FINISHED = CONFLICT "batch_finished" "The batch is finished";
    NOT_DEAD = CONFLICT "not_dead" "The job is not dead";
    WRONG_STATE = CONFLICT "wrong_state" "The job is in a state that does not allow this";
    EXPIRES_BEFORE = CONFLICT "expires_before" "The job expires before it could start";
    REFRESH_HELD = CONFLICT "refresh_held" "The record cannot be refreshed yet";
    PASS_USED = CONFLICT "pass_used" "The pass was already redeemed";
    VISIT_ENDED = CONFLICT "visit_ended" "The visit has ended";
    PASS_VOID = GONE "pass_void" "The pass was revoked";
    PASS_EXPIRED = GONE "pass_expired" "The pass has expired";
    ROOM_CLOSED = GONE "room_closed" "The room is closed";
    SOLD_OUT = GONE "sold_out" "Sold out";
    CONFLICT = CONFLICT "conflict" "Conflict with the current state";
    TOO_LARGE = PAYLOAD_TOO_LARGE "too_large" "Request too large";
    MEDIA_TYPE = UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" "Unsupported media type";
    INVALID = UNPROCESSABLE_ENTITY "invalid" "Invalid value";
    TOO_MANY = TOO_MANY_REQUESTS "too_many" "Too many requests";
    TOO_MANY_JOINS = TOO_MANY_REQUESTS "too_many_joins" "Too many joins from this address";
    INTERNAL = INTERNAL_SERVER_ERROR "internal" "Internal error";
    TOO_SLOW = SERVICE_UNAVAILABLE "too_slow" "The service did not answer in time";
    UNAVAILABLE = SERVICE_UNAVAILABLE "store_unavailable" "The store is unavailable";
    DATABASE = SERVICE_UNAVAILABLE "database_unavailable" "The database is unavailable";
    NOT_QUEUED = SERVICE_UNAVAILABLE "not_queued" "The refresh could not be queued";
    ROOM_FULL = SERVICE_UNAVAILABLE "room_full" "The waiting room is full";
    EVENT_SERVICE = SERVICE_UNAVAILABLE "event_service_unavailable" "The event service is unavailable";
    AUDIT = SERVICE_UNAVAILABLE "audit_unavailable" "The audit log is unavailable";
    STOPPING = SERVICE_UNAVAILABLE "stopping" "The service is shutting down";
}

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
    /// When to retry, in seconds, if it is known more exactly than by the kind.
    retry_after: Option<u64>,
}

/// The result of every handler.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// Says when the client should retry.
    pub(crate) fn after(mut self, wait: Millis) -> Self {
        self.retry_after = Some(wait.0.div_ceil(1_000).max(1));
        self
    }

    pub(crate) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(INVALID, detail)
    }

    pub(crate) fn problem(&self) -> Problem {
        let Kind(status, code, title) = self.kind;
        let later = matches!(
            status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        );
        Problem {
            kind: format!("urn:tidegate:problem:{code}"),
            title: title.into(),
            status: status.as_u16(),
            code: code.into(),
            detail: self.detail.clone(),
            request_id: None,
            retry_after_sec: self.retry_after.or(later.then_some(RETRY_AFTER_SEC)),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::new(
                UNAVAILABLE,
                format!("{error}; repeating the request later is safe"),
            ),
            StoreError::UnknownRoom(_) => Self::new(UNKNOWN_ROOM, error.to_string()),
            StoreError::Closed => Self::new(STOPPING, "the store is closed: the service is shutting down"),
            other => {
                tracing::error!(error = %other, "the store failed");
                Self::new(UNAVAILABLE, "the store has failed; see the service's log")
            }
        }
    }
}

/// The problem for a refusal of the state machine.
pub(crate) fn kind_of(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::UnknownGroup(_) => UNKNOWN_GROUP,
        Refusal::UnknownBatch { .. } => UNKNOWN_BATCH,
        Refusal::UnknownJob { .. } => UNKNOWN_JOB,
        Refusal::NoOpenBatch(_) => NO_OPEN_BATCH,
        Refusal::Sealed(_) => SEALED,
        Refusal::Cancelled(_) => CANCELLED,
        Refusal::BatchFinished(_) => BATCH_FINISHED,
        Refusal::TooManyJobs { .. } => TOO_LARGE,
        Refusal::NotDead(_) => NOT_DEAD,
        Refusal::WrongState { .. } => WRONG_STATE,
        Refusal::ExpiresBefore { .. } => EXPIRES_BEFORE,
        Refusal::ClaimLost(_) | Refusal::ResultsKept(_) => CONFLICT,
        Refusal::CursorLost => CURSOR_LOST,
        Refusal::BasePriority(_)
        | Refusal::FailureThreshold(_)
        | Refusal::ZeroLimit { .. }
        | Refusal::TooManyQueuesOfGroup { .. }
        | Refusal::CallbackName { .. }
        | Refusal::Rate { .. }
        | Refusal::QueueTwice(_)
        | Refusal::TooManyQueues { .. }
        | Refusal::NotWithShards { .. }
        | Refusal::TextTooLong { .. } => INVALID,
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self::new(kind_of(&refusal), refusal.to_string())
    }
}

impl From<IdError> for ApiError {
    fn from(error: IdError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The code for a job that the store refused.
pub(crate) fn job_code(refusal: &JobRefusal) -> &'static str {
    match refusal {
        JobRefusal::PayloadTooLarge { .. } => "payload_too_large",
        JobRefusal::UnknownType(_) => "unknown_type",
        JobRefusal::TooManyTypes(_) => "too_many_types",
        JobRefusal::Full { .. } => "full",
        JobRefusal::GroupFull { .. } => "group_full",
        JobRefusal::AlreadyExpired { .. } => "already_expired",
        JobRefusal::Cost { .. } => "cost",
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = self.problem();
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (self.kind.0, body).into_response();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = problem.retry_after_sec {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.kind == UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"tidegate\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        // Middleware reads the kind from here instead of parsing the body.
        response.extensions_mut().insert(self.kind);
        response
    }
}
