//! Reads while the store is away are answered with what was answered last.
//!
//! Every good answer to a read is remembered, within bounds. When the same read later meets a store that is
//! away, the remembered answer is given, with its age in the headers. What was never read cannot be told.

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

/// Limit: what is remembered in all, and of one answer.
const MAX_BYTES: usize = 32 * 1024 * 1024;
const MAX_ANSWER: usize = 1024 * 1024;

/// Who asked for what: another key may see less.
type Key = (String, String);

#[derive(Debug, Clone)]
struct Remembered {
    body: Bytes,
    at: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Stale(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    answers: HashMap<Key, Remembered>,
    /// In the order in which they were first remembered.
    order: VecDeque<Key>,
    bytes: usize,
}

impl Memory {
    fn size(key: &Key, answer: &Remembered) -> usize {
        2 * (key.0.len() + key.1.len()) + answer.body.len() + 128
    }

    fn put(&mut self, key: Key, answer: Remembered) {
        self.bytes += Self::size(&key, &answer);
        match self.answers.insert(key.clone(), answer) {
            Some(before) => self.bytes -= Self::size(&key, &before),
            None => self.order.push_back(key),
        }
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            if let Some(gone) = self.answers.remove(&oldest) {
                self.bytes -= Self::size(&oldest, &gone);
            }
        }
    }
}

/// Around every read of the API.
pub(crate) async fn remember(
    State(stale): State<std::sync::Arc<Stale>>,
    caller: Caller,
    request: Request,
    next: Next,
) -> Response {
    // Records tell themselves how old they are, and do not need the store.
    if request.method() != Method::GET || request.uri().path().starts_with("/v1/records/") {
        return next.run(request).await;
    }
    let address = request.uri().path_and_query().map(|all| all.as_str().to_owned());
    let key = (caller.name, address.unwrap_or_default());
    let response = next.run(request).await;
    if response.extensions().get::<Kind>() == Some(&problem::UNAVAILABLE) {
        let memory = stale.0.lock().unwrap_or_else(PoisonError::into_inner);
        return match memory.answers.get(&key) {
            Some(answer) => old(answer),
            None => response,
        };
    }
    let json =
        response.headers().get(header::CONTENT_TYPE) == Some(&HeaderValue::from_static("application/json"));
    if response.status() != StatusCode::OK || !json {
        return response;
    }
    let (head, body) = response.into_parts();
    // The body is there as one piece: only streams are not, and they are not JSON.
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return Response::from_parts(head, Body::empty());
    };
    if body.len() <= MAX_ANSWER {
        let answer = Remembered {
            body: body.clone(),
            at: Instant::now(),
        };
        stale
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(key, answer);
    }
    Response::from_parts(head, Body::from(body))
}

fn old(answer: &Remembered) -> Response {
    let mut response = Response::new(Body::from(answer.body.clone()));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::AGE, HeaderValue::from(answer.at.elapsed().as_secs()));
    headers.insert("tidegate-stale", HeaderValue::from_static("true"));
    headers.insert(
        header::WARNING,
        HeaderValue::from_static("110 tidegate \"the store is away: this is what was answered last\""),
    );
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_within_its_bound() {
        let mut memory = Memory::default();
        for n in 0..200 {
            let answer = Remembered {
                body: Bytes::from(vec![0; MAX_ANSWER]),
                at: Instant::now(),
            };
            memory.put(("key".into(), format!("/v1/{}", n % 150)), answer);
            assert!(memory.bytes <= MAX_BYTES);
        }
        assert_eq!(memory.answers.len(), memory.order.len());
        assert!(memory.answers.contains_key(&("key".into(), "/v1/49".into())));
    }
}
