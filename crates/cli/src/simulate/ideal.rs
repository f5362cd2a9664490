//! The ideal: jobs as a fluid, shared max-min fairly, with nothing lost to windows or rounds.

use tidegate_core::time::Millis;

use super::Customer;

/// Fewer jobs than this are none: floating-point arithmetic leaves a residue.
const NONE: f64 = 1e-6;

/// Seconds after which each customer is done at `rate` jobs per second, or has left. All waiting customers get the
/// same share. A customer that is done leaves its share to the rest.
pub(crate) fn finish_seconds(customers: &[Customer], rate: f64) -> Vec<f64> {
    let mut left: Vec<f64> = customers.iter().map(|customer| customer.jobs as f64).collect();
    let mut finished = vec![0.0; customers.len()];
    let mut now = 0.0;
    loop {
        let waits = |i: usize| seconds(customers[i].joins) <= now && left[i] > NONE;
        let waiting: Vec<usize> = (0..customers.len()).filter(|&i| waits(i)).collect();
        let share = rate / waiting.len() as f64;
        let comings_and_goings = customers.iter().zip(&left).flat_map(|(customer, &left)| {
            let times = [Some(customer.joins), customer.leaves];
            times.into_iter().flatten().filter(move |_| left > NONE)
        });
        let Some(next) = comings_and_goings
            .map(seconds)
            .filter(|&at| at > now)
            .chain(waiting.iter().map(|&i| now + left[i] / share))
            .min_by(f64::total_cmp)
        else {
            return finished.into_iter().map(to_millisecond).collect();
        };
        for &i in &waiting {
            left[i] -= (next - now) * share;
            if customers[i].leaves.is_some_and(|at| seconds(at) <= next) {
                left[i] = 0.0;
            }
            if left[i] <= NONE {
                finished[i] = next;
            }
        }
        now = next;
    }
}

fn seconds(span: Millis) -> f64 {
    span.as_secs_f64()
}

/// Reports are in whole milliseconds.
fn to_millisecond(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_does_not_need_goes_to_the_rest() {
        let customers = [
            Customer::new("A", 100_000),
            Customer::new("B", 100),
            Customer::new("C", 50),
        ];
        assert_eq!(finish_seconds(&customers, 1_000.0), [100.15, 0.25, 0.15]);
    }

    #[test]
    fn a_gap_before_a_late_customer_is_waited_out() {
        let late = Customer {
            joins: Millis(60_000),
            ..Customer::new("B", 10)
        };
        assert_eq!(finish_seconds(&[Customer::new("A", 10), late], 1.0), [10.0, 70.0]);
    }

    #[test]
    fn who_leaves_takes_its_remaining_jobs_along() {
        let leaver = Customer {
            leaves: Some(Millis(4_000)),
            ..Customer::new("B", 1_000)
        };
        assert_eq!(finish_seconds(&[Customer::new("A", 10), leaver], 2.0), [7.0, 4.0]);
    }
}
