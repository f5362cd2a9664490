//! Authentication and authorization: keys, sessions, hosts and origins.

mod attempts;
mod caller;
mod guard;
mod keys;
mod login;
mod origin;
mod session;

pub(crate) use attempts::Attempts;
pub(crate) use caller::{ANYBODY, Caller};
pub(crate) use guard::guard;
pub(crate) use keys::{Keys, digest as key_digest};
pub(crate) use login::routes;
pub(crate) use origin::came_by_tls;
pub(crate) use session::{MaybeSession, Sessions};

pub use keys::{FreshKey, fresh_key};

/// 32 random bytes of the operating system, as text that fits into headers and URLs.
fn random_text() -> Result<String, getrandom::Error> {
    use base64::Engine;
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes))
}
