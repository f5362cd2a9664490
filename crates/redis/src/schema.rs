//! The version of a key layout. A store with another version is rejected.

use crate::{Call, Error, Items, Script, Servers};

/// Compares the version of the layout under a key with this program's; the script writes it if there is none.
pub async fn check_schema(
    servers: &Servers,
    script: &'static Script,
    key: String,
    known: u32,
) -> Result<(), Error> {
    let call = Call::function(script, key).number(known.into());
    let found = Items::of(servers.run(call.key(), &call).await?)?.text()?;
    match found == known.to_string() {
        true => Ok(()),
        false => Err(Error::Unsuitable {
            server: format!("the store under {:?}", call.key()),
            reason: format!(
                "it has schema {found}, this program knows schema {known}; use the version of Tidegate that wrote it, or \
                 another prefix"
            ),
        }),
    }
}
