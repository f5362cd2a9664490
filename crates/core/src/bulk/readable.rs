//! Bytes in records: raw in compact formats, as text where people may read them.
//!
//! In JSON, bytes that are UTF-8 become `{"text": "…"}`, others `{"hex": "…"}`.

use std::fmt::Write;

use bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Readable {
    Text(String),
    Hex(String),
}

pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    if !serializer.is_human_readable() {
        return bytes.serialize(serializer);
    }
    let readable = match std::str::from_utf8(bytes) {
        Ok(text) => Readable::Text(text.to_owned()),
        Err(_) => Readable::Hex(bytes.iter().fold(String::new(), |mut hex, byte| {
            write!(hex, "{byte:02x}").expect("writing to a string does not fail");
            hex
        })),
    };
    readable.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    if !deserializer.is_human_readable() {
        return Bytes::deserialize(deserializer);
    }
    match Readable::deserialize(deserializer)? {
        Readable::Text(text) => Ok(Bytes::from(text)),
        Readable::Hex(hex) => {
            let digit = |i: usize| {
                hex.get(i..i + 2)
                    .and_then(|pair| u8::from_str_radix(pair, 16).ok())
            };
            let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digit).collect();
            bytes
                .map(Bytes::from)
                .ok_or_else(|| D::Error::custom("hex digits come in pairs of 0-9a-f"))
        }
    }
}

/// The same for optional bytes.
pub(super) mod option {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Present(#[serde(with = "super")] Bytes);

    pub(in super::super) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        bytes.clone().map(Present).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        Ok(Option::<Present>::deserialize(deserializer)?.map(|Present(bytes)| bytes))
    }
}
