//! Listings.

use serde::{Deserialize, Serialize};

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Present while there is more: pass it as `cursor`. A page may be short, or even empty, and yet have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
