//! One pass over the response, guided by the tree of wanted fields.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::fields::{Field, Node};
use super::{Member, ProjectError, Scratch, canonical};
use crate::activity;

/// Walks one value and writes the kept parts.
pub(super) struct Walk<'a, 's> {
    pub(super) node: &'a Node,
    /// Its place in the document; none at the root.
    pub(super) place: Option<&'s Place<'s>>,
    pub(super) scratch: &'s mut Scratch,
}

/// A place in the document, linked to its parent: it costs nothing until an error needs it.
#[derive(Clone, Copy)]
pub(super) struct Place<'s> {
    around: Option<&'s Place<'s>>,
    name: &'s str,
}

impl<'de> DeserializeSeed<'de> for Walk<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        match self.node {
            Node::Object(_) | Node::List(_) => from.deserialize_any(self),
            Node::Whole { activity } => {
                let raw = <&RawValue as serde::Deserialize>::deserialize(from)?;
                if *activity {
                    self.scratch.activity = activity::read(raw.get());
                }
                let written = canonical::write(raw.get(), self.scratch);
                written.map_err(|error| fail(self.scratch, error))
            }
            Node::OnlyActivity => {
                let raw = <&RawValue as serde::Deserialize>::deserialize(from)?;
                self.scratch.activity = activity::read(raw.get());
                Ok(())
            }
        }
    }
}

impl<'de> Visitor<'de> for Walk<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Node::Object(fields) = self.node else {
            return Err(self.wrong_type("an object"));
        };
        let scratch = self.scratch;
        let (start, first) = (scratch.out.len(), scratch.members.len());
        scratch.out.push(b'{');
        // Most providers always write fields in the same order, so try the next one first.
        let mut next = 0;
        while let Some(found) = map.next_key_seed(Wanted { fields, next })? {
            let Some(rank) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            next = rank + 1;
            let field = &fields[rank];
            let begin = scratch.out.len();
            scratch.out.extend_from_slice(&field.written);
            let name_end = scratch.out.len();
            let place = Place {
                around: self.place,
                name: &field.name,
            };
            map.next_value_seed(Walk {
                node: &field.node,
                place: Some(&place),
                scratch,
            })?;
            if field.kept {
                scratch.out.push(b',');
                let end = scratch.out.len();
                scratch.members.push(Member {
                    rank: rank as u32,
                    start: begin,
                    name_end,
                    end,
                });
            } else {
                scratch.out.truncate(begin);
            }
        }
        if let Some(name) = missing(fields, scratch, first) {
            let place = Place {
                around: self.place,
                name,
            };
            return Err(fail(scratch, ProjectError::MissingField(shown(Some(&place)))));
        }
        scratch.close(start, first, |a, b, _| a.rank.cmp(&b.rank));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Node::List(each) = self.node else {
            return Err(self.wrong_type("a list"));
        };
        let place = Place {
            around: self.place,
            name: "[]",
        };
        self.scratch.out.push(b'[');
        let empty = self.scratch.out.len();
        while let Some(()) = list.next_element_seed(Walk {
            node: each,
            place: Some(&place),
            scratch: self.scratch,
        })? {
            self.scratch.out.push(b',');
        }
        if self.scratch.out.len() > empty {
            self.scratch.out.pop();
        }
        self.scratch.out.push(b']');
        Ok(())
    }

    /// A provider says "there is none" with null, even where it otherwise has an object or a list. But the record
    /// itself must exist.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        if self.place.is_none() {
            return Err(self.wrong_type("null"));
        }
        self.scratch.out.extend_from_slice(b"null");
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Err(self.wrong_type("a boolean"))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Err(self.wrong_type("a number"))
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Err(self.wrong_type("a number"))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Err(self.wrong_type("a number"))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Err(self.wrong_type("a text"))
    }
}

impl Walk<'_, '_> {
    fn wrong_type<E: Error>(self, found: &'static str) -> E {
        let wanted = match self.node {
            Node::List(_) => "a list",
            _ => "an object",
        };
        let path = shown(self.place);
        fail(self.scratch, ProjectError::WrongType { path, wanted, found })
    }
}

/// The rank of a name among the wanted fields.
struct Wanted<'a> {
    fields: &'a [Field],
    next: usize,
}

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Option<usize>;

    // As bytes: an unwanted name needs no UTF-8 check.
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Wanted<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.visit_bytes(name.as_bytes())
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        let is = |field: &Field| field.name.as_bytes() == name;
        if self.fields.get(self.next).is_some_and(is) {
            return Ok(Some(self.next));
        }
        Ok(self.fields.iter().position(is))
    }
}

/// The first required field that is missing or null.
fn missing<'a>(fields: &'a [Field], scratch: &Scratch, first: usize) -> Option<&'a str> {
    let members = &scratch.members[first..];
    let is_there = |rank: usize| {
        // The last of several wins.
        let member = members.iter().rfind(|member| member.rank as usize == rank);
        member.is_some_and(|member| &scratch.out[member.name_end..member.end] != b"null,")
    };
    let missing = |(rank, field): &(usize, &Field)| field.required && !is_there(*rank);
    fields
        .iter()
        .enumerate()
        .find(missing)
        .map(|(_, field)| field.name.as_str())
}

fn fail<E: Error>(scratch: &mut Scratch, error: ProjectError) -> E {
    let shown = E::custom(&error);
    scratch.error = Some(error);
    shown
}

fn shown(place: Option<&Place<'_>>) -> String {
    let Some(place) = place else {
        return "the answer".to_owned();
    };
    match place.around {
        None => place.name.to_owned(),
        Some(around) if place.name == "[]" => format!("{}[]", shown(Some(around))),
        Some(around) => format!("{}.{}", shown(Some(around)), place.name),
    }
}
