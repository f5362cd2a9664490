//! Signals reach every listener when there is something to do. A subscription takes effect with a delay, so a
//! signal may be missed at first, and every case retries until its deadline.

use std::time::Duration;

use tidegate_core::room::command::Control;
use tokio::time::timeout;

use super::harness::*;

/// How long a case waits for a signal, in all and after one attempt.
const TRIES: usize = 40;
const TRY: Duration = Duration::from_millis(500);

/// Runs an action, which gets the number of the attempt, until one of the room's signals fires after it.
macro_rules! signals {
    ($h:ident, $signal:ident, $number:ident => $act:block) => {
        let signal = $h.store.signals().of(&$h.room);
        let mut heard = false;
        for $number in 0..TRIES {
            let mut rung = std::pin::pin!(signal.$signal.notified());
            rung.as_mut().enable();
            $act
            heard = timeout(TRY, rung).await.is_ok();
            if heard {
                break;
            }
        }
        assert!(heard, "the signal does not notify");
    };
}

pub async fn a_place_in_a_room_with_room_signals_for_promotion(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1_000, 10).await;
    signals!(h, promote, number => {
        h.join(&format!("p{number}")).await;
    });
}

pub async fn an_end_of_a_visit_signals_for_promotion(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 1_000).await;
    h.join_all(&crowd(TRIES + 1)).await;
    h.let_in().await;
    signals!(h, promote, number => {
        h.leave(&format!("p{number}")).await;
        h.let_in().await;
    });
    let h = Harness::new(backend, None, 1, 1_000).await;
    h.join_all(&crowd(TRIES + 1)).await;
    h.let_in().await;
    signals!(h, promote, number => {
        h.complete(&format!("p{number}")).await;
        h.let_in().await;
    });
}

pub async fn a_slot_that_time_gives_back_signals_for_promotion(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1, 1_000).await;
    let mut rung_by_the_sweep = false;
    let signal = h.store.signals().of(&h.room);
    for number in 0..TRIES {
        h.join(&format!("p{number}")).await;
        assert_eq!(h.let_in().await.len(), 1);
        let mut rung = std::pin::pin!(signal.promote.notified());
        rung.as_mut().enable();
        h.advance(PASS);
        assert_eq!(h.reap().await.no_shows, 1);
        rung_by_the_sweep = timeout(TRY, rung).await.is_ok();
        if rung_by_the_sweep {
            break;
        }
    }
    assert!(rung_by_the_sweep, "the signal does not notify");
}

pub async fn a_promotion_signals_for_those_who_wait(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1_000, 1_000).await;
    h.join_all(&crowd(TRIES)).await;
    signals!(h, update, _number => {
        assert_eq!(h.promote(1).await.granted.len(), 1);
    });
}

pub async fn a_status_change_signals_an_update(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 1_000, 1_000).await;
    signals!(h, update, number => {
        let control = match number % 2 {
            0 => Control::Pause,
            _ => Control::Resume,
        };
        h.control(control).await;
    });
    h.control(Control::Resume).await;
    signals!(h, update, number => {
        h.resized(&inside_by(number as u64, 1)).await;
    });
    signals!(h, promote, number => {
        h.resized(&inside_by(1_000 + number as u64, 1)).await;
    });
}

/// The second device may be connected to another process: the first one learns of it before its next heartbeat.
pub async fn a_newer_stream_signals_the_processes_with_an_older_one(backend: &dyn Backend) {
    let h = Harness::new(backend, None, 0, 1_000).await;
    let mut notices = h.store.signals().of(&h.room).taken_over.subscribe();
    // People who join, and people who return after their connection was gone, supersede nobody.
    let gone = h.join("gone").await.ticket.stream;
    h.touch("gone", gone, false).await;
    h.join("gone").await;
    for _ in 0..TRIES {
        h.join("here").await;
        let by = h.join("here").await.ticket.stream;
        if let Ok(heard) = timeout(TRY, notices.recv()).await {
            let heard = heard.expect("a signal lasts as long as its store");
            let people: Vec<_> = heard.iter().map(|taken| taken.person.as_str()).collect();
            assert_eq!(people, ["here"]);
            assert!(heard[0].by > gone && heard[0].by <= by, "{heard:?}, not {by:?}");
            return;
        }
    }
    panic!("nobody hears of it");
}
