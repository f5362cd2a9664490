//! The commands of waiting rooms, against a real service with a visitor.

use std::time::{Duration, Instant};

use command::{fails, succeeds, tidegate};
use serde_json::{Value, json};
use served::{PATIENCE, Served, free_port, until};
use tempfile::TempDir;
use tidegate_client::{Client, JoinRoom, TicketCookie};

use crate::support::{command, served};

const ROOMS: &str = "[rooms.concert]\ncapacity = { seats = 500, inside = 1, per_second = 10 }\n\
                     [rooms.opera]\nopens_at = \"2100-01-01T10:00:00Z\"\n";

struct World {
    client: Client,
    served: Served,
    folder: TempDir,
}

async fn world(settings: &str) -> World {
    serve(tempfile::tempdir().unwrap(), settings).await
}

async fn serve(folder: TempDir, settings: &str) -> World {
    let served = Served::start(folder.path(), free_port(), settings).await;
    World {
        client: Client::new(&served.url).unwrap(),
        served,
        folder,
    }
}

impl World {
    async fn ok(&self, args: &[&str]) -> String {
        let (out, err) = succeeds(&[args, &["--url", &self.served.url]].concat(), "").await;
        assert!(err.is_empty(), "{args:?}: {err}");
        out
    }

    async fn json(&self, args: &[&str]) -> Vec<Value> {
        let out = self.ok(&[args, &["--json"]].concat()).await;
        out.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// What a command prints about its room.
    async fn room(&self, args: &[&str]) -> Value {
        let mut rooms = self.json(&[&["room"], args].concat()).await;
        assert_eq!(rooms.len(), 1, "{args:?}: {rooms:?}");
        rooms.remove(0)
    }

    async fn code(&self, args: &[&str]) -> i32 {
        let args = [args, &["--url", &self.served.url]].concat();
        tidegate(&args, "").await.status.code().unwrap()
    }

    async fn fails(&self, args: &[&str], reason: &str) {
        fails(&[args, &["--url", &self.served.url]].concat(), "", reason).await;
    }

    /// Waits for a pass that differs from `old`.
    async fn pass(&self, cookie: &TicketCookie, old: Option<&str>) -> String {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < PATIENCE, "the visitor gets no pass");
            let ticket = self.client.ticket_in_room("concert", cookie).await.unwrap();
            let pass = ticket.pass.map(|pass| pass.token);
            if let Some(pass) = pass.filter(|pass| Some(pass.as_str()) != old) {
                return pass;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_are_listed_shown_and_resized() {
    let world = world(ROOMS).await;
    let rooms = world.json(&["room", "list"]).await;
    let states: Vec<_> = rooms
        .iter()
        .map(|room| (&room["room"], &room["status"]))
        .collect();
    assert_eq!(
        states,
        [
            (&json!("concert"), &json!("OPEN")),
            (&json!("opera"), &json!("NOT_OPEN"))
        ]
    );
    let text = world.ok(&["room", "list"]).await;
    assert!(text.starts_with("ROOM") && text.contains("NOT_OPEN"), "{text}");
    let room = world.room(&["show", "concert"]).await;
    let configured = json!({ "seats": 500, "inside": 1, "perSecond": 10 });
    assert_eq!(
        (&room["capacity"], &room["configured"]),
        (&configured, &configured)
    );
    until("a sample", || async {
        !world.json(&["room", "history", "concert"]).await.is_empty()
    })
    .await;
    let text = world.ok(&["room", "history", "concert"]).await;
    assert!(text.starts_with("AT") && text.contains("ADMITTED"), "{text}");

    let set = ["set", "concert", "--seats", "unlimited", "--inside", "+4"];
    let rest = ["--per-second", "20", "--why", "a larger hall"];
    let room = world.room(&[&set[..], &rest[..]].concat()).await;
    assert_eq!(
        room["capacity"],
        json!({ "inside": 5, "perSecond": 20 }),
        "{room}"
    );
    assert_eq!(room["changes"][0]["why"], "a larger hall", "{room}");
    let room = world.room(&["set", "concert", "--per-second", "-5"]).await;
    assert_eq!(room["capacity"]["perSecond"], 15, "{room}");
    for _ in 0..2 {
        let named = ["set", "concert", "--inside", "+1", "--request", "row-7"];
        let room = world.room(&named).await;
        assert_eq!(room["capacity"]["inside"], 6, "{room}");
    }
    let text = world.ok(&["room", "show", "concert"]).await;
    for part in [
        "unlimited, configured 500",
        "6, configured 1",
        "15, configured 10",
        "a larger hall",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let reset = ["--seats", "reset", "--inside", "reset", "--per-second", "reset"];
    let room = world.room(&[&["set", "concert"], &reset[..]].concat()).await;
    assert_eq!(room["capacity"], configured, "{room}");

    world
        .fails(&["room", "set", "concert"], "nothing to change")
        .await;
    let below = ["room", "set", "concert", "--inside", "-5"];
    assert_eq!(world.code(&below).await, 1);
    for wrong in ["many", "unlimited"] {
        assert_eq!(
            world.code(&["room", "set", "concert", "--inside", wrong]).await,
            2
        );
    }
    assert_eq!(world.code(&["room", "show", "theatre"]).await, 3);
    world.served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rooms_are_paused_resumed_and_closed_and_passes_are_revoked() {
    let world = world(ROOMS).await;
    for (command, status) in [
        ("pause", "PAUSED"),
        ("resume", "OPEN"),
        ("close", "CLOSED"),
        ("resume", "OPEN"),
    ] {
        let room = world.room(&[command, "concert", "--why", "a rehearsal"]).await;
        assert_eq!(room["status"], status, "{command}: {room}");
    }
    let audit = world.served.get("/v1/audit").await.to_string();
    assert!(
        audit.contains("room.close") && audit.contains("a rehearsal"),
        "{audit}"
    );

    let join = JoinRoom::default();
    let joined = world.client.join_room("concert", &join, None).await.unwrap();
    let cookie = joined.cookie.unwrap();
    let first = world.pass(&cookie, None).await;
    let wave = world.room(&["show", "concert"]).await["wave"].clone();
    let room = world.room(&["void-passes", "concert", "--through", "0"]).await;
    assert_eq!(room["voided"], 0, "{room}");
    let through = wave.to_string();
    let void = [
        "void-passes",
        "concert",
        "--through",
        &through,
        "--why",
        "a key leaked",
    ];
    let room = world.room(&void).await;
    assert_eq!(room["voided"], wave, "{room}");
    let second = world.pass(&cookie, Some(&first)).await;
    let text = world.ok(&["room", "void-passes", "concert"]).await;
    assert!(text.contains("voided through wave"), "{text}");
    world.pass(&cookie, Some(&second)).await;

    for command in ["pause", "resume", "close", "void-passes", "history", "draw"] {
        assert_eq!(world.code(&["room", command, "theatre"]).await, 3, "{command}");
    }
    world.served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draw_shows_its_commitment_and_later_its_seed() {
    let world = world(ROOMS).await;
    let draw = world.room(&["draw", "opera"]).await;
    assert_eq!(draw["opensAt"], "2100-01-01T10:00:00.000Z", "{draw}");
    assert!(draw["commitment"].is_string() && draw["seed"].is_null(), "{draw}");
    let text = world.ok(&["room", "draw", "opera"]).await;
    assert!(text.contains("published at the opening"), "{text}");
    let earlier = ["draw", "opera", "--opens-at", "2020-01-01T10:00:00Z"];
    let draw = world.room(&earlier).await;
    assert!(draw["seed"].is_string(), "{draw}");
    let text = world.ok(&["room", "draw", "concert"]).await;
    assert!(text.contains("no draw"), "{text}");
    let wrong = ["room", "draw", "opera", "--opens-at", "tomorrow"];
    assert_eq!(world.code(&wrong).await, 2);
    world.served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_room_that_is_over_is_deleted() {
    let first = world(&format!("{ROOMS}[rooms.gala]\n")).await;
    first
        .fails(&["room", "delete", "gala"], "is in the configuration")
        .await;
    let World { served, folder, .. } = first;
    served.stop().await;

    // The store still has the room that the configuration no longer names.
    let world = serve(folder, ROOMS).await;
    world.fails(&["room", "delete", "gala"], "close it first").await;
    world.ok(&["room", "close", "gala"]).await;
    let deleted = world.ok(&["room", "delete", "gala", "--why", "it is over"]).await;
    assert_eq!(deleted, "gala is deleted\n");
    for command in ["delete", "show"] {
        assert_eq!(world.code(&["room", command, "gala"]).await, 3, "{command}");
    }
    let audit = world.served.get("/v1/audit").await.to_string();
    assert!(
        audit.contains("room.remove") && audit.contains("it is over"),
        "{audit}"
    );
    world.served.stop().await;
}
