//! The canonical form of a value kept whole, and of every object.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::{Member, ProjectError, Scratch};

/// Limit: nesting depth of a kept value. The parser's own limit does not apply to raw text.
const MAX_DEPTH: u32 = 100;

/// Appends the canonical form of `raw`, which the parser has found to be one valid value.
pub(super) fn write(raw: &str, scratch: &mut Scratch) -> Result<(), ProjectError> {
    let mut writer = Writer {
        text: raw,
        at: 0,
        scratch,
    };
    writer.value(0)
}

/// Appends `text` in quotes, with only the necessary escapes.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    // Writing a string to memory cannot fail.
    let _ = serde_json::to_writer(out, text);
}

struct Writer<'a> {
    text: &'a str,
    at: usize,
    scratch: &'a mut Scratch,
}

impl Writer<'_> {
    fn value(&mut self, depth: u32) -> Result<(), ProjectError> {
        match self.peek() {
            b'"' => self.string(),
            b'{' | b'[' if depth >= MAX_DEPTH => Err(ProjectError::Parse(format!(
                "a value is nested deeper than {MAX_DEPTH}"
            ))),
            b'{' => self.object(depth),
            b'[' => self.list(depth),
            _ => {
                self.word();
                Ok(())
            }
        }
    }

    fn object(&mut self, depth: u32) -> Result<(), ProjectError> {
        let (start, first) = (self.scratch.out.len(), self.scratch.members.len());
        self.scratch.out.push(b'{');
        self.at += 1;
        while self.peek() != b'}' {
            let begin = self.scratch.out.len();
            self.string()?;
            let name_end = self.scratch.out.len();
            self.skip(b':');
            self.scratch.out.push(b':');
            self.value(depth + 1)?;
            self.skip(b',');
            self.scratch.out.push(b',');
            let end = self.scratch.out.len();
            self.scratch.members.push(Member {
                rank: 0,
                start: begin,
                name_end,
                end,
            });
        }
        self.at += 1;
        self.scratch.close(start, first, |a, b, out| {
            out[a.start..a.name_end].cmp(&out[b.start..b.name_end])
        });
        Ok(())
    }

    fn list(&mut self, depth: u32) -> Result<(), ProjectError> {
        self.scratch.out.push(b'[');
        self.at += 1;
        let empty = self.scratch.out.len();
        while self.peek() != b']' {
            self.value(depth + 1)?;
            self.skip(b',');
            self.scratch.out.push(b',');
        }
        self.at += 1;
        if self.scratch.out.len() > empty {
            self.scratch.out.pop();
        }
        self.scratch.out.push(b']');
        Ok(())
    }

    fn string(&mut self) -> Result<(), ProjectError> {
        self.peek();
        let text = &self.text[self.at..];
        let (length, escaped) = string_length(text.as_bytes());
        let raw = &text[..length];
        self.at += length;
        if !escaped {
            // A valid string without escapes has no unnecessary ones.
            self.scratch.out.extend_from_slice(raw.as_bytes());
            return Ok(());
        }
        let text: Cow<'_, str> = serde_json::from_str(raw).map_err(|_| {
            ProjectError::Parse("a text has an escape that stands for no character".to_owned())
        })?;
        write_string(&text, &mut self.scratch.out);
        Ok(())
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        self.scratch.out.extend_from_slice(&rest[..length]);
        self.at += length;
    }

    /// The next byte that is not white space; 0 at the end, which a valid value does not reach.
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return *byte;
            }
            self.at += 1;
        }
        0
    }

    fn skip(&mut self, sign: u8) {
        if self.peek() == sign {
            self.at += 1;
        }
    }
}

/// The length including both quotes, and whether it contains an escape.
fn string_length(text: &[u8]) -> (usize, bool) {
    let (mut at, mut escaped) = (1, false);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => return (at + 1, escaped),
            b'\\' => {
                escaped = true;
                at += 2;
            }
            _ => at += 1,
        }
    }
    (text.len(), escaped)
}

impl Scratch {
    /// Ends the object that begins at `start` of the output: sorts its members, drops all but the last of the same
    /// name, and turns the last comma into a brace.
    pub(super) fn close(
        &mut self,
        start: usize,
        first: usize,
        order: impl Fn(&Member, &Member, &[u8]) -> Ordering,
    ) {
        let Self {
            out, sorted, members, ..
        } = self;
        let own = &mut members[first..];
        let in_order = own.windows(2).all(|pair| order(&pair[0], &pair[1], out).is_lt());
        if !in_order {
            // Stable: of members with the same name the last one stays last.
            own.sort_by(|a, b| order(a, b, out));
            sorted.clear();
            for (at, member) in own.iter().enumerate() {
                let is_last = own
                    .get(at + 1)
                    .is_none_or(|next| order(member, next, out).is_lt());
                if is_last {
                    sorted.extend_from_slice(&out[member.start..member.end]);
                }
            }
            out.truncate(start + 1);
            out.extend_from_slice(sorted);
        }
        members.truncate(first);
        match out.last_mut() {
            Some(comma) if *comma == b',' => *comma = b'}',
            _ => out.push(b'}'),
        }
    }
}
