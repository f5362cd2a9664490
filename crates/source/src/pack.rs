//! The stored form of a projection: zstd.

use std::cell::RefCell;
use std::io::{self, Read};

use zstd::bulk::Compressor;

/// Projections are small and many: level 1 is within a few percent of level 3 and twice as fast.
const LEVEL: i32 = 1;

thread_local! {
    /// Setting up a compressor costs more than packing 17 KB, so each thread keeps one.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

pub fn pack(canonical: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            None => kept.insert(Compressor::new(LEVEL)?),
        };
        compressor.compress(canonical)
    })
}

/// Decompresses the bytes; fails if they are damaged or exceed `max_bytes`.
pub fn unpack(packed: &[u8], max_bytes: usize) -> io::Result<Vec<u8>> {
    let decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
    let mut unpacked = Vec::new();
    decoder.take(max_bytes as u64 + 1).read_to_end(&mut unpacked)?;
    if unpacked.len() > max_bytes {
        let message = format!("the packed snapshot holds more than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let text = "{\"이름\":\"바다\"}".repeat(1_000);
        for bytes in [&b""[..], b"{}", text.as_bytes()] {
            let packed = pack(bytes).unwrap();
            assert_eq!(unpack(&packed, bytes.len()).unwrap(), bytes);
        }
        assert!(pack(text.as_bytes()).unwrap().len() < text.len() / 10);
    }

    #[test]
    fn bombs_and_damage_are_refused() {
        let bomb = pack(&vec![0; 10_000_000]).unwrap();
        assert!(bomb.len() < 10_000);
        let error = unpack(&bomb, 1_000_000).unwrap_err();
        assert!(error.to_string().contains("1000000"), "{error}");
        let mut packed = pack(b"some text that was stored").unwrap();
        packed.truncate(packed.len() - 3);
        assert!(unpack(&packed, 1_000).is_err());
        assert!(unpack(b"never packed", 1_000).is_err());
    }
}
