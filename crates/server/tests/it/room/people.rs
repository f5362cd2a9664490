//! Visitors that behave like browsers: with a cookie, an event stream and requests.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{PATIENCE, Running};

pub(crate) struct Visitor {
    url: String,
    room: String,
    http: reqwest::Client,
    cookie: Option<String>,
}

/// An event: its name and its data.
pub(crate) type Event = (String, Value);

pub(crate) struct Stream {
    bytes: futures_util::stream::BoxStream<'static, reqwest::Result<bytes::Bytes>>,
    text: String,
}

impl Visitor {
    pub(crate) fn of(running: &Running, room: &str) -> Self {
        Self {
            url: running.url.clone(),
            room: room.to_owned(),
            http: running.http.clone(),
            cookie: None,
        }
    }

    pub(crate) fn cookie(&self) -> Option<&str> {
        self.cookie.as_deref()
    }

    pub(crate) fn with_cookie(mut self, cookie: &str) -> Self {
        self.cookie = Some(cookie.to_owned());
        self
    }

    fn store_cookie(&mut self, response: &reqwest::Response) {
        for cookie in response.headers().get_all("set-cookie") {
            let cookie = cookie.to_str().unwrap();
            assert!(
                cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"),
                "{cookie}"
            );
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
        }
    }

    fn with_own_cookie(&self, request: reqwest::RequestBuilder) -> reqwest::RequestBuilder {
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub(crate) async fn get(&mut self, what: &str) -> (u16, Value) {
        let request = self
            .http
            .get(format!("{}/v1/rooms/{}/{what}", self.url, self.room));
        self.answer(self.with_own_cookie(request)).await
    }

    pub(crate) async fn post(&mut self, what: &str, body: Value) -> (u16, Value) {
        let request = self
            .http
            .post(format!("{}/v1/rooms/{}/{what}", self.url, self.room));
        self.answer(self.with_own_cookie(request).json(&body)).await
    }

    async fn answer(&mut self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let response = request.send().await.unwrap();
        self.store_cookie(&response);
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    /// Opens the stream; the error is the status and the problem.
    pub(crate) async fn stream_with(&mut self, query: &str) -> Result<Stream, (u16, Value)> {
        let request = self.http.get(format!(
            "{}/events/{}/tickets/waiting{query}",
            self.url, self.room
        ));
        let response = self.with_own_cookie(request).send().await.unwrap();
        self.store_cookie(&response);
        if !response.status().is_success() {
            let status = response.status().as_u16();
            return Err((status, response.json().await.unwrap()));
        }
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        assert!(
            response.headers()["cache-control"]
                .to_str()
                .unwrap()
                .contains("no-store")
        );
        Ok(Stream {
            bytes: response.bytes_stream().boxed(),
            text: String::new(),
        })
    }

    pub(crate) async fn stream(&mut self) -> Stream {
        match self.stream_with("").await {
            Ok(stream) => stream,
            Err(refused) => panic!("{refused:?}"),
        }
    }

    /// Calls a route of shops, like `redeem`.
    pub(crate) async fn shop(&self, what: &str, body: Value) -> (u16, Value) {
        let request = self
            .http
            .post(format!("{}/v1/rooms/{}/{what}", self.url, self.room));
        crate::support::answer(request.json(&body)).await
    }
}

impl Stream {
    /// Returns the next event; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
                let Some(name) = field("event: ") else {
                    continue;
                };
                let data = serde_json::from_str(field("data: ").unwrap()).unwrap();
                return Some((name.to_owned(), data));
            }
            let piece = timeout(PATIENCE, self.bytes.next())
                .await
                .expect("the stream sends an event in time")?;
            self.text += std::str::from_utf8(&piece.ok()?).unwrap();
        }
    }

    /// Waits for an event of this name whose data is as wanted.
    pub(crate) async fn until(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let found = timeout(PATIENCE, async {
            loop {
                let (found, data) = self.next().await.expect("the stream continues");
                if found == name && wanted(&data) {
                    return data;
                }
            }
        });
        found
            .await
            .unwrap_or_else(|_| panic!("the stream sends no {name} in time"))
    }

    pub(crate) async fn granted(&mut self) -> String {
        let ticket = self.until("granted", |_| true).await;
        ticket["pass"]["token"].as_str().unwrap().to_owned()
    }
}

/// A room with one slot. Its times are long, so that no visitor counts as absent on a stalled machine.
pub(crate) const ROOM: &str = r#"
[rooms.concert]
capacity = { seats = 50, inside = 1, per_second = 100 }
presence_ms = 15000
grace_ms = 60000
shop = "https://shop.example/enter?from=queue"
"#;

/// The same room with other times, so that visitors lose their tickets soon after they disconnect.
pub(crate) fn room_for(presence_ms: u64, grace_ms: u64) -> String {
    ROOM.replace("presence_ms = 15000", &format!("presence_ms = {presence_ms}"))
        .replace("grace_ms = 60000", &format!("grace_ms = {grace_ms}"))
}

pub(crate) fn with_pass(pass: &str) -> Value {
    json!({ "pass": pass })
}

/// Sleeps, where the test has no condition to wait for.
pub(crate) async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
