//! Limits failed logins per address and minute.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use tidegate_core::time::{Millis, Timestamp};

/// Limit: failed logins of one address in a minute.
pub(super) const MAX_WRONG: u32 = 10;
const MINUTE_MS: u64 = 60_000;
/// Limit: addresses with a count of their own. All others share one.
const MAX_ADDRESSES: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Minute>);

#[derive(Debug, Default)]
struct Minute {
    number: u64,
    wrong: HashMap<IpAddr, u32>,
}

impl Minute {
    /// The count of an address. A new minute clears all counts.
    fn count(&mut self, from: IpAddr, now: Timestamp) -> &mut u32 {
        let number = now.0 / MINUTE_MS;
        if number != self.number {
            *self = Self {
                number,
                wrong: HashMap::new(),
            };
        }
        let full = self.wrong.len() >= MAX_ADDRESSES && !self.wrong.contains_key(&from);
        let key = if full { Ipv6Addr::UNSPECIFIED.into() } else { from };
        self.wrong.entry(key).or_default()
    }
}

impl Attempts {
    /// Takes one of the address's attempts of this minute; returns false if none is left.
    ///
    /// The caller takes it before it checks the key, so that concurrent requests cannot bypass the limit.
    pub(super) fn take(&self, from: IpAddr, now: Timestamp) -> bool {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = minute.count(network(from), now);
        let left = *wrong < MAX_WRONG;
        *wrong += u32::from(left);
        left
    }

    /// How long until the address has attempts again.
    pub(super) fn wait(now: Timestamp) -> Millis {
        Millis(MINUTE_MS - now.0 % MINUTE_MS)
    }

    /// Gives the attempt back: the key was right.
    pub(super) fn give_back(&self, from: IpAddr, now: Timestamp) {
        let mut minute = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = minute.count(network(from), now);
        *wrong = wrong.saturating_sub(1);
    }
}

/// The network that counts as one address. An IPv6 user can choose any address of a /64.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        four => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_ten_failed_logins_a_minute() {
        let attempts = Attempts::default();
        let (one, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let now = Timestamp(60_000_000);
        for _ in 0..5 {
            assert!(attempts.take(one, now));
            attempts.give_back(one, now);
        }
        for _ in 0..MAX_WRONG {
            assert!(attempts.take(one, now));
        }
        assert!(!attempts.take(one, now));
        assert!(!attempts.take("::ffff:10.0.0.1".parse().unwrap(), now));
        assert!(attempts.take(other, now));
        assert!(attempts.take(one, Timestamp(now.0 + MINUTE_MS)));
    }

    #[test]
    fn made_up_addresses_do_not_fill_the_memory() {
        let attempts = Attempts::default();
        let address = |host: u128| IpAddr::from(Ipv6Addr::from_bits(host));
        for host in 0..100 {
            let allowed = attempts.take(address((1 << 64) + host), Timestamp(0));
            assert_eq!(allowed, host < u128::from(MAX_WRONG), "one network");
        }
        for network in 2..12_000 {
            attempts.take(address(network << 64), Timestamp(0));
        }
        assert!(attempts.0.lock().unwrap().wrong.len() <= MAX_ADDRESSES + 1);
        assert!(
            !attempts.take(address(1 << 100), Timestamp(0)),
            "all other addresses share a count"
        );
    }
}
