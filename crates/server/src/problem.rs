//! What goes wrong, as the API tells it: RFC 9457, with codes that stay the same between versions.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tidegate_api::Problem;
use tidegate_core::bulk::{JobRefusal, Refusal};
use tidegate_core::ids::IdError;
use tidegate_core::time::Millis;
use tidegate_store::StoreError;

/// When a client should come back after the store was away, in seconds.
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
    BAD_REQUEST = BAD_REQUEST "bad_request" "The request cannot be read";
    BAD_CURSOR = BAD_REQUEST "bad_cursor" "The cursor is not one of ours";
    CURSOR_LOST = CONFLICT "cursor_lost" "The place in the listing is gone";
    UNAUTHORIZED = UNAUTHORIZED "unauthorized" "A key is needed";
    FORBIDDEN = FORBIDDEN "forbidden" "The key may not do this";
    BAD_HOST = MISDIRECTED_REQUEST "bad_host" "Not a name of this service";
    BAD_ORIGIN = FORBIDDEN "bad_origin" "Another site's page asked for this";
    BAD_CSRF = FORBIDDEN "bad_csrf" "The session's token is missing or wrong";
    NOT_FOUND = NOT_FOUND "not_found" "There is nothing at this address";
    UNKNOWN_GROUP = NOT_FOUND "unknown_group" "The group is unknown";
    UNKNOWN_ACTION = NOT_FOUND "unknown_action" "The action is unknown";
    UNKNOWN_JOB = NOT_FOUND "unknown_job" "The job is unknown";
    UNKNOWN_SOURCE = NOT_FOUND "unknown_source" "The source is unknown";
    UNKNOWN_LETTER = NOT_FOUND "unknown_dead_letter" "The dead letter is unknown";
    NO_REFRESH = NOT_FOUND "no_refresh" "Nothing is refreshed here";
    UNKNOWN_TARGET = NOT_FOUND "unknown_target" "The target is unknown";
    UNKNOWN_ROOM = NOT_FOUND "unknown_room" "The room is unknown";
    NO_ROOMS = NOT_FOUND "no_rooms" "There are no rooms here";
    NO_PLACE = NOT_FOUND "no_place" "There is no place";
    BAD_TOKEN = UNAUTHORIZED "bad_token" "The shop's token is missing or not taken";
    BAD_PASS = FORBIDDEN "bad_pass" "The pass is not taken";
    PROOF_NEEDED = FORBIDDEN "proof_needed" "Some work has to be done first";
    METHOD = METHOD_NOT_ALLOWED "method_not_allowed" "The address does not take this method";
    TIMEOUT = REQUEST_TIMEOUT "timeout" "The request did not come in time";
    NO_OPEN_ACTION = CONFLICT "no_open_action" "The group has no open action";
    SEALED = CONFLICT "sealed" "The action takes no more jobs";
    CANCELLED = CONFLICT "cancelled" "The action is cancelled";
    ACTION_FINISHED = CONFLICT "action_finished" "The action is finished";
    NOT_DEAD = CONFLICT "not_dead" "The job is not dead";
    REFRESH_HELD = CONFLICT "refresh_held" "The record is not refreshed before some time";
    PASS_USED = CONFLICT "pass_used" "The pass was redeemed before";
    VISIT_ENDED = CONFLICT "visit_ended" "The visit has ended";
    PASS_VOID = GONE "pass_void" "The pass was taken back";
    PASS_EXPIRED = GONE "pass_expired" "The pass has expired";
    ROOM_CLOSED = GONE "room_closed" "The room is closed";
    SOLD_OUT = GONE "sold_out" "Everything is sold";
    CONFLICT = CONFLICT "conflict" "It is not in a state for this";
    TOO_LARGE = PAYLOAD_TOO_LARGE "too_large" "It is too much for one request";
    MEDIA_TYPE = UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" "The body is of a type that is not understood";
    INVALID = UNPROCESSABLE_ENTITY "invalid" "A value is out of range";
    TOO_MANY = TOO_MANY_REQUESTS "too_many" "Too many at once";
    TOO_MANY_JOINS = TOO_MANY_REQUESTS "too_many_joins" "Too many have come from there";
    INTERNAL = INTERNAL_SERVER_ERROR "internal" "Something of ours is broken";
    TOO_SLOW = SERVICE_UNAVAILABLE "too_slow" "The service did not answer in time";
    UNAVAILABLE = SERVICE_UNAVAILABLE "store_unavailable" "The store cannot be used now";
    DATABASE = SERVICE_UNAVAILABLE "database_unavailable" "The records cannot be read now";
    NOT_QUEUED = SERVICE_UNAVAILABLE "not_queued" "The refresh could not be queued";
    ROOM_FULL = SERVICE_UNAVAILABLE "room_full" "As many wait as may";
    EVENT_SERVICE = SERVICE_UNAVAILABLE "event_service_unavailable" "Nobody can tell what the room has";
    AUDIT = SERVICE_UNAVAILABLE "audit_unavailable" "The audit log cannot be written";
    STOPPING = SERVICE_UNAVAILABLE "stopping" "The service is stopping";
}

/// A refused request.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
    /// When to come back, in seconds, if it is known better than by the kind.
    retry_after: Option<u64>,
}

/// What every handler returns.
pub(crate) type Answer<T> = Result<T, Refused>;

impl Refused {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            retry_after: None,
        }
    }

    /// When it is worth asking again.
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

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } => Self::new(
                UNAVAILABLE,
                format!("{error}; repeating the request later is safe"),
            ),
            StoreError::UnknownRoom(_) => Self::new(UNKNOWN_ROOM, error.to_string()),
            StoreError::Closed => Self::new(STOPPING, "the store is closed: the service is stopping"),
            other => {
                tracing::error!(error = %other, "the store failed");
                Self::new(UNAVAILABLE, "the store has failed; see the service's log")
            }
        }
    }
}

/// The kind of a refusal of the state machine.
pub(crate) fn kind_of(refusal: &Refusal) -> Kind {
    match refusal {
        Refusal::UnknownGroup(_) => UNKNOWN_GROUP,
        Refusal::UnknownAction { .. } => UNKNOWN_ACTION,
        Refusal::UnknownJob { .. } => UNKNOWN_JOB,
        Refusal::NoOpenAction(_) => NO_OPEN_ACTION,
        Refusal::Sealed(_) => SEALED,
        Refusal::Cancelled(_) => CANCELLED,
        Refusal::ActionFinished(_) => ACTION_FINISHED,
        Refusal::TooManyJobs { .. } => TOO_LARGE,
        Refusal::NotDead(_) => NOT_DEAD,
        Refusal::ClaimLost(_) | Refusal::ResultsKept(_) => CONFLICT,
        Refusal::CursorLost => CURSOR_LOST,
        Refusal::BasePriority(_)
        | Refusal::FailureThreshold(_)
        | Refusal::ZeroCeiling { .. }
        | Refusal::CallbackName { .. }
        | Refusal::Rate { .. }
        | Refusal::LaneTwice(_)
        | Refusal::TooManyLanes { .. }
        | Refusal::TextTooLong { .. } => INVALID,
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self::new(kind_of(&refusal), refusal.to_string())
    }
}

impl From<IdError> for Refused {
    fn from(error: IdError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The code of a job that was not accepted.
pub(crate) fn job_code(refusal: &JobRefusal) -> &'static str {
    match refusal {
        JobRefusal::PayloadTooLarge { .. } => "payload_too_large",
        JobRefusal::UnknownType(_) => "unknown_type",
        JobRefusal::TooManyTypes(_) => "too_many_types",
        JobRefusal::Full { .. } => "full",
        JobRefusal::AlreadyExpired { .. } => "already_expired",
    }
}

impl IntoResponse for Refused {
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
        // Middleware reads it from here instead of from the body.
        response.extensions_mut().insert(self.kind);
        response
    }
}
