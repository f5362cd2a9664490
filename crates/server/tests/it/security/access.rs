//! Keys: their roles, their groups, and requests without a key.

use serde_json::json;

use super::world::{World, is_problem, ok, problem};

#[tokio::test]
async fn without_keys_everybody_may_do_everything() {
    let world = World::open("").await;
    let me = ok(world.request("GET", "/v1/me")).await;
    assert_eq!(
        (&me["name"], &me["keysRequired"]),
        (&json!("anybody"), &json!(false))
    );
    ok(world
        .request("POST", "/v1/groups/A/jobs")
        .json(&json!({"jobs": [{"id": "1", "type": "MAIL"}]})))
    .await;
    ok(world
        .request("POST", "/v1/groups/A/pause")
        .json(&json!({"why": "noise"})))
    .await;
    let entries = world.audit();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        (&entries[0]["who"], &entries[0]["what"]),
        (&json!("anybody"), &json!("group.pause"))
    );
    let me = ok(world.request("POST", "/login").json(&json!({"key": "any"}))).await;
    assert_eq!(me["name"], "anybody");
    world.end().await;
}

#[tokio::test]
async fn a_key_may_do_what_its_roles_say() {
    let world = World::with_keys("").await;
    assert_eq!(world.submit("submitter", "shop-1").await, 200);
    let everybody = ["reader", "submitter", "worker", "ops"];
    let jobs = json!({"jobs": [{"id": "2", "type": "MAIL"}]});
    for (method, path, body, allowed) in [
        ("GET", "/v1/groups", None, ["reader", "ops"]),
        ("GET", "/v1/groups/shop-1", None, ["reader", "ops"]),
        ("GET", "/v1/stats", None, ["reader", "ops"]),
        ("GET", "/metrics", None, ["reader", "ops"]),
        (
            "POST",
            "/v1/groups/shop-1/jobs",
            Some(&jobs),
            ["submitter", "ops"],
        ),
        ("POST", "/v1/leases", Some(&json!({})), ["worker", "ops"]),
        (
            "POST",
            "/v1/groups/shop-1/pause",
            Some(&json!({})),
            ["ops", "ops"],
        ),
        ("GET", "/v1/audit", None, ["ops", "ops"]),
    ] {
        for name in everybody {
            let mut request = world.by(name, method, path);
            if let Some(body) = body {
                request = request.json(body);
            }
            if allowed.contains(&name) {
                ok(request).await;
            } else {
                let detail = problem(request, 403, "forbidden").await;
                assert!(
                    detail.contains(&format!("key {name:?} does not have the role")),
                    "{detail}"
                );
            }
        }
    }
    let me = ok(world.by("reader", "GET", "/v1/me")).await;
    assert_eq!(
        me,
        json!({"name": "reader", "roles": ["READ"], "groups": [], "keysRequired": true})
    );
    world.end().await;
}

#[tokio::test]
async fn a_key_for_some_groups_has_access_to_those_only() {
    let world = World::with_keys("").await;
    assert_eq!(world.submit("shop", "shop-1").await, 200);
    assert_eq!(world.submit("ops", "bank").await, 200);
    let groups = ok(world.by("shop", "GET", "/v1/groups")).await;
    let names: Vec<_> = groups["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["id"])
        .collect();
    assert_eq!(names, ["shop-1"]);
    ok(world.by("shop", "POST", "/v1/groups/shop-1/pause")).await;
    for (method, path) in [
        ("GET", "/v1/groups/bank"),
        ("POST", "/v1/groups/bank/pause"),
        ("POST", "/v1/groups/bank/jobs"),
        ("GET", "/v1/groups/bank/jobs/1"),
        ("GET", "/v1/stats"),
        ("GET", "/v1/audit"),
        ("GET", "/metrics"),
        ("PATCH", "/v1/limits"),
    ] {
        problem(world.by("shop", method, path), 403, "forbidden").await;
    }
    let foreign = json!({"jobs": [{"group": "bank", "id": "9", "type": "MAIL"}, {"group": "shop-1", "id": "9", "type": "MAIL"}]});
    let done = ok(world.by("shop", "POST", "/v1/jobs").json(&foreign)).await;
    assert_eq!(
        (&done["accepted"], &done["errors"][0]["code"]),
        (&json!(1), &json!("forbidden"))
    );
    world.end().await;
}

#[tokio::test]
async fn without_a_key_only_public_paths_are_served() {
    let world = World::with_keys("").await;
    for path in ["/healthz", "/readyz", "/", "/docs", "/login"] {
        ok(world.request("GET", path)).await;
    }
    for path in [
        "/v1/me",
        "/v1/groups",
        "/metrics",
        "/openapi.json",
        "/v1/nothing",
        "/nothing",
    ] {
        let response = world.request("GET", path).send().await.unwrap();
        assert_eq!(
            response.headers()["www-authenticate"],
            "Bearer realm=\"tidegate\""
        );
        let detail = is_problem(response, 401, "unauthorized").await;
        assert!(detail.contains("Authorization: Bearer"), "{detail}");
    }
    let key = &world.keys["reader"];
    for wrong in [
        world.request("GET", "/v1/me").bearer_auth("tg_wrong"),
        world.request("GET", "/v1/me").bearer_auth(""),
        world.request("GET", "/v1/me").bearer_auth(format!("{key}x")),
        world.request("GET", "/v1/me").basic_auth("reader", Some(key)),
        world.request("GET", "/v1/me").header("authorization", key),
        world.request("GET", "/v1/me").header("x-api-key", "tg_wrong"),
        world
            .request("GET", "/v1/me")
            .header("cookie", format!("tidegate_session={key}")),
    ] {
        problem(wrong, 401, "unauthorized").await;
    }
    ok(world.request("GET", "/v1/me").header("x-api-key", key)).await;
    ok(world
        .request("GET", "/v1/me")
        .header("authorization", format!("bearer {key}")))
    .await;
    world.end().await;
}

#[tokio::test]
async fn an_unknown_path_or_method_is_a_problem() {
    let world = World::open("").await;
    let detail = problem(world.request("GET", "/v1/nothing"), 404, "not_found").await;
    assert!(detail.contains("GET /v1/nothing"), "{detail}");
    problem(world.request("GET", "/../etc/passwd"), 404, "not_found").await;
    problem(
        world.request("GET", "/assets/..%2f..%2fCargo.toml"),
        404,
        "not_found",
    )
    .await;
    let detail = problem(world.request("DELETE", "/v1/groups"), 405, "method_not_allowed").await;
    assert!(detail.contains("does not support DELETE"), "{detail}");
    problem(world.request("GET", "/logout"), 405, "method_not_allowed").await;
    world.end().await;
}
