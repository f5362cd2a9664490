//! The structure of a signed token (JWS in compact form): split and decoded, not yet verified.
//!
//! A token never chooses how it is verified. The key decides the algorithm, and the header must match it. Tokens with
//! critical extensions (`crit`) are rejected.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Limit: the length of a token.
pub(in super::super) const MAX_BYTES: usize = 4 * 1024;

#[derive(Debug, Deserialize)]
pub(in super::super) struct Header {
    pub(in super::super) alg: String,
    #[serde(default)]
    pub(in super::super) kid: Option<String>,
    /// Critical extensions; this service supports none.
    #[serde(default)]
    crit: Option<IgnoredAny>,
}

/// A token in its three parts.
#[derive(Debug)]
pub(in super::super) struct Parts<'a> {
    pub(in super::super) header: Header,
    /// What was signed: header and claims as they were written.
    pub(in super::super) signed: &'a [u8],
    pub(in super::super) claims: Vec<u8>,
    pub(in super::super) signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    /// Returns `None` if it is not such a token. The caller checks the length, because it knows the right error.
    pub(in super::super) fn of(token: &'a str) -> Option<Self> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        // The decoder accepts neither padding nor spare bits, so every token has exactly one form.
        let decoded = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        let header: Header = serde_json::from_slice(&decoded(header)?).ok()?;
        if header.crit.is_some() {
            return None;
        }
        Some(Self {
            header,
            signed: signed.as_bytes(),
            claims: decoded(claims)?,
            signature: decoded(signature)?,
        })
    }
}

/// One part of a token.
pub(in super::super) fn encoded(part: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_clean_parts_are_a_token() {
        let header = encoded(r#"{"alg":"EdDSA","kid":"a"}"#);
        let token = format!("{header}.e30.AAAA");
        let parts = Parts::of(&token).unwrap();
        assert_eq!(
            (parts.header.alg.as_str(), parts.header.kid.as_deref()),
            ("EdDSA", Some("a"))
        );
        assert_eq!(parts.signed, format!("{header}.e30").as_bytes());
        assert_eq!(
            (parts.claims.as_slice(), parts.signature.as_slice()),
            (&b"{}"[..], &[0, 0, 0][..])
        );
        for odd in [
            "",
            ".",
            "..",
            "e30.e30",
            "e30.e30.AAAA",
            &format!("{header}.e30"),
            &format!("{header}.e30.AA=="),
            &format!("{header}.e30.AB"),
            &format!("{header}.e30.AAAA.AAAA"),
            &format!("{header}.e30.A+AA"),
            &format!("{header}.e30.AAAA "),
            &format!("{}.e30.AAAA", encoded("[]")),
            &format!("{}.e30.AAAA", encoded(r#"{"alg":"EdDSA","alg":"none"}"#)),
            &format!("{}.e30.AAAA", encoded(r#"{"alg":"EdDSA","crit":["exp"]}"#)),
        ] {
            assert!(Parts::of(odd).is_none(), "{odd}");
        }
    }
}
