//! Reads script replies item by item.

use bytes::Bytes;
use redis::Value;
use tidegate_core::time::Timestamp;

use super::settings::MAX_NUMBER;
use crate::StoreError;

/// A time beyond the numbers of the scripts becomes "never".
pub(super) fn time(ms: u64) -> Timestamp {
    Timestamp(if ms >= MAX_NUMBER { u64::MAX } else { ms })
}

/// The items of an array, in order.
#[derive(Debug)]
pub(super) struct Items(std::vec::IntoIter<Value>);

fn odd(expected: &str, found: &Value) -> StoreError {
    StoreError::Corrupt(format!(
        "a script answered {found:?} where {expected} was expected"
    ))
}

impl Items {
    pub(super) fn of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(items) => Ok(Self(items.into_iter())),
            other => Err(odd("a list", &other)),
        }
    }

    pub(super) fn value(&mut self) -> Result<Value, StoreError> {
        self.0
            .next()
            .ok_or_else(|| StoreError::Corrupt("a script answered too little".into()))
    }

    pub(super) fn items(&mut self) -> Result<Items, StoreError> {
        Items::of(self.value()?)
    }

    pub(super) fn int(&mut self) -> Result<i64, StoreError> {
        match self.value()? {
            Value::Int(number) => Ok(number),
            Value::BulkString(text) => std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| odd("a number", &Value::BulkString(text))),
            other => Err(odd("a number", &other)),
        }
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, StoreError> {
        let number = self.int()?;
        u64::try_from(number).map_err(|_| odd("a count", &Value::Int(number)))
    }

    pub(super) fn small(&mut self) -> Result<u32, StoreError> {
        let number = self.int()?;
        u32::try_from(number).map_err(|_| odd("a small count", &Value::Int(number)))
    }

    pub(super) fn flag(&mut self) -> Result<bool, StoreError> {
        Ok(self.int()? != 0)
    }

    pub(super) fn time(&mut self) -> Result<Timestamp, StoreError> {
        Ok(time(self.unsigned()?))
    }

    /// A negative number is none.
    pub(super) fn maybe(&mut self) -> Result<Option<u64>, StoreError> {
        Ok(u64::try_from(self.int()?).ok())
    }

    pub(super) fn bytes(&mut self) -> Result<Bytes, StoreError> {
        match self.value()? {
            Value::BulkString(bytes) => Ok(bytes.into()),
            Value::SimpleString(text) => Ok(text.into_bytes().into()),
            other => Err(odd("bytes", &other)),
        }
    }

    pub(super) fn maybe_bytes(&mut self) -> Result<Option<Bytes>, StoreError> {
        match self.value()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            other => Err(odd("bytes or nothing", &other)),
        }
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.into()).map_err(|error| odd("a text", &Value::BulkString(error.into_bytes())))
    }

    /// The empty text is none.
    pub(super) fn maybe_text(&mut self) -> Result<Option<String>, StoreError> {
        Ok(Some(self.text()?).filter(|text| !text.is_empty()))
    }

    /// A name that was validated on input.
    pub(super) fn name<T: TryFrom<String>>(&mut self) -> Result<T, StoreError>
    where
        T::Error: std::fmt::Display,
    {
        T::try_from(self.text()?).map_err(|error| StoreError::Corrupt(error.to_string()))
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Reads every item of this array as a nested array.
    pub(super) fn each<T>(
        self,
        mut read: impl FnMut(&mut Items) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        self.0.map(|value| read(&mut Items::of(value)?)).collect()
    }
}
