//! Paths of fields, compiled to a tree.

use std::collections::BTreeMap;

/// A path that cannot be used, with a hint what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the field {path:?} {problem}")]
pub struct FieldError {
    pub path: String,
    pub problem: String,
}

/// What to do with the value at a node of the document.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// Keeps it whole; with `activity`, also reads it.
    Whole { activity: bool },
    /// Reads it and does not keep it.
    OnlyActivity,
    /// Keeps some fields of an object.
    Object(Vec<Field>),
    /// Applies a node to every element of a list.
    List(Box<Node>),
}

/// A wanted field; fields of one object are sorted by `written`.
#[derive(Debug, Clone)]
pub(super) struct Field {
    pub(super) name: String,
    /// `"name":` in canonical form.
    pub(super) written: Vec<u8>,
    pub(super) required: bool,
    /// False if only the activity field is below it.
    pub(super) kept: bool,
    pub(super) node: Node,
}

impl Node {
    fn keeps(&self) -> bool {
        match self {
            Self::Whole { .. } => true,
            Self::OnlyActivity => false,
            Self::Object(fields) => fields.iter().any(|field| field.kept),
            Self::List(each) => each.keeps(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Each,
}

/// The tree under construction.
#[derive(Debug, Default)]
struct Draft {
    whole: bool,
    activity: bool,
    required: bool,
    fields: BTreeMap<String, Draft>,
    each: Option<Box<Draft>>,
}

/// Limit: names and brackets in one path; also bounds the depth of the walk.
const MAX_STEPS: usize = 32;

pub(super) fn compile(
    fields: &[String],
    required: &[String],
    activity: Option<&str>,
) -> Result<Node, FieldError> {
    if fields.is_empty() {
        let problem = "is missing: name at least one field to keep";
        return Err(wrong("", problem));
    }
    let mut root = Draft::default();
    for path in fields {
        keep(&mut root, path)?;
    }
    for path in required {
        require(&mut root, path)?;
    }
    if let Some(path) = activity {
        mark_activity(&mut root, path)?;
    }
    Ok(root.finish())
}

fn wrong(path: &str, problem: impl Into<String>) -> FieldError {
    FieldError {
        path: path.to_owned(),
        problem: problem.into(),
    }
}

fn steps(path: &str) -> Result<Vec<Step>, FieldError> {
    let empty = || {
        wrong(
            path,
            "has an empty name; write it like item_equipment[].item_name",
        )
    };
    let mut steps = Vec::new();
    let mut rest = path.chars();
    loop {
        let mut name = String::new();
        let mut escaped = false;
        let mut end = None;
        for character in rest.by_ref() {
            if escaped {
                name.push(character);
                escaped = false;
            } else {
                match character {
                    '\\' => escaped = true,
                    '.' | '[' => {
                        end = Some(character);
                        break;
                    }
                    other => name.push(other),
                }
            }
        }
        match name.as_str() {
            "" => return Err(empty()),
            "*" => steps.push(Step::Each),
            _ => steps.push(Step::Field(name)),
        }
        while end == Some('[') {
            if rest.next() != Some(']') {
                return Err(wrong(
                    path,
                    "has a [ without ]; lists are written item_equipment[]",
                ));
            }
            steps.push(Step::Each);
            end = rest.next();
            if end.is_some_and(|next| next != '[' && next != '.') {
                return Err(wrong(
                    path,
                    "goes on right after ]; a dot belongs between, like list[].name",
                ));
            }
        }
        if end.is_none() {
            break;
        }
    }
    if steps.len() > MAX_STEPS {
        return Err(wrong(path, format!("is deeper than {MAX_STEPS} steps")));
    }
    if steps.first() == Some(&Step::Each) {
        return Err(wrong(path, "begins with a list, but a record is an object"));
    }
    Ok(steps)
}

fn keep(root: &mut Draft, path: &str) -> Result<(), FieldError> {
    let mut at = root;
    for step in steps(path)? {
        if at.whole {
            return Err(wrong(
                path,
                "lies within a field that is kept whole already; leave one of them out",
            ));
        }
        at = at.enter(step).map_err(|problem| wrong(path, problem))?;
    }
    if at.whole {
        return Err(wrong(path, "is named twice; leave one out"));
    }
    if !at.fields.is_empty() || at.each.is_some() {
        return Err(wrong(path, "is kept whole and in parts; leave one of them out"));
    }
    at.whole = true;
    Ok(())
}

fn require(root: &mut Draft, path: &str) -> Result<(), FieldError> {
    let mut at = root;
    for step in steps(path)? {
        let next = match step {
            Step::Each => at.each.as_deref_mut(),
            Step::Field(name) => at.fields.get_mut(&name),
        };
        at = next.ok_or_else(|| {
            wrong(
                path,
                "is required but not kept; add it to the fields that are kept",
            )
        })?;
        at.required = true;
    }
    Ok(())
}

fn mark_activity(root: &mut Draft, path: &str) -> Result<(), FieldError> {
    let mut at = root;
    for step in steps(path)? {
        if step == Step::Each {
            return Err(wrong(path, "is the activity field, so it cannot be in a list"));
        }
        if at.whole {
            return Err(wrong(
                path,
                "is the activity field but is inside a field that is kept whole; keep its parts instead",
            ));
        }
        at = at.enter(step).map_err(|problem| wrong(path, problem))?;
    }
    if !at.fields.is_empty() || at.each.is_some() {
        return Err(wrong(path, "is the activity field, so it must be a single value"));
    }
    at.activity = true;
    Ok(())
}

impl Draft {
    fn enter(&mut self, step: Step) -> Result<&mut Draft, &'static str> {
        const BOTH: &str = "is an object in one path and a list in another";
        match step {
            Step::Each if !self.fields.is_empty() => Err(BOTH),
            Step::Each => Ok(self.each.get_or_insert_default()),
            Step::Field(_) if self.each.is_some() => Err(BOTH),
            Step::Field(name) => Ok(self.fields.entry(name).or_default()),
        }
    }

    fn finish(self) -> Node {
        if self.whole {
            return Node::Whole {
                activity: self.activity,
            };
        }
        if let Some(each) = self.each {
            return Node::List(Box::new(each.finish()));
        }
        if self.fields.is_empty() {
            return Node::OnlyActivity;
        }
        let mut fields: Vec<Field> = self
            .fields
            .into_iter()
            .map(|(name, draft)| field(name, draft))
            .collect();
        fields.sort_by(|a, b| a.written.cmp(&b.written));
        Node::Object(fields)
    }
}

fn field(name: String, draft: Draft) -> Field {
    let mut written = Vec::new();
    super::canonical::write_string(&name, &mut written);
    written.push(b':');
    let required = draft.required;
    let node = draft.finish();
    Field {
        written,
        required,
        kept: node.keeps(),
        node,
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(fields: &[&str], required: &[&str], activity: Option<&str>) -> String {
        let own = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        compile(&own(fields), &own(required), activity)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn paths_that_cannot_work_are_refused_with_a_reason() {
        assert!(problem(&[], &[], None).contains("at least one"));
        assert!(problem(&[""], &[], None).contains("empty name"));
        assert!(problem(&["a..b"], &[], None).contains("empty name"));
        assert!(problem(&["a."], &[], None).contains("empty name"));
        assert!(problem(&["a["], &[], None).contains("a [ without ]"));
        assert!(problem(&["a[0]"], &[], None).contains("a [ without ]"));
        assert!(problem(&["a[]b"], &[], None).contains("a dot belongs between"));
        assert!(problem(&["*"], &[], None).contains("begins with a list"));
        assert!(problem(&["a", "a"], &[], None).contains("twice"));
        assert!(problem(&["a", "a.b"], &[], None).contains("kept whole already"));
        assert!(problem(&["a.b", "a"], &[], None).contains("whole and in parts"));
        assert!(
            problem(&["a.b", "a[].c"], &[], None).contains("an object in one path and a list in another")
        );
        assert!(problem(&["a"], &["b"], None).contains("not kept"));
        assert!(problem(&["a[].b"], &[], Some("a[].t")).contains("cannot be in a list"));
        assert!(problem(&["a"], &[], Some("a.t")).contains("kept whole"));
        assert!(problem(&[&"a.".repeat(40)[..79]], &[], None).contains("deeper than 32"));
    }

    #[test]
    fn names_may_hold_dots_and_brackets() {
        let read = steps(r"a\.b\[\].c.*.d[][]").unwrap();
        let name = |text: &str| Step::Field(text.to_owned());
        assert_eq!(
            read,
            [
                name("a.b[]"),
                name("c"),
                Step::Each,
                name("d"),
                Step::Each,
                Step::Each
            ]
        );
    }
}
