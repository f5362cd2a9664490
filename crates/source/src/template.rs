//! URLs with placeholders in braces, filled with percent-encoded values.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

/// Everything but the unreserved characters of RFC 3986: a value never leaves its place in the URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The placeholder for the record's key.
const KEY: &str = "key";

/// Why a URL cannot be used or filled. The error does not repeat the URL: its query may hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error(
        "it is no address: {0}; it must be http:// or https:// with a host, like https://api.example/users/{{key}}"
    )]
    Address(String),
    #[error("it must be http:// or https:// with a host, without user, password or fragment")]
    Kind,
    #[error("a {{ at byte {0} has no }}; put names in braces, like {{key}}")]
    Unclosed(usize),
    #[error("{{{0}}} is not a name; names are letters, digits and _, like {{key}}")]
    Name(String),
    #[error("names in braces are allowed only in the path and the query, not like {{{0}}}")]
    Place(String),
    #[error("the URL does not depend on the record; use {{key}}, or a name that is resolved from the key")]
    Constant,
    #[error("no value for {{{0}}}; it has to be resolved before the record is fetched")]
    Missing(String),
    #[error("the value for {{{0}}} cannot be part of an address")]
    Value(String),
}

/// A checked URL with its placeholders.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    pieces: Vec<Piece>,
    shown: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

impl UrlTemplate {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let pieces = pieces(text)?;
        let Some(first) = pieces.iter().find_map(|piece| match piece {
            Piece::Name(name) => Some(name.clone()),
            Piece::Text(_) => None,
        }) else {
            return Err(TemplateError::Constant);
        };
        // With a plain word for every placeholder it must be a URL, and another word must not change its host.
        let with = |word: &str| {
            let fill = |piece: &Piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Name(_) => word.to_owned(),
            };
            let text: String = pieces.iter().map(fill).collect();
            Url::parse(&text).map_err(|error| TemplateError::Address(error.to_string()))
        };
        let (one, other) = (with("1")?, with("22")?);
        if one.origin() != other.origin() {
            return Err(TemplateError::Place(first));
        }
        let fits = matches!(one.scheme(), "http" | "https")
            && one.has_host()
            && one.username().is_empty()
            && one.password().is_none()
            && one.fragment().is_none();
        if !fits {
            return Err(TemplateError::Kind);
        }
        let shown = one.origin().ascii_serialization();
        Ok(Self { pieces, shown })
    }

    /// Placeholders other than `key`, which a resolver has to fill.
    pub fn names<'a>(&'a self) -> BTreeSet<&'a str> {
        let name = |piece: &'a Piece| match piece {
            Piece::Name(name) if name != KEY => Some(name.as_str()),
            _ => None,
        };
        self.pieces.iter().filter_map(name).collect()
    }

    pub fn fill(&self, key: &str, params: &BTreeMap<String, String>) -> Result<Url, TemplateError> {
        let mut text = String::new();
        for piece in &self.pieces {
            let name = match piece {
                Piece::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                Piece::Name(name) => name,
            };
            let value = match params.get(name) {
                Some(value) => value.as_str(),
                None if name == KEY => key,
                None => return Err(TemplateError::Missing(name.clone())),
            };
            // A path must not climb, and `%2E` climbs as well.
            if matches!(value, "" | "." | "..") {
                return Err(TemplateError::Value(name.clone()));
            }
            text.extend(utf8_percent_encode(value, ENCODED));
        }
        Url::parse(&text).map_err(|error| TemplateError::Address(error.to_string()))
    }
}

/// Shows only scheme and host: path and query may hold secrets.
impl std::fmt::Debug for UrlTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UrlTemplate({}/…)", self.shown)
    }
}

fn pieces(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let at = text.len() - rest.len() + open;
        let after = &rest[open + 1..];
        let close = after.find('}').ok_or(TemplateError::Unclosed(at))?;
        let name = &after[..close];
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
            return Err(TemplateError::Name(name.chars().take(64).collect()));
        }
        pieces.push(Piece::Text(rest[..open].to_owned()));
        pieces.push(Piece::Name(name.to_owned()));
        rest = &after[close + 1..];
    }
    pieces.push(Piece::Text(rest.to_owned()));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, key: &str, params: &[(&str, &str)]) -> Result<String, TemplateError> {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let params = params.iter().map(own).collect();
        UrlTemplate::parse(template)?
            .fill(key, &params)
            .map(|url| url.to_string())
    }

    #[test]
    fn values_are_encoded_where_they_stand() {
        assert_eq!(
            fill("http://h/a/{key}?x=1", "가/b?c", &[]).unwrap(),
            "http://h/a/%EA%B0%80%2Fb%3Fc?x=1"
        );
        let filled = fill("https://h/c?ocid={ocid}&k={key}", "a&b", &[("ocid", "1 2")]);
        assert_eq!(filled.unwrap(), "https://h/c?ocid=1%202&k=a%26b");
    }

    #[test]
    fn names_that_need_a_resolver_are_listed() {
        let template = UrlTemplate::parse("http://h/{world}/{key}?o={ocid}&p={ocid}").unwrap();
        assert_eq!(template.names(), BTreeSet::from(["ocid", "world"]));
        assert_eq!(
            fill("http://h/?o={ocid}", "k", &[]),
            Err(TemplateError::Missing("ocid".into()))
        );
    }

    #[test]
    fn a_path_cannot_climb() {
        for odd in ["..", ".", ""] {
            assert_eq!(
                fill("http://h/a/{key}/b", odd, &[]),
                Err(TemplateError::Value("key".into()))
            );
        }
        assert_eq!(
            fill("http://h/a/{key}", "../b", &[]).unwrap(),
            "http://h/a/..%2Fb"
        );
    }

    #[test]
    fn addresses_that_cannot_work_are_refused_with_a_reason() {
        let refused = |text: &str| UrlTemplate::parse(text).unwrap_err();
        assert_eq!(refused("http://h/all"), TemplateError::Constant);
        assert_eq!(refused("http://h/{key"), TemplateError::Unclosed(9));
        assert_eq!(refused("http://h/{}"), TemplateError::Name("".into()));
        assert_eq!(refused("http://h/{a b}"), TemplateError::Name("a b".into()));
        assert_eq!(
            refused("http://{key}.example/"),
            TemplateError::Place("key".into())
        );
        assert_eq!(refused("http://h:{key}/"), TemplateError::Place("key".into()));
        assert_eq!(refused("http://me:secret@h/{key}"), TemplateError::Kind);
        assert_eq!(refused("ftp://h/{key}"), TemplateError::Kind);
        assert!(matches!(refused("h/{key}"), TemplateError::Address(_)));
    }

    #[test]
    fn it_is_shown_without_path_and_query() {
        let template = UrlTemplate::parse("http://h/secret1/{key}?token=secret2").unwrap();
        assert!(!format!("{template:?}").contains("secret"));
    }
}
