//! The projection: from an answer of hundreds of kilobytes to the canonical bytes of the fields that are kept.
//!
//! One pass over the text, guided by a tree of the wanted fields; what is not wanted is skipped and never built.
//! The canonical form:
//! - fields are sorted by the bytes of their names as they are written, and there is no white space;
//! - numbers are kept as they were written: `1.0` and `1.00` differ;
//! - strings are written with as few escapes as JSON allows, whatever escapes they came with. Characters are not
//!   composed or decomposed: that would change what the provider said;
//! - of fields with the same name in one object the last counts;
//! - a field that is not there is left out, and one that is `null` is kept as `null`.

mod canonical;
mod fields;
mod walk;

use serde::de::DeserializeSeed;
use tidegate_core::time::Timestamp;

pub use fields::FieldError;
use fields::Node;
use walk::Walk;

/// Compiled: which fields are kept, which must be there, which one tells activity.
#[derive(Debug, Clone)]
pub struct Projection {
    root: Node,
}

/// Memory that is used again from record to record.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The canonical bytes.
    out: Vec<u8>,
    /// Where objects are put in order.
    sorted: Vec<u8>,
    /// Fields of the objects that are open, innermost last.
    members: Vec<Member>,
    activity: Option<Timestamp>,
    /// What went wrong, where the parser's error cannot carry it.
    error: Option<ProjectError>,
}

/// A field of an object that is being written: `"name":value,` at `start..end` of the output.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// Its rank among the wanted fields; unused where all are kept.
    rank: u32,
    start: usize,
    name_end: usize,
    end: usize,
}

/// What became of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canonical<'a> {
    pub bytes: &'a [u8],
    pub activity: Option<Timestamp>,
}

/// Why an answer is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProjectError {
    /// No JSON. The text itself is not repeated.
    #[error("the answer is no valid JSON: {0}")]
    Parse(String),
    #[error("{path} is {found} where {wanted} is expected")]
    WrongType {
        path: String,
        wanted: &'static str,
        found: &'static str,
    },
    #[error("the required field {0} is missing or null")]
    MissingField(String),
}

impl Projection {
    /// Keeps `fields`: dotted paths, with `[]` (or `.*`) after a list, like `item_equipment[].item_name`. A path
    /// that ends at an object or a list keeps it whole. A dot or bracket in a name is written `\.` or `\[`.
    pub fn compile(fields: &[String]) -> Result<Self, FieldError> {
        Self::with(fields, &[], None)
    }

    /// … and says that `required` ones must be there and not null, and which one tells activity; that one need
    /// not be kept.
    pub fn with(fields: &[String], required: &[String], activity: Option<&str>) -> Result<Self, FieldError> {
        let root = fields::compile(fields, required, activity)?;
        Ok(Self { root })
    }

    /// The canonical bytes of `answer`; they stay in `scratch` until the next call.
    pub fn project<'a>(
        &self,
        answer: &[u8],
        scratch: &'a mut Scratch,
    ) -> Result<Canonical<'a>, ProjectError> {
        scratch.out.clear();
        scratch.members.clear();
        scratch.activity = None;
        scratch.error = None;
        let mut deserializer = serde_json::Deserializer::from_slice(answer);
        let walk = Walk {
            node: &self.root,
            place: None,
            scratch,
        };
        let walked = walk
            .deserialize(&mut deserializer)
            .and_then(|()| deserializer.end());
        match walked {
            Ok(()) => Ok(Canonical {
                bytes: &scratch.out,
                activity: scratch.activity,
            }),
            Err(error) => Err(scratch.error.take().unwrap_or_else(|| parse_error(&error))),
        }
    }
}

/// Says where and of what kind, without the words of the text.
fn parse_error(error: &serde_json::Error) -> ProjectError {
    use serde_json::error::Category;
    let kind = match error.classify() {
        Category::Eof => "it ends too early",
        Category::Syntax => "a syntax error",
        Category::Data => "a value that cannot be read",
        Category::Io => "it cannot be read",
    };
    ProjectError::Parse(format!(
        "{kind} at line {}, column {}",
        error.line(),
        error.column()
    ))
}

#[cfg(test)]
mod tests;
