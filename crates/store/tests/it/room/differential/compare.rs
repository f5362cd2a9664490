//! What two stores are compared by: the signals that a call notified at once, and a room without what may differ.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tidegate_core::ids::RoomId;
use tidegate_core::room::command::{RoomView, Signals};
use tidegate_store::room::RoomNotifier;

/// Runs a call; returns the signals that it sent at once.
pub(super) async fn listening<T>(
    signals: Arc<RoomNotifier>,
    room: &RoomId,
    call: impl Future<Output = T>,
) -> (T, Signals) {
    let signal = signals.of(room);
    let mut promote = pin!(signal.promote.notified());
    let mut update = pin!(signal.update.notified());
    promote.as_mut().enable();
    update.as_mut().enable();
    let mut notices = signal.taken_over.subscribe();
    let answer = call.await;
    let signals = poll_fn(|context| {
        Poll::Ready(Signals {
            promote: promote.as_mut().poll(context).is_ready(),
            update: update.as_mut().poll(context).is_ready(),
            taken_over: notices
                .try_recv()
                .map_or_else(|_| Vec::new(), |taken| taken.to_vec()),
        })
    });
    (answer, signals.await)
}

/// A room without what may differ, and with every position.
pub(super) fn comparable(mut view: RoomView) -> (RoomView, u64, Vec<(bool, u64)>) {
    let positions = std::mem::take(&mut view.positions);
    view.incarnation = 0;
    // Every early ticket uses two indices, and a draw may leave some unused.
    let last = 3 * view.counts.joined + 130;
    let step = 1 + last / 600;
    let each = (0..last).step_by(step as usize);
    let each = each.map(|index| (positions.has(index), positions.ahead(index)));
    (view, positions.total(), each.collect())
}
