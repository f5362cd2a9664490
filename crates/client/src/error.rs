//! What goes wrong between a client and the service.

use std::error::Error;
use std::time::Duration;

use http::StatusCode;
use tidegate_api::Problem;

/// Why a call brought no answer, or another one than was hoped for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The service says why.
    #[error(transparent)]
    Problem(Box<Problem>),
    /// No connection, or one that broke.
    #[error("cannot reach {url}: {reason}")]
    Transport {
        url: String,
        reason: String,
        /// The request may have been carried out all the same.
        sent: bool,
    },
    #[error("{url} has not answered within {} ms", .after.as_millis())]
    Timeout { url: String, after: Duration },
    /// Whoever answered is not Tidegate, or speaks another version.
    #[error("the answer of {url} is not understood (status {status}): {reason}")]
    Answer {
        url: String,
        status: u16,
        reason: String,
    },
    /// An address, a key or a certificate that cannot be used.
    #[error("{0}")]
    Setting(String),
    /// What was to be sent could not be read or written as JSON.
    #[error("{0}")]
    Input(String),
}

impl ClientError {
    /// The same call may work later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Problem(problem) => matches!(problem.status, 429 | 503),
            Self::Transport { .. } | Self::Timeout { .. } => true,
            // What proxies say of a service that is away.
            Self::Answer { status, .. } => matches!(status, 502..=504),
            Self::Setting(_) | Self::Input(_) => false,
        }
    }

    /// The request was not carried out, or it does no harm that it may have been.
    pub(crate) fn allows_again(&self, idempotent: bool) -> bool {
        match self {
            Self::Problem(problem) => problem.status == 503,
            Self::Transport { sent, .. } => idempotent || !sent,
            Self::Timeout { .. } => idempotent,
            Self::Answer { status, .. } => *status == 503 || (idempotent && self.is_retryable()),
            Self::Setting(_) | Self::Input(_) => false,
        }
    }

    /// When the service says the call may work.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Problem(problem) => problem.retry_after_sec.map(Duration::from_secs),
            _ => None,
        }
    }

    /// The status of the answer, if there was one.
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Problem(problem) => Some(problem.status),
            Self::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// The code of the problem, if the service told one.
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

    /// An answer that is neither what was asked for nor a problem.
    pub(crate) fn answer(url: &str, status: StatusCode, reason: impl Into<String>) -> Self {
        Self::Answer {
            url: url.to_owned(),
            status: status.as_u16(),
            reason: reason.into(),
        }
    }
}

/// An error and what caused it; the outermost alone says little.
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
