//! The id of a request is the correlation id of its event, of the event's dead letter, and of the replay of that.

use refresh::upstream_with;
use serde_json::{Value, json};
use support::{Backend, Running};
use tidegate_upstream::Answer;

use crate::support::{self, refresh};

on_both_stores! {
    the_id_of_a_request_is_in_its_event_and_in_its_dead_letter
}

const DEAD_LETTERS: &str = "/v1/refresh/dead-letters";

/// Sends a request; returns the id in its response, and the body.
async fn sent(request: reqwest::RequestBuilder) -> (String, Value) {
    let response = request.send().await.unwrap();
    let id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    (id, response.json().await.unwrap())
}

/// The record's dead letter at another position than this one.
fn found(page: &Value, key: &str, not_at: &Value) -> Option<Value> {
    let mut dead_letters = page["items"].as_array()?.iter();
    dead_letters
        .find(|dead_letter| dead_letter["key"] == key && dead_letter["position"] != *not_at)
        .cloned()
}

async fn dead_letter(running: &Running, key: &str, not_at: &Value) -> Value {
    let page = running
        .until(DEAD_LETTERS, |page| found(page, key, not_at).is_some())
        .await;
    found(&page, key, not_at).unwrap()
}

async fn the_id_of_a_request_is_in_its_event_and_in_its_dead_letter(backend: Backend) {
    let upstream = upstream_with(|settings| settings.answer = Answer::Error400);
    let running = Running::refreshing(backend, &upstream, "").await;
    let address = |key: &str| format!("{}/v1/records/character/{key}", running.url);
    let read = running.http.get(address("anna"));
    let (read, _) = sent(read.header("x-request-id", "reader-1")).await;
    let refresh = running.http.post(address("bert") + "/refresh");
    let (refresh, requested) = sent(refresh.header("x-request-id", "user-2")).await;
    // A request without an id gets one.
    let (made, _) = sent(running.http.get(address("carl"))).await;
    assert_eq!((read.as_str(), refresh.as_str()), ("reader-1", "user-2"));

    let mut dead_letters = Vec::new();
    for (key, id) in [("anna", &read), ("bert", &refresh), ("carl", &made)] {
        let dead_letter = dead_letter(&running, key, &Value::Null).await;
        assert_eq!(
            dead_letter["originalEvent"]["correlationId"],
            id.as_str(),
            "{dead_letter}"
        );
        dead_letters.push(dead_letter);
    }
    assert_eq!(
        dead_letters[1]["originalEvent"]["version"], requested["version"],
        "{requested}"
    );

    // The record reports the failure before the event is settled, but a replay needs the settled event.
    running
        .until("/v1/refresh", |view| {
            view["counters"]["settled"]["high"].as_u64() >= Some(3)
        })
        .await;
    let (first, position) = (&dead_letters[0]["originalEvent"], &dead_letters[0]["position"]);
    let chosen = json!({ "positions": [position], "why": "once more" });
    let done = running.did(&format!("{DEAD_LETTERS}/replay"), chosen).await;
    assert_eq!(done, json!({ "handled": 1, "skipped": 0 }));
    let again = dead_letter(&running, "anna", position).await["originalEvent"].take();
    assert_eq!(
        (&again["correlationId"], &again["reason"]),
        (&json!("reader-1"), &json!("REPLAY")),
        "{again}"
    );
    assert_ne!(again["eventId"], first["eventId"]);
    running.stop().await;
}
