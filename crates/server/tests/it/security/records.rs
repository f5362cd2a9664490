//! The audit log has every command, and no output contains secrets.

use serde_json::json;

use super::world::{World, logged, ok, problem};

#[tokio::test]
async fn the_audit_log_has_every_command_and_its_caller() {
    let world = World::with_keys("").await;
    assert_eq!(world.submit("submitter", "shop-1").await, 200);
    ok(world
        .by("shop", "POST", "/v1/groups/shop-1/pause")
        .json(&json!({"why": "too loud"})))
    .await;
    problem(
        world.by("reader", "POST", "/v1/groups/shop-1/resume"),
        403,
        "forbidden",
    )
    .await;
    ok(world
        .by("ops", "PATCH", "/v1/groups/shop-1")
        .json(&json!({"weight": 2.0, "why": "paid"})))
    .await;
    ok(world
        .request("POST", "/login")
        .json(&json!({"key": world.keys["ops"]})))
    .await;
    let entries = world.audit();
    let commands: Vec<_> = entries
        .iter()
        .map(|entry| (entry["who"].as_str().unwrap(), entry["what"].as_str().unwrap()))
        .collect();
    assert_eq!(
        commands,
        [("shop", "group.pause"), ("ops", "group.patch"), ("ops", "login")]
    );
    assert_eq!(
        (&entries[0]["on"], &entries[0]["why"]),
        (&json!("shop-1"), &json!("too loud"))
    );
    assert_eq!(entries[1]["detail"]["weight"], 2.0);
    assert!(entries[0]["at"].as_str().unwrap().ends_with('Z'));
    let shown = ok(world.by("ops", "GET", "/v1/audit?limit=2")).await;
    assert_eq!(shown["items"], json!([entries[2], entries[1]]));
    // A command that the store refuses stays in the log, with the reason.
    problem(
        world.by("ops", "POST", "/v1/groups/nobody/pause"),
        404,
        "unknown_group",
    )
    .await;
    let entries = world.audit();
    assert_eq!(entries.len(), 5);
    assert_eq!(entries[3]["refused"], json!(null));
    let refused = entries[4]["refused"].as_str().unwrap();
    assert!(refused.starts_with("unknown_group: "), "{refused}");
    world.end().await;
}

#[tokio::test]
async fn a_command_that_cannot_be_audited_does_not_run() {
    let world = World::open("[audit]\nfile = \"/dev/full\"").await;
    let job = json!({"jobs": [{"id": "1", "type": "MAIL"}]});
    ok(world.request("POST", "/v1/groups/A/jobs").json(&job)).await;
    let detail = problem(
        world.request("POST", "/v1/groups/A/pause"),
        503,
        "audit_unavailable",
    )
    .await;
    assert!(detail.contains("nothing was done"), "{detail}");
    assert_eq!(ok(world.request("GET", "/v1/groups/A")).await["paused"], false);
    world.end().await;
}

#[tokio::test]
async fn no_output_contains_secrets() {
    let secrets = [
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "Bearer-of-the-target",
        "hunter2-of-redis",
    ];
    let settings = format!(
        "[targets.mail]\nurl = \"http://127.0.0.1:9/\"\ntypes = [\"MAIL\"]\nsecret = \"{}\"\nheaders = {{ authorization = \"{}\" }}\n\
         [callbacks.done]\nurl = \"http://127.0.0.1:9/\"\nsecret = \"{}\"\n[redis]\npassword = \"{}\"\nurls = [\"redis://:{}@host\"]",
        secrets[0], secrets[1], secrets[0], secrets[2], secrets[2]
    );
    let world = World::with_keys(&settings).await;
    let mut seen = String::new();
    assert_eq!(world.submit("ops", "A").await, 200);
    let login = world
        .request("POST", "/login")
        .json(&json!({"key": world.keys["ops"]}));
    let response = login.send().await.unwrap();
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    let session = cookie.split(['=', ';']).nth(1).unwrap().to_owned();
    let csrf = response.json::<serde_json::Value>().await.unwrap()["csrf"]
        .as_str()
        .unwrap()
        .to_owned();
    for wrong in [
        json!({"key": format!("{}x", world.keys["reader"])}),
        json!({"kye": world.keys["reader"]}),
    ] {
        seen += &world
            .request("POST", "/login")
            .json(&wrong)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
    }
    ok(world
        .by("ops", "POST", "/v1/groups/A/pause")
        .json(&json!({"why": "test"})))
    .await;
    for path in [
        "/v1/me",
        "/v1/stats",
        "/v1/history",
        "/v1/groups",
        "/v1/groups/A",
        "/v1/targets",
        "/v1/audit",
        "/v1/limits",
        "/metrics",
        "/openapi.json",
        "/",
    ] {
        seen += &world
            .by("ops", "GET", path)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
    }
    let config: tidegate_server::config::Config = toml::from_str(&settings).unwrap();
    seen += &format!("{config:?}");
    seen += &config.shown().to_string();
    seen += &serde_json::to_string(&config).unwrap();
    assert!(seen.contains("***"), "secrets are hidden, not left out");
    seen += &std::fs::read_to_string(world.folder.path().join("data/audit.jsonl")).unwrap();
    world
        .keys
        .values()
        .chain([&session, &csrf])
        .map(String::as_str)
        .chain(secrets)
        .for_each(|secret| {
            assert!(!seen.contains(secret), "{secret} is in a response");
        });
    let keys = world.keys.clone();
    world.end().await;
    let logged = logged();
    assert!(logged.contains("group.pause"), "the log was captured");
    keys.values()
        .chain([&session, &csrf])
        .map(String::as_str)
        .chain(secrets)
        .for_each(|secret| {
            assert!(!logged.contains(secret), "{secret} is logged");
        });
}
