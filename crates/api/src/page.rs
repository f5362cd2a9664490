//! Listings.

use serde::{Deserialize, Serialize};

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Pass it as `cursor` to read the next page. Absent on the last page. A page with a `next` may be short, or even
    /// empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
