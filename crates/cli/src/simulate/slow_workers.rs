//! `simulate fairness --scenario slow-workers`: how long a newcomer waits behind jobs that are already ready.
//!
//! Ten slots run 100 jobs per second, one slot every 10 ms, while the rate limit allows 10,000. Jobs admitted before
//! the newcomer start before it, so READY must stay short. The model refills READY after every pick: that is the
//! worst moment to arrive.

use std::collections::VecDeque;
use std::io::Write;

use serde::Serialize;
use tidegate_core::bulk::LeaseRef;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::time::{Millis, Timestamp};

use super::queue::Queue;
use super::report::write_json_lines;
use super::{Customer, never_over, ticks};

const LARGE: Customer = Customer::new("A", 100_000);
const SMALL: Customer = Customer {
    joins: Millis::from_secs(5),
    ..Customer::new("B", 100)
};
const GROUPS: u64 = 2;
/// One slot becomes free in each step: 100 jobs per second.
const PACE: Millis = Millis(10);

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    policy: &'static str,
    worker_slots: u64,
    groups: u64,
    /// Starts of other jobs between the newcomer's arrival and its first start.
    picks_before_first_start: u64,
    /// What may be READY, and one turn of each group.
    bound: u64,
}

pub(super) fn run(json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let row = simulate()?;
    if json {
        return write_json_lines(&[row], out);
    }
    writeln!(
        out,
        "A has 100,000 jobs on {slots} slots that do 100 per second. After 5 s B submits.\n\
         B's first job starts after {picks} picks ({ms} ms); the bound is \
         2 × {slots} slots + {groups} groups = {bound}.",
        slots = row.worker_slots,
        picks = row.picks_before_first_start,
        ms = row.picks_before_first_start * PACE.0,
        groups = row.groups,
        bound = row.bound,
    )?;
    Ok(())
}

fn simulate() -> anyhow::Result<Row> {
    let config = BulkConfig::default();
    let slots = u64::from(config.worker_pool.worker_count);
    let mut queue = Queue::new(config)?;
    let mut running: VecDeque<LeaseRef> = VecDeque::new();
    let mut picks = 0;
    queue.enqueue(LARGE.name, LARGE.jobs, Timestamp(0))?;
    for elapsed in ticks(PACE) {
        let now = Timestamp(0) + elapsed;
        if elapsed == SMALL.joins {
            queue.enqueue(SMALL.name, SMALL.jobs, now)?;
        }
        // With one start per tick and as many ticks per run as there are slots, the slot that becomes free
        // is that of the oldest lease.
        if running.len() as u64 == slots {
            queue.settle_done(running.pop_front(), now);
        }
        for job in queue.lease(1, now).jobs {
            if job.group.as_str() == SMALL.name {
                return Ok(Row {
                    policy: "fair",
                    worker_slots: slots,
                    groups: GROUPS,
                    picks_before_first_start: picks,
                    bound: 2 * slots + GROUPS,
                });
            }
            picks += u64::from(elapsed >= SMALL.joins);
            running.push_back(job.lease);
        }
        queue.admit(now);
    }
    never_over()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newcomer_waits_for_no_more_than_what_may_be_ready() {
        let row = simulate().unwrap();
        assert!(row.picks_before_first_start <= row.bound, "{row:?}");
    }

    #[test]
    fn ready_was_full_when_the_newcomer_came() {
        let row = simulate().unwrap();
        assert!(row.picks_before_first_start >= 2 * row.worker_slots, "{row:?}");
    }
}
