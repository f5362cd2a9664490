//! Pages of a listing: where they begin, and how much they hold.

use serde::Deserialize;
use tidegate_core::bulk::views::{Cursor, Page};
use utoipa::IntoParams;

use crate::problem::{ApiError, ApiResult};

/// Limit: items of one page.
const MAX_PAGE: u32 = 1_000;
/// Limit: about what a page of jobs holds. Payloads and results are large; a page ends after the read that reaches
/// this, with the cursor to go on.
const PAGE_BYTES: usize = 8 * 1024 * 1024;
/// Limit: jobs of one read, so that a page is at most this many of the largest jobs over its bytes.
const READ: u32 = 50;

/// Where a listing goes on, and how long a page is.
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

/// Most items of a page.
pub(crate) fn page_size(limit: Option<u32>) -> ApiResult<u32> {
    match limit.unwrap_or(100) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        other => Err(ApiError::invalid(format!(
            "limit = {other}: it may be from 1 to {MAX_PAGE}"
        ))),
    }
}

/// A page of jobs that is read piece by piece, up to so many items or [`PAGE_BYTES`].
pub(super) struct Filling<T> {
    page: Page<T>,
    max: u32,
    bytes: usize,
    full: bool,
}

impl<T> Filling<T> {
    pub(super) fn new(after: Option<Cursor>, max: u32) -> Self {
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

    /// After what, and how many, to read; `None` when the page is full.
    pub(super) fn wants(&mut self) -> Option<(Option<Cursor>, u32)> {
        let missing = self.max - self.page.items.len() as u32;
        (!self.full).then(|| (self.page.next.take(), READ.min(missing)))
    }

    pub(super) fn take(&mut self, read: Page<T>, bytes: impl Fn(&T) -> usize) {
        self.bytes += read.items.iter().map(bytes).sum::<usize>();
        self.page.items.extend(read.items);
        self.page.next = read.next;
        self.full = self.page.next.is_none()
            || self.page.items.len() >= self.max as usize
            || self.bytes >= PAGE_BYTES;
    }

    pub(super) fn page(self) -> Page<T> {
        self.page
    }
}
