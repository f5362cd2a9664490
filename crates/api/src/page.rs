//! Pages of listings.

use serde::{Deserialize, Serialize};

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The entries of this page, in the order of the listing.
    pub items: Vec<T>,
    /// The cursor of the next page: pass it as `cursor`. Absent on the last page. A page with a `next` may be
    /// short, or even empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
