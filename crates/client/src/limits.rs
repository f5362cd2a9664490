//! Limits: read them, change them at run time.

use http::Method;
use tidegate_api::{Limits, PatchLimits};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

impl Client {
    /// The rates as they hold now, and who changed them.
    pub async fn limits(&self) -> Result<Limits, ClientError> {
        self.call(Call::get(Address::of(&["limits"]))).await
    }

    /// Changes rates at once, until they are changed again.
    pub async fn patch_limits(&self, patch: &PatchLimits) -> Result<Limits, ClientError> {
        let call = Call::new(Method::PATCH, Address::of(&["limits"]));
        self.call(call.json(patch)?).await
    }
}
