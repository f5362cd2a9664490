//! Hash tags and slots: where a Cluster keeps a key.

use crate::Error;

/// Rejects a key prefix with a brace: it would change where a Cluster keeps the keys.
pub fn check_prefix(prefix: &str) -> Result<(), Error> {
    match prefix.contains(['{', '}']) {
        false => Ok(()),
        true => Err(Error::Config(format!(
            "the key prefix {prefix:?} contains a brace, which would change where a Cluster keeps the keys; use one without"
        ))),
    }
}

/// A name as part of a hash tag: escapes braces, which would end the tag, and the slash that separates names.
pub fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '%' => escaped.push_str("%25"),
            '{' => escaped.push_str("%7B"),
            '}' => escaped.push_str("%7D"),
            '/' => escaped.push_str("%2F"),
            plain => escaped.push(plain),
        }
    }
    escaped
}

/// The slot of a key in a Redis Cluster: CRC16 (XMODEM) of its tag, modulo 16384.
pub fn slot(key: &str) -> u16 {
    let tag = key
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'))
        .map_or(key, |(tag, _)| if tag.is_empty() { key } else { tag });
    let mut crc = 0u16;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("bulk-action:{0}:meta"), slot("{0}"));
        assert_eq!(slot("foo"), 12_182);
    }

    #[test]
    fn an_escaped_name_keeps_its_tag_whole() {
        assert_eq!(escaped("}:{%/"), "%7D:%7B%25%2F");
        assert_eq!(
            slot(&format!("room:{{{}}}:head", escaped("a}b"))),
            slot("{a%7Db}")
        );
    }
}
