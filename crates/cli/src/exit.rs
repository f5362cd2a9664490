//! The exit codes, for scripts.

use std::fmt;

use tidegate_client::ClientError;
use tidegate_server::ServiceError;
use tidegate_server::config::ConfigError;

pub(super) const HELP: &str = "\
Exit codes:
  0    success
  1    refused or failed (also: a job was refused, a batch FAILED)
  2    invalid arguments or settings
  3    no such group, batch, job, target, source, record, dead letter or room
  4    the API key is missing or lacks permission
  5    the service is unreachable or unavailable; the same command may succeed later
  130  a second signal stopped it at once";

const FAILED: u8 = 1;
/// As clap does for arguments.
const USAGE: u8 = 2;
const NOT_FOUND: u8 = 3;
const NOT_ALLOWED: u8 = 4;
const UNAVAILABLE: u8 = 5;

/// A failure whose reasons the command has already printed.
#[derive(Debug)]
pub(super) struct Reported;

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not everything was done")
    }
}

impl std::error::Error for Reported {}

/// The requested object does not exist. The command has already printed that.
#[derive(Debug)]
pub(super) struct Absent;

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not found")
    }
}

impl std::error::Error for Absent {}

/// The exit code of a failure.
pub(super) fn code(error: &anyhow::Error) -> u8 {
    if is_about_settings(error) {
        return USAGE;
    }
    if error.is::<Absent>() {
        return NOT_FOUND;
    }
    let Some(error) = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<ClientError>())
    else {
        return FAILED;
    };
    match error.status() {
        Some(404) => NOT_FOUND,
        Some(401 | 403) => NOT_ALLOWED,
        _ if error.is_retryable() => UNAVAILABLE,
        _ => FAILED,
    }
}

fn is_about_settings(error: &anyhow::Error) -> bool {
    let of_service = error.downcast_ref::<ServiceError>();
    error.downcast_ref::<ConfigError>().is_some()
        || matches!(
            of_service,
            Some(ServiceError::Config(_) | ServiceError::Setting(_))
        )
}

/// A failure in one line; none if the command has already printed it.
pub(super) fn text(error: &anyhow::Error) -> Option<String> {
    if error.is::<Reported>() || error.is::<Absent>() {
        return None;
    }
    let request = error.chain().find_map(|cause| match cause.downcast_ref()? {
        ClientError::Problem(problem) => problem.request_id.as_deref(),
        _ => None,
    });
    Some(match request {
        Some(request) => format!("tidegate: {error:#}, request {request}"),
        None => format!("tidegate: {error:#}"),
    })
}

#[cfg(test)]
mod tests {
    use tidegate_client::Problem;

    use super::*;

    fn problem(status: u16, code: &str) -> anyhow::Error {
        let problem = Problem {
            kind: format!("urn:tidegate:problem:{code}"),
            title: String::new(),
            status,
            code: code.into(),
            detail: "no".into(),
            request_id: Some("r-1".into()),
            retry_after_sec: None,
        };
        anyhow::Error::new(ClientError::Problem(Box::new(problem))).context("group A")
    }

    #[test]
    fn scripts_can_tell_what_happened() {
        for (status, expected) in [
            (404, 3),
            (401, 4),
            (403, 4),
            (409, 1),
            (422, 1),
            (500, 1),
            (503, 5),
            (429, 5),
        ] {
            assert_eq!(code(&problem(status, "x")), expected, "{status}");
        }
        let unreachable = ClientError::Transport {
            url: "http://localhost".into(),
            reason: "refused".into(),
            sent: false,
        };
        assert_eq!(code(&unreachable.into()), 5);
        assert_eq!(code(&anyhow::anyhow!("a file")), 1);
    }

    #[test]
    fn a_problem_is_one_line_with_its_code_and_request() {
        assert_eq!(
            text(&problem(404, "unknown_group")).unwrap(),
            "tidegate: group A: no (unknown_group), request r-1"
        );
        assert_eq!(text(&Reported.into()), None);
        assert_eq!((text(&Absent.into()), code(&Absent.into())), (None, 3));
    }
}
