//! Pages of a listing: where a page begins, and how much it holds.

use serde::Deserialize;
use tidegate_core::bulk::views::{Cursor, Page};
use utoipa::IntoParams;

use crate::problem::{ApiError, ApiResult};

/// Limit: items of one page.
const MAX_PAGE: u32 = 1_000;
/// Limit: about how many bytes a page of jobs holds, because payloads and results are large. A page ends after the read that
/// reaches this, with a cursor for the rest.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Limit: jobs of one read. A page exceeds its bytes by at most this many of the largest jobs.
const READ: u32 = 50;

/// Where a page begins, and how many items it has.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Listing {
    /// The `next` of the page before; absent for the first page.
    pub(crate) cursor: Option<String>,
    /// The most items of the page; 100 if absent.
    #[param(minimum = 1, maximum = 1000)]
    pub(crate) limit: Option<u32>,
}

/// Checks the `limit` of a request.
pub(crate) fn page_size(limit: Option<u32>) -> ApiResult<u32> {
    match limit.unwrap_or(100) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        other => Err(ApiError::invalid(format!(
            "limit = {other}: it must be from 1 to {MAX_PAGE}"
        ))),
    }
}

/// Fills a page of jobs read by read, up to `max` items or [`PAGE_BYTES`].
pub(crate) struct Filling<T> {
    page: Page<T>,
    max: u32,
    bytes: usize,
    full: bool,
}

impl<T> Filling<T> {
    pub(crate) fn new(after: Option<Cursor>, max: u32) -> Self {
        Self {
            page: Page {
                items: Vec::new(),
                next: after,
            },
            max,
            bytes: 0,
            full: false,
        }
    }

    /// Returns the cursor and the size of the next read; `None` when the page is full.
    pub(crate) fn wants(&mut self) -> Option<(Option<Cursor>, u32)> {
        let missing = self.max - self.page.items.len() as u32;
        (!self.full).then(|| (self.page.next.take(), READ.min(missing)))
    }

    pub(crate) fn take(&mut self, read: Page<T>, bytes: impl Fn(&T) -> usize) {
        self.bytes += read.items.iter().map(bytes).sum::<usize>();
        self.page.items.extend(read.items);
        self.page.next = read.next;
        self.full = self.page.next.is_none()
            || self.page.items.len() >= self.max as usize
            || self.bytes >= PAGE_BYTES;
    }

    pub(crate) fn page(self) -> Page<T> {
        self.page
    }
}
