//! Answers put together from pieces that were compressed beforehand.
//!
//! A gzip stream may be cut at byte boundaries: each piece is deflated for itself up to a flush, so pieces can
//! follow one another in any order, with fresh text between them in stored blocks. The server then pays for
//! copying, not for compressing, and still no two answers are the same.

use std::io::{self, Write};

use bytes::{BufMut, Bytes, BytesMut};
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

const HEADER: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
/// An empty stored block that says it is the last one.
const END: [u8; 5] = [1, 0, 0, 0xFF, 0xFF];
/// Limit of the format.
const MAX_STORED: usize = 0xFFFF;

/// Text with its compressed form.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) plain: Bytes,
    deflated: Bytes,
    crc: Crc,
}

impl Piece {
    pub(crate) fn new(plain: impl Into<Bytes>) -> io::Result<Self> {
        let plain = plain.into();
        let mut crc = Crc::new();
        crc.update(&plain);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&plain)?;
        // Ends the block at a byte boundary without ending the stream.
        encoder.flush()?;
        let deflated = Bytes::from(std::mem::take(encoder.get_mut()));
        Ok(Self { plain, deflated, crc })
    }
}

/// What an answer consists of, in order.
#[derive(Debug)]
pub(crate) enum Part<'a> {
    Ready(&'a Piece),
    Fresh(Bytes),
}

pub(crate) fn plain(parts: &[Part<'_>]) -> Vec<Bytes> {
    let plain = |part: &Part<'_>| match part {
        Part::Ready(piece) => piece.plain.clone(),
        Part::Fresh(text) => text.clone(),
    };
    parts.iter().map(plain).collect()
}

pub(crate) fn gzip(parts: &[Part<'_>]) -> Vec<Bytes> {
    let mut crc = Crc::new();
    let mut chunks = vec![Bytes::from_static(&HEADER)];
    for part in parts {
        match part {
            Part::Ready(piece) => {
                crc.combine(&piece.crc);
                chunks.push(piece.deflated.clone());
            }
            Part::Fresh(text) => {
                crc.update(text);
                chunks.push(stored(text));
            }
        }
    }
    let mut end = BytesMut::with_capacity(END.len() + 8);
    end.put_slice(&END);
    end.put_u32_le(crc.sum());
    end.put_u32_le(crc.amount());
    chunks.push(end.freeze());
    chunks
}

fn stored(text: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(text.len() + 5 * (1 + text.len() / MAX_STORED));
    for block in text.chunks(MAX_STORED) {
        let length = block.len() as u16;
        out.put_u8(0);
        out.put_u16_le(length);
        out.put_u16_le(!length);
        out.put_slice(block);
    }
    out.freeze()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn pieces_in_any_order_are_one_valid_stream() {
        let long = "다람쥐 헌 쳇바퀴에 타고파 ".repeat(5_000);
        let (a, b) = (Piece::new("abc".repeat(100)).unwrap(), Piece::new(long).unwrap());
        let fresh = || Part::Fresh(Bytes::from("7".repeat(MAX_STORED + 1)));
        for parts in [
            vec![Part::Ready(&a), fresh(), Part::Ready(&b)],
            vec![Part::Ready(&b), Part::Ready(&a), Part::Ready(&b)],
            vec![],
        ] {
            let packed = gzip(&parts).concat();
            let mut unpacked = Vec::new();
            GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
            assert_eq!(unpacked, plain(&parts).concat());
        }
    }
}
