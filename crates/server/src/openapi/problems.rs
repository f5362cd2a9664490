//! Which problems an operation can answer with.

use std::collections::BTreeMap;

use axum::http::StatusCode;

use crate::problem::{
    AUDIT, BAD_CSRF, BAD_CURSOR, BAD_HOST, BAD_ORIGIN, BAD_PASS, BAD_REQUEST, BAD_TOKEN, BATCH_FINISHED,
    CANCELLED, CONFLICT, CURSOR_LOST, DATABASE, EVENT_SERVICE, EXPIRES_BEFORE, FORBIDDEN, INTERNAL, INVALID,
    Kind, MEDIA_TYPE, NO_REFRESH, NO_ROOMS, NO_TICKET, NOT_DEAD, NOT_QUEUED, PASS_EXPIRED, PASS_USED,
    PASS_VOID, PROOF_NEEDED, REFRESH_HELD, ROOM_CLOSED, ROOM_FULL, SEALED, SOLD_OUT, STOPPING, TIMEOUT,
    TOO_LARGE, TOO_MANY, TOO_MANY_JOINS, TOO_SLOW, UNAUTHORIZED, UNAVAILABLE, UNKNOWN_BATCH,
    UNKNOWN_DEAD_LETTER, UNKNOWN_GROUP, UNKNOWN_JOB, UNKNOWN_ROOM, UNKNOWN_SOURCE, UNKNOWN_TARGET,
    VISIT_ENDED, WRONG_STATE,
};

/// The properties of an operation that decide its problems.
pub(super) struct Facts<'a> {
    pub(super) path: &'a str,
    /// The operation's id.
    pub(super) id: &'a str,
    /// Not a GET.
    pub(super) changes: bool,
    /// Needs a key, if keys are configured.
    pub(super) keyed: bool,
    /// The key needs the role ADMIN: the operation writes or reads the audit log.
    pub(super) admin: bool,
    pub(super) body: bool,
    /// Has parameters, in the path or in the query.
    pub(super) parameters: bool,
    pub(super) cursor: bool,
    pub(super) stream: bool,
}

impl Facts<'_> {
    /// The problems by status.
    pub(super) fn problems(&self) -> BTreeMap<u16, Vec<Kind>> {
        let mut problems: BTreeMap<u16, Vec<Kind>> = BTreeMap::new();
        let groups = [self.common(), self.of_path(), of_operation(self.id).to_vec()];
        for kind in groups.into_iter().flatten() {
            let known = problems.entry(kind.0.as_u16()).or_default();
            if !known.contains(&kind) {
                known.push(kind);
            }
        }
        problems
    }

    /// The problems that follow from the kind of request.
    fn common(&self) -> Vec<Kind> {
        let mut kinds = vec![BAD_HOST, INTERNAL];
        // These operations answer from memory.
        let in_memory = matches!(self.id, "getPassKeys" | "getIdentity");
        // A cursor into a list of dead jobs or dead letters never gets lost.
        let loses = !self.path.starts_with("/v1/dead-jobs") && !self.path.starts_with("/v1/refresh");
        let mut add = |holds: bool, some: &[Kind]| {
            if holds {
                kinds.extend_from_slice(some);
            }
        };
        add(self.id != "getPassKeys", &[BAD_ORIGIN]);
        add(!in_memory, &[UNAVAILABLE, STOPPING]);
        add(self.keyed, &[UNAUTHORIZED, FORBIDDEN, TOO_SLOW]);
        add(self.keyed && self.changes, &[BAD_CSRF]);
        add(self.admin, &[AUDIT]);
        add(self.body, &[BAD_REQUEST, TIMEOUT, TOO_LARGE, MEDIA_TYPE, INVALID]);
        add(self.parameters, &[INVALID]);
        add(self.cursor, &[BAD_CURSOR]);
        add(self.cursor && loses, &[CURSOR_LOST]);
        add(self.stream, &[TOO_MANY]);
        kinds
    }

    /// The problems that follow from the parameters in the path.
    fn of_path(&self) -> Vec<Kind> {
        let mut kinds = Vec::new();
        // These operations create the group and the batch.
        let creates = self.id == "openBatch" || self.id.starts_with("enqueue");
        if self.path.contains("{group}") && !creates {
            kinds.push(UNKNOWN_GROUP);
        }
        if self.path.contains("{batch}") && !creates {
            kinds.push(UNKNOWN_BATCH);
        }
        if self.path.contains("{job}") {
            kinds.push(UNKNOWN_JOB);
        }
        if self.path.contains("{target}") {
            kinds.push(UNKNOWN_TARGET);
        }
        if self.path.starts_with("/v1/records") || self.path.starts_with("/v1/refresh") {
            kinds.extend([NO_REFRESH, UNKNOWN_SOURCE, DATABASE]);
        }
        if self.path.contains("{room}") {
            kinds.extend([NO_ROOMS, UNKNOWN_ROOM, EVENT_SERVICE]);
            if !self.keyed {
                kinds.push(TOO_MANY_JOINS);
            }
        }
        kinds
    }
}

/// The problems that only some operations have.
fn of_operation(id: &str) -> &'static [Kind] {
    match id {
        "openBatch" => &[BATCH_FINISHED, CANCELLED, SEALED],
        // The operation seals the batch on request.
        "enqueueBatchJobs" => &[UNKNOWN_GROUP, UNKNOWN_BATCH],
        "replayJob" => &[NOT_DEAD, CANCELLED],
        "cancelJob" | "runJobNow" | "reprioritiseJob" => &[WRONG_STATE],
        "rescheduleJob" => &[WRONG_STATE, EXPIRES_BEFORE],
        "refreshRecord" => &[REFRESH_HELD, NOT_QUEUED],
        "getDeadLetter" => &[UNKNOWN_DEAD_LETTER],
        "deleteRoom" => &[CONFLICT],
        "redeemPass" => &[BAD_PASS, PASS_USED, PASS_VOID, PASS_EXPIRED],
        "checkPass" => &[BAD_PASS, PASS_VOID, PASS_EXPIRED],
        "extendVisit" | "completeVisit" => &[BAD_PASS, CONFLICT, VISIT_ENDED, PASS_VOID],
        "releaseVisit" => &[BAD_PASS, CONFLICT, PASS_VOID],
        "getPassKeys" => &[NO_ROOMS],
        "joinRoom" => &[BAD_TOKEN, PROOF_NEEDED, ROOM_CLOSED, SOLD_OUT, ROOM_FULL],
        "streamTicketEvents" => &[BAD_TOKEN, PROOF_NEEDED],
        "getTicket" | "leaveRoom" => &[BAD_TOKEN, NO_TICKET],
        _ => &[],
    }
}

/// Whether a response says when the same request may succeed.
pub(super) fn says_when(status: u16, kinds: &[Kind]) -> bool {
    let later = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
    later.iter().any(|one| one.as_u16() == status) || kinds.contains(&REFRESH_HELD)
}
