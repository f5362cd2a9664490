//! Addresses, most of them below `/v1`, with percent-encoded names.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that a path segment or a query value encodes.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

#[derive(Debug, Clone, Default)]
pub(crate) struct Address {
    path: String,
    asked: bool,
}

impl Address {
    /// Joins `/v1` and these segments.
    pub(crate) fn of(parts: &[&str]) -> Self {
        Self::below("/v1", parts)
    }

    /// Joins these segments alone.
    pub(crate) fn root(parts: &[&str]) -> Self {
        Self::below("", parts)
    }

    fn below(base: &str, parts: &[&str]) -> Self {
        let mut path = String::from(base);
        for part in parts {
            path.push('/');
            match *part {
                // Unencoded they would mean this folder and its parent.
                "." => path.push_str("%2E"),
                ".." => path.push_str("%2E%2E"),
                part => path.extend(utf8_percent_encode(part, RESERVED)),
            }
        }
        Self { path, asked: false }
    }

    /// Takes a path outside of the API as it is.
    pub(crate) fn bare(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            asked: false,
        }
    }

    /// Adds a query parameter, if it has a value.
    pub(crate) fn ask(mut self, name: &str, value: Option<impl ToString>) -> Self {
        if let Some(value) = value {
            let mark = if self.asked { '&' } else { '?' };
            let value = value.to_string();
            let value = utf8_percent_encode(&value, RESERVED);
            write!(self.path, "{mark}{name}={value}").expect("text takes any text");
            self.asked = true;
        }
        self
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_stays_one_part_of_the_path() {
        for (name, part) in [
            ("a-b_c.d~9", "a-b_c.d~9"),
            ("a/b", "a%2Fb"),
            (".", "%2E"),
            ("..", "%2E%2E"),
            ("...", "..."),
            ("50%?#&= +", "50%25%3F%23%26%3D%20%2B"),
            ("é\n", "%C3%A9%0A"),
        ] {
            let address = Address::of(&["groups", name, "pause"]);
            assert_eq!(address.as_str(), format!("/v1/groups/{part}/pause"));
            assert_eq!(
                Address::root(&["events", name]).as_str(),
                format!("/events/{part}")
            );
        }
    }

    #[test]
    fn what_is_absent_is_not_asked_for() {
        let address = Address::of(&["dead-jobs"])
            .ask("cursor", None::<&str>)
            .ask("limit", Some(10))
            .ask("group", Some("a&b"));
        assert_eq!(address.as_str(), "/v1/dead-jobs?limit=10&group=a%26b");
    }
}
