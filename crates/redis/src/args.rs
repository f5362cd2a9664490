//! Arguments of a script, kept in one buffer so that a call can be resent.

use tidegate_core::time::{Millis, Timestamp};

use crate::MAX_NUMBER;

#[derive(Debug, Clone, Default)]
pub struct Args {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Args {
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self.ends.push(self.bytes.len());
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    pub fn number(&mut self, number: impl Into<i64>) -> &mut Self {
        self.text(&number.into().to_string())
    }

    /// A number larger than a double holds exactly becomes "never".
    pub fn big(&mut self, number: u64) -> &mut Self {
        self.text(&number.min(MAX_NUMBER).to_string())
    }

    pub fn span(&mut self, span: Millis) -> &mut Self {
        self.big(span.0)
    }

    pub fn flag(&mut self, flag: bool) -> &mut Self {
        self.text(if flag { "1" } else { "0" })
    }

    /// None is the empty text.
    pub fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) -> &mut Self {
        match value {
            Some(value) => put(self, value),
            None => {
                self.text("");
            }
        }
        self
    }

    pub fn each(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(from, &to)| &self.bytes[from..to])
    }
}

/// Seven bytes, the format of times in the scripts.
pub fn pack_time(at: Timestamp) -> [u8; 7] {
    let [_, rest @ ..] = at.0.min(MAX_NUMBER).to_be_bytes();
    rest
}
