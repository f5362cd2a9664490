//! Commands about records, their history and their dead letters.

pub(crate) mod archive;
pub(crate) mod dead_letters;
pub(crate) mod migrate;
pub(crate) mod record;
pub(crate) mod status;
