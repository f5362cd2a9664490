//! What two stores are compared by: the bells that a call rang at once, and a room without what may differ.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use tidegate_core::ids::RoomId;
use tidegate_core::room::command::{Rings, RoomView};
use tidegate_store::room::RoomBells;

/// Runs a call and says which bells it rang at once.
pub(super) async fn listening<T>(
    bells: Arc<RoomBells>,
    room: &RoomId,
    call: impl Future<Output = T>,
) -> (T, Rings) {
    let bell = bells.of(room);
    let mut promote = pin!(bell.promote.notified());
    let mut tell = pin!(bell.tell.notified());
    promote.as_mut().enable();
    tell.as_mut().enable();
    let mut notices = bell.taken_over.subscribe();
    let answer = call.await;
    let rings = poll_fn(|context| {
        Poll::Ready(Rings {
            promote: promote.as_mut().poll(context).is_ready(),
            tell: tell.as_mut().poll(context).is_ready(),
            taken_over: notices
                .try_recv()
                .map_or_else(|_| Vec::new(), |taken| taken.to_vec()),
        })
    });
    (answer, rings.await)
}

/// A room without what may differ, and with every position.
pub(super) fn comparable(mut view: RoomView) -> (RoomView, u64, Vec<(bool, u64)>) {
    let places = std::mem::take(&mut view.places);
    view.born = 0;
    // Every early one uses two places, and a draw may leave some empty.
    let last = 3 * view.counts.joined + 130;
    let step = 1 + last / 600;
    let each = (0..last).step_by(step as usize);
    let each = each.map(|place| (places.has(place), places.ahead(place)));
    (view, places.total(), each.collect())
}
