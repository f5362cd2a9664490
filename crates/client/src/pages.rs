//! Listings of any length, page by page.

use std::pin::Pin;

use futures_core::Stream;
use futures_util::{StreamExt, TryStreamExt, stream};
use tidegate_api::Page;

use crate::error::ClientError;

/// A stream of all entries of a listing. It requests the next page after the last entry of the current one, and
/// ends after an error.
pub type Items<T> = Pin<Box<dyn Stream<Item = Result<T, ClientError>> + Send>>;

/// The first page is short, for callers that read only the beginning. Later pages have the largest size.
const FIRST: u32 = 100;
const PAGE: u32 = 1_000;

pub(crate) fn items<T, F>(page: impl Fn(Option<String>, u32) -> F + Send + 'static) -> Items<T>
where
    T: Send + 'static,
    F: Future<Output = Result<Page<T>, ClientError>> + Send,
{
    // The cursor of the next page; none after the last page.
    let pages = stream::try_unfold((page, Some(None)), |(page, next)| async move {
        let Some(cursor) = next else {
            return Ok::<_, ClientError>(None);
        };
        let size = if cursor.is_none() { FIRST } else { PAGE };
        let Page { items, next } = page(cursor, size).await?;
        let items = stream::iter(items).map(Ok);
        Ok(Some((items, (page, next.map(Some)))))
    });
    Box::pin(pages.try_flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_are_read_to_the_end_also_behind_an_empty_one() {
        let pages = [(vec![1, 2], Some("b")), (vec![], Some("c")), (vec![3], None)];
        let mut all = items(move |cursor, _| {
            let index = match cursor.as_deref() {
                None => 0,
                Some("b") => 1,
                Some("c") => 2,
                other => panic!("nobody gave the cursor {other:?}"),
            };
            let (items, next): (Vec<i32>, Option<&str>) = pages[index].clone();
            let next = next.map(str::to_owned);
            std::future::ready(Ok(Page { items, next }))
        });
        let mut seen = Vec::new();
        while let Some(item) = all.next().await {
            seen.push(item.unwrap());
        }
        assert_eq!(seen, [1, 2, 3]);
    }

    #[tokio::test]
    async fn an_error_ends_the_listing() {
        let mut all = items(|_, _| {
            let error = ClientError::Input("broken".into());
            std::future::ready(Err::<Page<u8>, _>(error))
        });
        assert!(all.next().await.unwrap().is_err());
        assert!(all.next().await.is_none());
    }
}
