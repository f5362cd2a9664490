//! Passes: the signed proof that a person was admitted, and the keys that sign it.

mod keys;
mod signer;

pub use self::keys::PassKeysConfig;
pub use self::signer::{Claims, PassRefused, Signer};
