//! What the settings of all parts share.

/// An invalid setting, with what would be valid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

macro_rules! ensure {
    ($ok:expr, $($message:tt)+) => {
        let ok: bool = $ok;
        if !ok {
            return Err($crate::config::ConfigError(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
