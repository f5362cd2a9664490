//! Rate limits: read, and change at run time.

use http::Method;
use tidegate_api::{Limits, PatchLimits};

use crate::address::Address;
use crate::client::{Call, Client};
use crate::error::ClientError;

impl Client {
    /// Reads the rate limits in effect, and their latest changes.
    pub async fn limits(&self) -> Result<Limits, ClientError> {
        self.call(Call::get(Address::of(&["limits"]))).await
    }

    /// Changes rate limits at once, until somebody changes them again.
    pub async fn patch_limits(&self, patch: &PatchLimits) -> Result<Limits, ClientError> {
        let call = Call::new(Method::PATCH, Address::of(&["limits"]));
        self.call(call.json(patch)?).await
    }
}
