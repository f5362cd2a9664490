//! Rooms without a stream: join, challenge, draw, passes, and the end of a room.

use std::time::Duration;

use service::{Running, in_time, start};
use tidegate_client::{
    Challenge, JoinRoom, LimitBy, PatchCapacity, RedeemPass, RoomStatus, TicketState, Time,
};
use tidegate_core::ids::RoomId;
use tidegate_server::config::{Config, ProofConfig, RoomSettings};

use crate::service;

fn add(config: &mut Config, name: &str, change: impl FnOnce(&mut RoomSettings)) {
    let mut room = RoomSettings::default();
    change(&mut room);
    config.rooms.insert(RoomId::new(name).unwrap(), room);
}

async fn stop(running: Running) {
    running.service.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_visitor_joins_without_a_stream_and_the_shop_checks_the_pass() {
    let running = start(|config| add(config, "concert", |room| room.capacity.inside = 0)).await;
    let client = &running.client;
    let join = JoinRoom::default();
    let joined = client.join_room("concert", &join, None).await.unwrap();
    assert_eq!(
        (joined.ticket.state, joined.ticket.position),
        (TicketState::Waiting, Some(1))
    );
    let cookie = joined.cookie.unwrap();
    let again = client.join_room("concert", &join, Some(&cookie)).await.unwrap();
    assert_eq!(again.ticket.number, joined.ticket.number);
    assert_eq!(again.cookie.as_ref(), Some(&cookie));

    let one = PatchCapacity {
        inside: Some(LimitBy::Set(Some(1))),
        ..PatchCapacity::default()
    };
    client.resize_room("concert", &one).await.unwrap();
    let granted = async {
        loop {
            let ticket = client.ticket_in_room("concert", &cookie).await.unwrap();
            if let Some(pass) = ticket.pass {
                return pass.token;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let pass = RedeemPass {
        pass: in_time(granted).await,
        session: None,
        duration_ms: None,
    };
    let checked = client.check_pass("concert", &pass).await.unwrap();
    assert_eq!(
        (checked.state, &checked.person),
        (TicketState::Granted, &joined.ticket.person)
    );
    client.redeem_pass("concert", &pass).await.unwrap();
    let checked = client.check_pass("concert", &pass).await.unwrap();
    assert_eq!(checked.state, TicketState::Inside);
    let keys = client.pass_keys().await.unwrap();
    assert_eq!(keys["keys"][0]["alg"], "EdDSA", "{keys}");

    let wave = client.room("concert").await.unwrap().wave;
    assert!(wave > 0);
    let voided = client.void_passes("concert", Some(0), None).await.unwrap().voided;
    assert_eq!(voided, 0);
    let voided = client.void_passes("concert", None, Some("a leak")).await.unwrap();
    assert_eq!(voided.voided, wave);
    stop(running).await;
}

#[tokio::test]
async fn a_visitor_solves_the_challenge_of_a_room() {
    let running = start(|config| {
        add(config, "concert", |room| {
            room.proof = Some(ProofConfig {
                bits: 1,
                ..ProofConfig::default()
            });
        });
        add(config, "theatre", |_| {});
    })
    .await;
    let client = &running.client;
    let none = Challenge {
        challenge: None,
        bits: None,
    };
    assert_eq!(client.room_challenge("theatre").await.unwrap(), none);
    let challenge = client.room_challenge("concert").await.unwrap();
    assert_eq!(challenge.bits, Some(1));
    let text = challenge.challenge.unwrap();
    let refused = client.join_room("concert", &JoinRoom::default(), None).await;
    assert_eq!(refused.unwrap_err().code(), Some("proof_needed"));
    // Half of all nonces solve one bit, and the address may join 30 times.
    let mut nonce = 0;
    loop {
        let join = JoinRoom {
            proof: Some(format!("{text}.{nonce}")),
            ..JoinRoom::default()
        };
        match client.join_room("concert", &join, None).await {
            Ok(joined) => {
                assert!(joined.cookie.is_some());
                break;
            }
            Err(error) => assert_eq!(error.code(), Some("proof_needed"), "{error}"),
        }
        nonce += 1;
    }
    stop(running).await;
}

#[tokio::test]
async fn a_draw_shows_its_seed_after_the_opening() {
    let opening: Time = "2100-01-01T10:00:00Z".parse().unwrap();
    let running = start(|config| {
        add(config, "concert", |room| room.opens_at = Some(opening));
        add(config, "theatre", |_| {});
    })
    .await;
    let client = &running.client;
    let draw = client.room_draw("concert", None).await.unwrap();
    assert_eq!((draw.opens_at, &draw.seed), (Some(opening), &None));
    assert_eq!(draw.commitment.unwrap().len(), 64);
    let past: Time = "2020-01-01T10:00:00Z".parse().unwrap();
    let draw = client.room_draw("concert", Some(past)).await.unwrap();
    assert_eq!(draw.opens_at, Some(past));
    assert_eq!(draw.seed.unwrap().len(), 64);
    let draw = client.room_draw("theatre", None).await.unwrap();
    assert_eq!((draw.opens_at, draw.commitment, draw.seed), (None, None, None));
    stop(running).await;
}

#[tokio::test]
async fn a_room_that_is_over_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let running = start(|config| {
        config.store.data.clone_from(&data);
        add(config, "concert", |_| {});
        add(config, "gala", |_| {});
    })
    .await;
    let refused = running.client.delete_room("concert", None).await.unwrap_err();
    assert_eq!(refused.code(), Some("conflict"), "{refused}");
    stop(running).await;

    // The store still has the room that the configuration no longer names.
    let running = start(|config| {
        config.store.data.clone_from(&data);
        add(config, "concert", |_| {});
    })
    .await;
    let client = &running.client;
    let refused = client.delete_room("gala", None).await.unwrap_err();
    assert_eq!(refused.code(), Some("conflict"), "{refused}");
    let closed = client.close_room("gala", None).await.unwrap();
    assert_eq!(closed.status, RoomStatus::Closed);
    client.delete_room("gala", Some("it is over")).await.unwrap();
    for error in [
        client.delete_room("gala", None).await.unwrap_err(),
        client.room("gala").await.unwrap_err(),
    ] {
        assert_eq!(error.code(), Some("unknown_room"), "{error}");
    }
    let audit = client.audit(None).await.unwrap();
    assert!(
        audit
            .iter()
            .any(|entry| entry.why.as_deref() == Some("it is over")),
        "{audit:?}"
    );
    stop(running).await;
}
