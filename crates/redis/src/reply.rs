//! Reads script replies item by item.

use bytes::Bytes;
use redis::Value;
use tidegate_core::time::Timestamp;

use crate::{Error, time};

/// The items of an array, in order.
#[derive(Debug)]
pub struct Items(std::vec::IntoIter<Value>);

fn odd(expected: &str, found: &Value) -> Error {
    Error::Corrupt(format!(
        "a script answered {found:?} where {expected} was expected"
    ))
}

impl Items {
    pub fn of(value: Value) -> Result<Self, Error> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
            other => Err(odd("a list", &other)),
        }
    }

    pub fn value(&mut self) -> Result<Value, Error> {
        self.0
            .next()
            .ok_or_else(|| Error::Corrupt("a script answered too little".into()))
    }

    pub fn items(&mut self) -> Result<Items, Error> {
        Items::of(self.value()?)
    }

    pub fn int(&mut self) -> Result<i64, Error> {
        match self.value()? {
            Value::Int(number) => Ok(number),
            Value::BulkString(text) => std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| odd("a number", &Value::BulkString(text))),
            other => Err(odd("a number", &other)),
        }
    }

    pub fn unsigned(&mut self) -> Result<u64, Error> {
        let number = self.int()?;
        u64::try_from(number).map_err(|_| odd("a count", &Value::Int(number)))
    }

    pub fn small(&mut self) -> Result<u32, Error> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| odd("a small count", &Value::Int(number)))
    }

    pub fn flag(&mut self) -> Result<bool, Error> {
        Ok(self.int()? != 0)
    }

    pub fn time(&mut self) -> Result<Timestamp, Error> {
        Ok(time(self.unsigned()?))
    }

    /// A negative number is none.
    pub fn maybe(&mut self) -> Result<Option<u64>, Error> {
        Ok(u64::try_from(self.int()?).ok())
    }

    pub fn bytes(&mut self) -> Result<Bytes, Error> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(bytes.into()),
            Value::SimpleString(text) => Ok(text.into_bytes().into()),
            other => Err(odd("bytes", &other)),
        }
    }

    pub fn maybe_bytes(&mut self) -> Result<Option<Bytes>, Error> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            other => Err(odd("bytes or nothing", &other)),
        }
    }

    pub fn text(&mut self) -> Result<String, Error> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.into()).map_err(|error| odd("a text", &Value::BulkString(error.into_bytes())))
    }

    /// The empty text is none.
    pub fn maybe_text(&mut self) -> Result<Option<String>, Error> {
        Ok(Some(self.text()?).filter(|text| !text.is_empty()))
    }

    /// A name that was validated on input.
    pub fn name<T: TryFrom<String>>(&mut self) -> Result<T, Error>
    where
        T::Error: std::fmt::Display,
    {
        T::try_from(self.text()?).map_err(|error| Error::Corrupt(error.to_string()))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether none are left.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Reads every item of this array as a nested array.
    pub fn each<T, E: From<Error>>(
        self,
        mut read: impl FnMut(&mut Items) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        self.0.map(|value| read(&mut Items::of(value)?)).collect()
    }
}
