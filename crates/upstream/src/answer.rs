//! The answer to a call: limits first, then random errors, then what the settings say about the key.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, DATE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use tidegate_core::rng::Rng;

use crate::call_counter::{Arrival, CallCounter};
use crate::clock::Moment;
use crate::library::Library;
use crate::piece::{self, Part, Piece};
use crate::settings::{Answer, UpstreamSettings};
use crate::text_number::number_of;

pub(crate) const API_KEY_HEADER: &str = "x-nxopen-api-key";
const SLOW_PIECES: usize = 10;
const SLOW_PAUSE: Duration = Duration::from_secs(1);
const CUT_AFTER: Duration = Duration::from_millis(50);
/// Huge answers repeat a block of this size.
const PADDING_BYTES: usize = 1_000_000;

/// Marks a response that is replaced by a reset of the connection.
#[derive(Debug, Clone)]
pub(crate) struct Reset;

/// A call in progress: counted until its last byte is handed over or the caller has left.
#[derive(Debug)]
struct Open(Arc<CallCounter>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.left();
    }
}

/// One call for one record.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) key: String,
    pub(crate) headers: HeaderMap,
    pub(crate) settings: Arc<UpstreamSettings>,
    pub(crate) library: Arc<Library>,
    pub(crate) counter: Arc<CallCounter>,
    pub(crate) now: Moment,
    pub(crate) rng: Rng,
}

impl Call {
    pub(crate) async fn answer(mut self) -> Response {
        let day = self.now.day(self.settings.utc_offset_s);
        let arrival = self.counter.arrive(&self.key, day, &self.settings);
        let open = Open(self.counter.clone());
        let answer = self.decide(arrival);
        self.wait().await;
        let mut response = match answer {
            Decision::Refused(status) => self.refused(status, open),
            Decision::Answered(answer) => self.respond(answer, open).await,
        };
        let date = httpdate::fmt_http_date(self.now.system_time());
        if let Ok(date) = HeaderValue::try_from(date) {
            response.headers_mut().insert(DATE, date);
        }
        response
    }

    fn decide(&mut self, arrival: Arrival) -> Decision {
        let settings = &self.settings;
        if let Some(wanted) = &settings.api_key
            && self.headers.get(API_KEY_HEADER).map(HeaderValue::as_bytes) != Some(wanted.as_bytes())
        {
            return Decision::Refused(StatusCode::FORBIDDEN);
        }
        if settings.enforce && (arrival.over_second || arrival.over_day) {
            return Decision::Answered(Answer::Throttled);
        }
        let by_chance = [
            (settings.rate_500, Answer::Error500),
            (settings.rate_503, Answer::Error503),
            (settings.rate_429, Answer::Throttled),
            (settings.rate_hang, Answer::Hang),
            (settings.rate_reset, Answer::Reset),
        ];
        for (share, answer) in by_chance {
            if share > 0.0 && self.rng.chance(share) {
                return Decision::Answered(answer);
            }
        }
        if settings.is_missing(&self.key) {
            return Decision::Refused(StatusCode::NOT_FOUND);
        }
        Decision::Answered(settings.answer_to(&self.key))
    }

    async fn wait(&mut self) {
        let (min, max) = (self.settings.latency_min_ms, self.settings.latency_max_ms);
        let ms = min + self.rng.below(max.saturating_sub(min) + 1);
        if ms > 0 {
            tokio::time::sleep(Duration::from_millis(ms)).await;
        }
    }

    async fn respond(&mut self, answer: Answer, open: Open) -> Response {
        match answer {
            Answer::Normal => self.record(open),
            Answer::BrokenJson => {
                let whole = self.plain_record();
                self.json(vec![whole.slice(..whole.len() / 2)], open)
            }
            Answer::WrongType => self.json(vec![Bytes::from_static(b"[1,2,3]")], open),
            Answer::WrongShape => {
                let text = format!(
                    r#"{{"ocid":"x","character_name":"y","item_equipment":"{}"}}"#,
                    "none"
                );
                self.json(vec![Bytes::from(text)], open)
            }
            Answer::MissingFields => {
                let text = r#"{"date":"2026-03-01","world_name":"루나","final_stat":[]}"#;
                self.json(vec![Bytes::from(text)], open)
            }
            Answer::Huge | Answer::HugeChunked | Answer::GzipBomb => self.huge(answer, open),
            Answer::Empty => self.json(Vec::new(), open),
            Answer::Redirect => {
                let mut response = self.text(StatusCode::FOUND, "text/plain", Vec::new(), open);
                let elsewhere = HeaderValue::from_static("http://elsewhere.example/character");
                response.headers_mut().insert(LOCATION, elsewhere);
                response
            }
            Answer::Html => {
                let page = "<!DOCTYPE html><html><body><h1>점검 중입니다</h1></body></html>";
                self.text(
                    StatusCode::OK,
                    "text/html; charset=utf-8",
                    vec![Bytes::from(page)],
                    open,
                )
            }
            Answer::SlowBody => self.slow(open),
            Answer::CutBody => self.cut(open),
            Answer::Error500 => self.refused(StatusCode::INTERNAL_SERVER_ERROR, open),
            Answer::Error503 => self.refused(StatusCode::SERVICE_UNAVAILABLE, open),
            Answer::Error400 => self.refused(StatusCode::BAD_REQUEST, open),
            Answer::Throttled => self.refused(StatusCode::TOO_MANY_REQUESTS, open),
            Answer::Hang => {
                self.counter.answered("hang");
                std::future::pending().await
            }
            Answer::Reset => {
                self.counter.answered("reset");
                let mut response = Response::new(Body::empty());
                response.extensions_mut().insert(Reset);
                response
            }
        }
    }

    fn revision(&self) -> u64 {
        let settings = &self.settings;
        let set = settings
            .revisions
            .get(&self.key)
            .copied()
            .unwrap_or(settings.revision);
        let span = settings.change_every_ms;
        if span == 0 {
            return set;
        }
        set + (self.now.running_ms() + number_of(&self.key) % span) / span
    }

    fn parts<'a>(&mut self, library: &'a Library) -> Vec<Part<'a>> {
        let moment = self.now.text();
        library.parts(&self.key, self.revision(), &moment, &mut self.rng)
    }

    fn plain_record(&mut self) -> Bytes {
        let library = self.library.clone();
        Bytes::from(piece::plain(&self.parts(&library)).concat())
    }

    fn record(&mut self, open: Open) -> Response {
        let library = self.library.clone();
        let parts = self.parts(&library);
        if !self.takes_gzip() {
            return self.json(piece::plain(&parts), open);
        }
        let mut response = self.json(piece::gzip(&parts), open);
        response
            .headers_mut()
            .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response
    }

    fn takes_gzip(&self) -> bool {
        let accepted = self.headers.get(http::header::ACCEPT_ENCODING);
        accepted
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("gzip"))
    }

    fn huge(&mut self, answer: Answer, open: Open) -> Response {
        let Ok(padding) = Piece::new(vec![b' '; PADDING_BYTES]) else {
            return self.refused(StatusCode::INTERNAL_SERVER_ERROR, open);
        };
        let begin = Bytes::from_static(br#"{"character_name":"y","padding":""#);
        let mut parts = vec![Part::Fresh(begin)];
        parts.extend((0..self.settings.huge_bytes / PADDING_BYTES).map(|_| Part::Ready(&padding)));
        parts.push(Part::Fresh(Bytes::from_static(b"\"}")));
        if answer == Answer::GzipBomb {
            let mut response = self.json(piece::gzip(&parts), open);
            response
                .headers_mut()
                .insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            return response;
        }
        let mut response = self.json(piece::plain(&parts), open);
        if answer == Answer::HugeChunked {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
        response
    }

    fn slow(&mut self, open: Open) -> Response {
        let whole = self.plain_record();
        self.counter.answered("200");
        let size = whole.len().div_ceil(SLOW_PIECES);
        let pieces = stream::unfold((whole, open), move |(mut rest, open)| async move {
            if rest.is_empty() {
                return None;
            }
            tokio::time::sleep(SLOW_PAUSE).await;
            let next = rest.split_to(size.min(rest.len()));
            Some((Ok::<_, io::Error>(next), (rest, open)))
        });
        response(StatusCode::OK, "application/json", Body::from_stream(pieces))
    }

    fn cut(&mut self, open: Open) -> Response {
        let whole = self.plain_record();
        self.counter.answered("200");
        let length = HeaderValue::from(whole.len());
        let half = Ok(whole.slice(..whole.len() / 2));
        let pieces = stream::iter([half]).chain(stream::once(async move {
            // Gives the first half time to leave: an error at once would discard it.
            tokio::time::sleep(CUT_AFTER).await;
            drop(open);
            Err(io::Error::other("cut off as the settings say"))
        }));
        let mut response = response(StatusCode::OK, "application/json", Body::from_stream(pieces));
        response.headers_mut().insert(CONTENT_LENGTH, length);
        response
    }

    fn refused(&self, status: StatusCode, open: Open) -> Response {
        let (name, message) = match status {
            StatusCode::FORBIDDEN => ("OPENAPI00005", "Please input valid api key"),
            StatusCode::NOT_FOUND => ("OPENAPI00003", "Please input valid id"),
            StatusCode::BAD_REQUEST => ("OPENAPI00004", "Please input valid parameter"),
            StatusCode::TOO_MANY_REQUESTS => ("OPENAPI00007", "API call volume exceeded"),
            StatusCode::SERVICE_UNAVAILABLE => ("OPENAPI00011", "API under maintenance"),
            _ => ("OPENAPI00001", "Internal server error"),
        };
        let text = format!(r#"{{"error":{{"name":"{name}","message":"{message}"}}}}"#);
        let mut response = self.text(status, "application/json", vec![Bytes::from(text)], open);
        let throttled = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if throttled && let Some(seconds) = self.settings.retry_after_s {
            let text = if self.settings.retry_after_as_date {
                httpdate::fmt_http_date(self.now.system_time() + Duration::from_secs(seconds))
            } else {
                seconds.to_string()
            };
            if let Ok(value) = HeaderValue::try_from(text) {
                response.headers_mut().insert(RETRY_AFTER, value);
            }
        }
        response
    }

    fn json(&self, chunks: Vec<Bytes>, open: Open) -> Response {
        self.text(StatusCode::OK, "application/json; charset=utf-8", chunks, open)
    }

    fn text(&self, status: StatusCode, kind: &'static str, chunks: Vec<Bytes>, open: Open) -> Response {
        self.counter.answered(status.as_str());
        let length: usize = chunks.iter().map(Bytes::len).sum();
        let pieces = stream::iter(chunks).map(move |chunk| {
            let _ = &open;
            Ok::<_, io::Error>(chunk)
        });
        let mut response = response(status, kind, Body::from_stream(pieces));
        response
            .headers_mut()
            .insert(CONTENT_LENGTH, HeaderValue::from(length));
        response
    }
}

#[derive(Debug)]
enum Decision {
    Refused(StatusCode),
    Answered(Answer),
}

fn response(status: StatusCode, kind: &'static str, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
