//! The projection: from a response of hundreds of kilobytes to the canonical bytes of the kept fields.
//!
//! It makes one pass over the text, guided by a tree of the wanted fields; it skips everything else and never builds
//! it. The canonical form:
//! - Fields are sorted by the bytes of their names as written, and there is no white space.
//! - Numbers stay as written: `1.0` and `1.00` differ.
//! - Strings have as few escapes as JSON allows, whatever escapes they came with. There is no Unicode normalization:
//!   it would change what the provider said.
//! - Of fields with the same name in one object, the last wins.
//! - A missing field is left out, and a `null` one stays `null`.

mod canonical;
mod fields;
mod walk;

use serde::de::DeserializeSeed;
use tidegate_core::time::Timestamp;

pub use fields::FieldError;
use fields::Node;
use walk::Walk;

/// A compiled projection: which fields to keep, which are required, and which one shows activity.
#[derive(Debug, Clone)]
pub struct Projection {
    root: Node,
}

/// Memory reused from record to record.
#[derive(Debug, Default)]
pub struct Scratch {
    /// The canonical bytes.
    out: Vec<u8>,
    /// Where objects are sorted.
    sorted: Vec<u8>,
    /// Fields of the open objects, innermost last.
    members: Vec<Member>,
    activity: Option<Timestamp>,
    /// The error, where the parser's own cannot carry it.
    error: Option<ProjectError>,
}

/// A field of an object in progress: `"name":value,` at `start..end` of the output.
#[derive(Debug, Clone, Copy)]
struct Member {
    /// Its rank among the wanted fields; unused where all are kept.
    rank: u32,
    start: usize,
    name_end: usize,
    end: usize,
}

/// The result for one response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canonical<'a> {
    pub bytes: &'a [u8],
    pub activity: Option<Timestamp>,
}

/// Why a response is not a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProjectError {
    /// Not JSON. The error does not repeat the text.
    #[error("the response is not valid JSON: {0}")]
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
    /// Keeps `fields`: dotted paths, with `[]` (or `.*`) after a list, like `item_equipment[].item_name`. A path that
    /// ends at an object or a list keeps it whole. Write a dot or bracket in a name as `\.` or `\[`.
    pub fn compile(fields: &[String]) -> Result<Self, FieldError> {
        Self::with(fields, &[], None)
    }

    /// Like `compile`, with `required` fields, which must be present and not null, and the field that shows activity,
    /// which need not be kept.
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

/// Gives position and kind, without any words of the text.
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
