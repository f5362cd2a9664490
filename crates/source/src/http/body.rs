//! The body of a response: reads and decompresses it within bounds, then projects it.

use std::io::Read;
use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use flate2::bufread::MultiGzDecoder;
use http::HeaderValue;
use reqwest::Response;

use super::errors;
use crate::fetch::{FetchOutcome, PermanentCode, Projected};
use crate::hash::hash;
use crate::project::{ProjectError, Projection, Scratch};

/// Limit: buffer memory kept from one record to the next.
const MAX_KEPT_BYTES: usize = 2_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain,
    Gzip,
}

impl Encoding {
    /// The client can decompress only what it asked for.
    pub(super) fn of(header: Option<&HeaderValue>) -> Result<Self, String> {
        let name = header.map_or(&b""[..], HeaderValue::as_bytes).trim_ascii();
        if name.is_empty() || name.eq_ignore_ascii_case(b"identity") {
            Ok(Self::Plain)
        } else if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
            Ok(Self::Gzip)
        } else {
            Err("the answer is packed in another way than gzip, which was not asked for".to_owned())
        }
    }
}

/// Reads the body chunk by chunk as sent, and stops early if it is too long.
pub(super) async fn read(response: &mut Response, max: usize) -> Result<Bytes, FetchOutcome> {
    let announced = response.content_length().unwrap_or(0);
    if announced > max as u64 {
        return Err(too_large(max));
    }
    let mut body = BytesMut::with_capacity(announced as usize);
    loop {
        match response.chunk().await {
            Ok(Some(piece)) if body.len() + piece.len() > max => return Err(too_large(max)),
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => return Ok(body.freeze()),
            Err(error) => return Err(errors::broken(&error)),
        }
    }
}

pub(super) fn unpacked(body: &[u8], encoding: Encoding, max: usize) -> Result<Vec<u8>, FetchOutcome> {
    let mut out = Vec::new();
    unpack_into(&mut out, body, encoding, max)?;
    Ok(out)
}

fn unpack_into(out: &mut Vec<u8>, body: &[u8], encoding: Encoding, max: usize) -> Result<(), FetchOutcome> {
    out.clear();
    if encoding == Encoding::Plain {
        out.extend_from_slice(body);
        return Ok(());
    }
    let read = MultiGzDecoder::new(body).take(max as u64 + 1).read_to_end(out);
    if out.len() > max {
        return Err(too_large(max));
    }
    match read {
        Ok(_) => Ok(()),
        Err(_) => {
            let message = "the answer says it is gzip and cannot be unpacked";
            Err(FetchOutcome::permanent(PermanentCode::ParseError, message))
        }
    }
}

fn too_large(max: usize) -> FetchOutcome {
    let message = format!("the answer is longer than max_response_bytes, {max} bytes");
    FetchOutcome::permanent(PermanentCode::TooLarge, message)
}

/// Turns bodies into outcomes.
#[derive(Debug)]
pub(super) struct Reader {
    projection: Projection,
    version: u32,
    max_bytes: usize,
    /// As many buffers as were ever in use concurrently.
    kept: Mutex<Vec<Buffers>>,
}

#[derive(Debug, Default)]
struct Buffers {
    unpacked: Vec<u8>,
    scratch: Scratch,
}

impl Reader {
    pub(super) fn new(projection: Projection, version: u32, max_bytes: usize) -> Self {
        Self {
            projection,
            version,
            max_bytes,
            kept: Mutex::default(),
        }
    }

    pub(super) fn outcome(&self, body: &[u8], encoding: Encoding) -> FetchOutcome {
        let kept = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut buffers = kept().pop().unwrap_or_default();
        let outcome = self
            .read(body, encoding, &mut buffers)
            .unwrap_or_else(|outcome| outcome);
        if buffers.unpacked.capacity() <= MAX_KEPT_BYTES {
            kept().push(buffers);
        }
        outcome
    }

    fn read(
        &self,
        body: &[u8],
        encoding: Encoding,
        buffers: &mut Buffers,
    ) -> Result<FetchOutcome, FetchOutcome> {
        let text = match encoding {
            Encoding::Plain => body,
            Encoding::Gzip => {
                unpack_into(&mut buffers.unpacked, body, encoding, self.max_bytes)?;
                &buffers.unpacked
            }
        };
        match text.trim_ascii_start().first() {
            None => {
                return Err(FetchOutcome::permanent(
                    PermanentCode::ParseError,
                    "the answer is empty",
                ));
            }
            Some(b'<') => {
                let message = "the answer is a page or XML instead of JSON";
                return Err(FetchOutcome::permanent(PermanentCode::WrongType, message));
            }
            Some(_) => {}
        }
        let canonical = self
            .projection
            .project(text, &mut buffers.scratch)
            .map_err(|error| {
                let code = match error {
                    ProjectError::Parse(_) => PermanentCode::ParseError,
                    ProjectError::WrongType { .. } => PermanentCode::WrongType,
                    ProjectError::MissingField(_) => PermanentCode::MissingField,
                };
                FetchOutcome::permanent(code, error.to_string())
            })?;
        Ok(FetchOutcome::Fetched(Projected {
            canonical: Bytes::copy_from_slice(canonical.bytes),
            hash: hash(self.version, canonical.bytes),
            activity: canonical.activity,
        }))
    }
}
