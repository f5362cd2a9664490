//! Records as bytes: postcard, a compact format for plain data.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::DiskError;

/// Encodes plain data.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain data always encodes")
}

/// Decodes what [`encode`] wrote; `what` names it in the error.
pub fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, DiskError> {
    postcard::from_bytes(bytes).map_err(|error| DiskError(format!("a record of {what}: {error}")))
}
