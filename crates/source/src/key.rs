//! The valid keys of a source: checked before any request or call uses them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Characters that a key may contain beside letters and digits, unless `characters` says otherwise.
const DEFAULT_SIGNS: &str = "-_.:@";

/// The rule for the keys of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeyRule {
    /// Longest key, in bytes of UTF-8. Default 128.
    pub max_bytes: usize,
    /// Allowed characters: single ones and ranges, like `a-z0-9_-`. Default: letters and digits of every script, and
    /// `-_.:@`.
    pub characters: Option<String>,
}

impl Default for KeyRule {
    fn default() -> Self {
        Self {
            max_bytes: 128,
            characters: None,
        }
    }
}

/// Why a text is not a key of this source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the key is empty")]
    Empty,
    #[error("the key has {found} bytes, at most {max} are allowed")]
    TooLong { found: usize, max: usize },
    #[error("the key contains {0:?}, which the source does not allow")]
    Character(char),
    /// They would lead to another path, however they are encoded.
    #[error("the keys \".\" and \"..\" cannot be part of an address")]
    Dots,
}

impl KeyRule {
    /// The error says what cannot work about the rule itself.
    pub fn check_rule(&self) -> Result<(), String> {
        if self.max_bytes == 0 || self.max_bytes > 1_024 {
            return Err(format!(
                "max_bytes is {}, but must be from 1 to 1024",
                self.max_bytes
            ));
        }
        let Some(characters) = &self.characters else {
            return Ok(());
        };
        if characters.is_empty() {
            return Err(
                "characters is empty, so no key would be allowed; leave it out or name some".to_owned(),
            );
        }
        for (from, to) in ranges(characters) {
            if from > to {
                return Err(format!(
                    "characters has the range {from}-{to}, but ranges go upwards"
                ));
            }
        }
        Ok(())
    }

    pub fn check(&self, key: &str) -> Result<(), KeyError> {
        if key.is_empty() {
            return Err(KeyError::Empty);
        }
        if key.len() > self.max_bytes {
            return Err(KeyError::TooLong {
                found: key.len(),
                max: self.max_bytes,
            });
        }
        if matches!(key, "." | "..") {
            return Err(KeyError::Dots);
        }
        match key.chars().find(|character| !self.allows(*character)) {
            Some(odd) => Err(KeyError::Character(odd)),
            None => Ok(()),
        }
    }

    fn allows(&self, character: char) -> bool {
        match &self.characters {
            None => character.is_alphanumeric() || DEFAULT_SIGNS.contains(character),
            Some(all) => {
                !character.is_control() && ranges(all).any(|(from, to)| (from..=to).contains(&character))
            }
        }
    }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let characters = self.characters.as_deref().unwrap_or("letters, digits and -_.:@");
        write!(f, "at most {} bytes of {characters}", self.max_bytes)
    }
}

/// `a-z_` as pairs of first and last; a `-` at either end stands for itself.
fn ranges(text: &str) -> impl Iterator<Item = (char, char)> + '_ {
    let mut rest = text.chars();
    std::iter::from_fn(move || {
        let from = rest.next()?;
        let mut ahead = rest.clone();
        if ahead.next() == Some('-')
            && let Some(to) = ahead.next()
        {
            rest = ahead;
            return Some((from, to));
        }
        Some((from, from))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_letters_digits_and_few_signs() {
        let rule = KeyRule::default();
        for key in ["a", "가나다", "user@example.com", "0-9_:x", &"x".repeat(128)] {
            assert_eq!(rule.check(key), Ok(()), "{key}");
        }
        assert_eq!(rule.check(""), Err(KeyError::Empty));
        assert_eq!(rule.check(".."), Err(KeyError::Dots));
        assert_eq!(rule.check("a/b"), Err(KeyError::Character('/')));
        assert_eq!(rule.check("a b"), Err(KeyError::Character(' ')));
        assert_eq!(rule.check("a\0"), Err(KeyError::Character('\0')));
        assert_eq!(
            rule.check(&"x".repeat(129)),
            Err(KeyError::TooLong { found: 129, max: 128 })
        );
    }

    #[test]
    fn a_source_may_name_its_characters() {
        let rule = |characters: &str| KeyRule {
            characters: Some(characters.to_owned()),
            ..KeyRule::default()
        };
        assert_eq!(rule("a-f0-9").check("beef01"), Ok(()));
        assert_eq!(rule("a-f0-9").check("beg"), Err(KeyError::Character('g')));
        assert_eq!(rule("a-c-").check("a-b"), Ok(()));
        assert_eq!(rule("-a").check("-a"), Ok(()));
        assert_eq!(rule("a-c").check("-"), Err(KeyError::Character('-')));
        assert!(
            rule("")
                .check_rule()
                .unwrap_err()
                .contains("no key would be allowed")
        );
        assert!(rule("z-a").check_rule().unwrap_err().contains("z-a"));
        assert!(rule("a-z").check_rule().is_ok());
    }
}
