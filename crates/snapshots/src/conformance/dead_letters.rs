//! Marks of dead letters.

use super::harness::*;
use crate::*;

fn position(partition: u32, offset: u64) -> DeadLetterPosition {
    DeadLetterPosition { partition, offset }
}

fn mark(partition: u32, offset: u64, how: Handled) -> DeadLetterMark {
    DeadLetterMark {
        position: position(partition, offset),
        how,
        at: T0,
        by: "operator".to_owned(),
    }
}

pub async fn a_mark_is_found_again(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let marks = [mark(0, 7, Handled::Replayed), mark(3, 8, Handled::Purged)];
    assert_eq!(h.snapshots.mark_handled(&marks).await.expect("marked"), 2);
    let found = h
        .snapshots
        .handled(&[position(3, 8), position(0, 8), position(0, 7)])
        .await
        .expect("marks");
    assert_eq!(found, [Some(marks[1].clone()), None, Some(marks[0].clone())]);
}

pub async fn the_first_mark_stays(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let first = mark(0, 7, Handled::Replayed);
    assert_eq!(
        h.snapshots
            .mark_handled(&[first.clone(), mark(0, 7, Handled::Purged)])
            .await
            .expect("marked"),
        1
    );
    assert_eq!(
        h.snapshots
            .mark_handled(&[mark(0, 7, Handled::Purged)])
            .await
            .expect("marked"),
        0
    );
    let found = h.snapshots.handled(&[position(0, 7)]).await.expect("marks");
    assert_eq!(found, [Some(first)]);
}

pub async fn marks_are_per_partition(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let marks: Vec<_> = (0..12)
        .map(|partition| mark(partition, 1, Handled::Purged))
        .collect();
    h.snapshots.mark_handled(&marks[..6]).await.expect("marked");
    let positions: Vec<_> = marks.iter().map(|mark| mark.position).collect();
    let found = h.snapshots.handled(&positions).await.expect("marks");
    assert!(found[..6].iter().all(Option::is_some));
    assert!(found[6..].iter().all(Option::is_none));
}

pub async fn marks_below_the_log_are_forgotten(backend: &dyn Backend) {
    let h = Harness::new(backend).await;
    let marks: Vec<_> = (0..10).map(|offset| mark(1, offset, Handled::Purged)).collect();
    h.snapshots.mark_handled(&marks).await.expect("marked");
    h.snapshots
        .mark_handled(&[mark(2, 0, Handled::Purged)])
        .await
        .expect("marked");
    assert_eq!(h.snapshots.forget_handled(1, 7, 4).await.expect("forgotten"), 4);
    assert_eq!(h.snapshots.forget_handled(1, 7, 100).await.expect("forgotten"), 3);
    assert_eq!(h.snapshots.forget_handled(1, 7, 100).await.expect("forgotten"), 0);
    let positions: Vec<_> = marks
        .iter()
        .map(|mark| mark.position)
        .chain([position(2, 0)])
        .collect();
    let found = h.snapshots.handled(&positions).await.expect("marks");
    let left: Vec<_> = found.into_iter().flatten().map(|mark| mark.position).collect();
    assert_eq!(
        left,
        [position(1, 7), position(1, 8), position(1, 9), position(2, 0)]
    );
}
