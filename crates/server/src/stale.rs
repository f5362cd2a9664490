//! A cache of responses for reads while the store is unavailable.
//!
//! The cache keeps every successful response to a read, within bounds. When the store is unavailable, the same read gets the
//! cached response, with its age in the headers. A read without a cached response is refused.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;

use crate::auth::Caller;
use crate::problem::{self, Kind};

/// Limit: bytes of the whole cache, and of one response in it.
const MAX_BYTES: usize = 32 * 1024 * 1024;
const MAX_RESPONSE: usize = 1024 * 1024;

/// The caller and the path. The caller is part of it because another key may see less.
type Key = (String, String);

#[derive(Debug, Clone)]
struct Cached {
    body: Bytes,
    at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Stale(Mutex<Cache>);

#[derive(Debug, Default)]
struct Cache {
    responses: HashMap<Key, Cached>,
    /// The keys in the order of their first insertion.
    order: VecDeque<Key>,
    bytes: usize,
}

impl Cache {
    fn size(key: &Key, response: &Cached) -> usize {
        2 * (key.0.len() + key.1.len()) + response.body.len() + 128
    }

    fn put(&mut self, key: Key, response: Cached) {
        self.bytes += Self::size(&key, &response);
        match self.responses.insert(key.clone(), response) {
            Some(before) => self.bytes -= Self::size(&key, &before),
            None => self.order.push_back(key),
        }
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(gone) = self.responses.remove(&oldest) {
                self.bytes -= Self::size(&oldest, &gone);
            }
        }
    }
}

/// Middleware around every read of the API: caches its response, or answers from the cache.
pub(crate) async fn cache(
    State(stale): State<std::sync::Arc<Stale>>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    // Records report their own age, and reading them does not need the store.
    if request.method() != Method::GET || request.uri().path().starts_with("/v1/records/") {
        return next.run(request).await;
    }
    let address = request.uri().path_and_query().map(|all| all.as_str().to_owned());
    let key = (caller.name, address.unwrap_or_default());
    let response = next.run(request).await;
    if response.extensions().get::<Kind>() == Some(&problem::UNAVAILABLE) {
        let cache = stale.0.lock().unwrap_or_else(PoisonError::into_inner);
        return match cache.responses.get(&key) {
            Some(cached) => stale_response(cached),
            None => response,
        };
    }
    let json =
        response.headers().get(header::CONTENT_TYPE) == Some(&HeaderValue::from_static("application/json"));
    if response.status() != StatusCode::OK || !json {
        return response;
    }
    let (head, body) = response.into_parts();
    // The body is complete in memory: only streams are not, and they are not JSON.
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    if body.len() <= MAX_RESPONSE {
        let cached = Cached {
            body: body.clone(),
            at: Instant::now(),
        };
        stale
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(key, cached);
    }
    Response::from_parts(head, Body::from(body))
}

fn stale_response(cached: &Cached) -> Response {
    let mut response = Response::new(Body::from(cached.body.clone()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::AGE, HeaderValue::from(cached.at.elapsed().as_secs()));
    headers.insert("tidegate-stale", HeaderValue::from_static("true"));
    headers.insert(
        header::WARNING,
        HeaderValue::from_static(
            "110 tidegate \"the store is unavailable: this is the last known response\"",
        ),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_stays_within_its_bound() {
        let mut cache = Cache::default();
        for n in 0..200 {
            let response = Cached {
                body: Bytes::from(vec![0; MAX_RESPONSE]),
                at: Instant::now(),
            };
            cache.put(("key".into(), format!("/v1/{}", n % 150)), response);
            assert!(cache.bytes <= MAX_BYTES);
        }
        assert_eq!(cache.responses.len(), cache.order.len());
        assert!(cache.responses.contains_key(&("key".into(), "/v1/49".into())));
    }
}
