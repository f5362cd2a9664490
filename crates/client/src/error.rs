//! Errors of the client.

use std::error::Error;
use std::time::Duration;

use http::StatusCode;
use tidegate_api::Problem;

/// Why a request failed.
///
/// ```no_run
/// use tidegate_client::{Client, ClientError};
///
/// # async fn example(client: Client) -> Result<(), ClientError> {
/// match client.batch("customer-7", "newsletter").await {
///     Ok(batch) => println!("{:?}", batch.status),
///     Err(error) if error.code() == Some("unknown_batch") => println!("not submitted yet"),
///     Err(error) if error.is_retryable() => println!("{error}; retry after {:?}", error.retry_after()),
///     Err(error) => return Err(error),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The service refused the request and says why.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// The client could not connect, or the connection broke.
    #[error("cannot reach {url}: {reason}")]
    Transport {
        /// The base address of the service.
        url: String,
        /// The error of the connection with its causes.
        reason: String,
        /// Whether the request may have taken effect all the same.
        sent: bool,
    },
    /// The service did not answer in time. The request may have taken effect all the same.
    #[error("{url} has not answered within {} ms", .after.as_millis())]
    Timeout {
        /// The base address of the service.
        url: String,
        /// The timeout of the attempt.
        after: Duration,
    },
    /// The response is not one of Tidegate's, or of another version.
    #[error("the answer of {url} is not understood (status {status}): {reason}")]
    Answer {
        /// The base address of the service.
        url: String,
        /// The HTTP status of the response.
        status: u16,
        /// The parse error, or the beginning of the response.
        reason: String,
    },
    /// The address, the key, a certificate or another setting is invalid.
    #[error("{0}")]
    Setting(String),
    /// The client could not read the caller's data, or could not write it as JSON.
    #[error("{0}")]
    Input(String),
}

impl ClientError {
    /// Returns whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => matches!(problem.status, 429 | 503),
            Self::Transport { .. } | Self::Timeout { .. } => true,
            // Proxies send these while the service is unavailable.
            Self::Answer { status, .. } => matches!(status, 502..=504),
            Self::Setting(_) | Self::Input(_) => false,
        }
    }

    /// Returns whether the client may repeat the request: it had no effect, or a repetition changes nothing.
    pub(crate) fn allows_again(&self, idempotent: bool) -> bool {
        match self {
            Self::Problem(problem) => problem.status == 503,
            Self::Transport { sent, .. } => idempotent || !sent,
            Self::Timeout { .. } => idempotent,
            Self::Answer { status, .. } => *status == 503 || (idempotent && self.is_retryable()),
            Self::Setting(_) | Self::Input(_) => false,
        }
    }

    /// Returns the time after which the call may succeed, if the service named one.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after_sec.map(Duration::from_secs),
            _ => None,
        }
    }

    /// Returns the HTTP status of the response, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            Self::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Returns the problem code, if the service sent a [`Problem`].
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Problem(problem) => Some(&problem.code),
            _ => None,
        }
    }

    pub(crate) fn transport(url: &str, error: &(dyn Error + 'static), sent: bool) -> Self {
        Self::Transport {
            url: url.to_owned(),
            reason: reasons(error),
            sent,
        }
    }

    /// An error for a response that is neither the expected one nor a problem.
    pub(crate) fn answer(url: &str, status: StatusCode, reason: impl Into<String>) -> Self {
        Self::Answer {
            url: url.to_owned(),
            status: status.as_u16(),
            reason: reason.into(),
        }
    }
}

/// Joins an error and its causes; the outermost one alone says little.
fn reasons(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // Some errors repeat their cause in their own text.
        if !texts.iter().any(|said| said.contains(&text)) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}
