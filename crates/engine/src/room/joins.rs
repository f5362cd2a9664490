//! Join limits: new tickets per address, all joins per person, and lookups of unknown rooms per address. A caller over a
//! limit has to wait.
//!
//! Every process counts for itself, in bounded memory. It stores one time per caller: when the whole allowance is
//! available again (GCRA). It first forgets callers whose allowance is whole. While there are none, newcomers share a
//! few counts. So a flood of made-up addresses neither frees itself nor takes the count of another.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tidegate_core::ids::PersonId;
use tidegate_core::time::{Millis, Timestamp};

use super::address::AddressBlock;

/// Limit: addresses, and people, with their own counts.
const MAX_ENTRIES: usize = 100_000;
/// Counts that the others share; a caller cannot choose which one.
const SHARED: usize = 4_096;
/// Time between two sweeps for callers to forget.
const SWEEP_MS: u64 = 1_000;
const MINUTE_US: u64 = 60_000_000;
/// Limit: the value of a setting.
const MOST: u32 = 1_000_000;

/// How often visitors may join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JoinLimitsConfig {
    /// New tickets of one address (64 bits of IPv6) in a minute. Returning to an existing ticket does not count. The
    /// same limit, counted separately, applies to lookups of unknown rooms at the event service.
    pub per_address: u32,
    /// New tickets of one address at once, and such lookups.
    pub address_burst: u32,
    /// Joins of one person in a minute, first or repeated, in any distribution.
    pub per_person: u32,
}

impl Default for JoinLimitsConfig {
    fn default() -> Self {
        Self {
            per_address: 30,
            address_burst: 30,
            per_person: 20,
        }
    }
}

impl JoinLimitsConfig {
    /// Checks every value.
    pub fn validate(&self) -> Result<(), String> {
        for (name, value) in [
            ("per_address", self.per_address),
            ("address_burst", self.address_burst),
            ("per_person", self.per_person),
        ] {
            if !(1..=MOST).contains(&value) {
                return Err(format!("{name} = {value}: it must be from 1 to {MOST}"));
            }
        }
        Ok(())
    }
}

/// Too many joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many join requests; try again in {} s", .wait.0.div_ceil(1_000))]
pub struct TooMany {
    /// Until the next join is allowed.
    pub wait: Millis,
}

/// The counts of this process.
#[derive(Debug)]
pub struct Joins {
    addresses: Mutex<Counts<AddressBlock>>,
    people: Mutex<Counts<PersonId>>,
    unheard: Mutex<Counts<AddressBlock>>,
}

impl Joins {
    pub fn new(config: &JoinLimitsConfig) -> Self {
        Self::with_room(config, MAX_ENTRIES)
    }

    fn with_room(config: &JoinLimitsConfig, entries: usize) -> Self {
        let addresses = Pace::new(config.per_address, config.address_burst);
        let people = Pace::new(config.per_person, config.per_person);
        Self {
            addresses: Mutex::new(Counts::new(addresses, entries)),
            people: Mutex::new(Counts::new(people, entries)),
            unheard: Mutex::new(Counts::new(addresses, entries)),
        }
    }

    /// Counts a join. `has_ticket`: the person has a ticket that has not ended. Only then does the person alone count;
    /// otherwise the address counts first, so that made-up names use no memory.
    pub fn take(
        &self,
        person: &PersonId,
        from: AddressBlock,
        has_ticket: bool,
        now: Timestamp,
    ) -> Result<(), TooMany> {
        if !has_ticket {
            self.addresses().take(&from, now)?;
        }
        let taken = self.people().take(person, now);
        if taken.is_err() && !has_ticket {
            self.give_back(from, now);
        }
        taken
    }

    /// No new ticket was issued: there was one already, or the room rejected the join. Refunds the address.
    pub fn give_back(&self, from: AddressBlock, now: Timestamp) {
        self.addresses().give_back(&from, now);
    }

    /// Counts a lookup of an unknown room at the event service. Each made-up name costs a call, and one address must not
    /// use up all of them.
    pub fn take_unheard(&self, from: AddressBlock, now: Timestamp) -> Result<(), TooMany> {
        self.unheard().take(&from, now)
    }

    /// The room existed: refunds the address.
    pub fn give_back_unheard(&self, from: AddressBlock, now: Timestamp) {
        self.unheard().give_back(&from, now);
    }

    fn unheard(&self) -> MutexGuard<'_, Counts<AddressBlock>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn addresses(&self) -> MutexGuard<'_, Counts<AddressBlock>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn people(&self) -> MutexGuard<'_, Counts<PersonId>> {
        self.people.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// In microseconds, so that a million in a minute still differ.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Time between two.
    every: u64,
    /// How far ahead of its pace a caller may be.
    ahead: u64,
}

impl Pace {
    fn new(per_minute: u32, burst: u32) -> Self {
        let every = (MINUTE_US / u64::from(per_minute.max(1))).max(1);
        Self {
            every,
            ahead: every * u64::from(burst.max(1) - 1),
        }
    }

    /// Takes one. `due` is when the whole allowance is available again; a rejection changes nothing.
    fn take(self, due: &mut u64, now: u64) -> Result<(), TooMany> {
        let from = (*due).max(now);
        let early = from - now;
        if early > self.ahead {
            return Err(TooMany {
                wait: Millis((early - self.ahead).div_ceil(1_000)),
            });
        }
        *due = from.saturating_add(self.every);
        Ok(())
    }
}

struct Counts<K> {
    pace: Pace,
    most: usize,
    due: HashMap<K, u64>,
    shared: Vec<u64>,
    chooses: RandomState,
    /// No caller can be forgotten before.
    next_sweep: u64,
}

impl<K> std::fmt::Debug for Counts<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counts")
            .field("pace", &self.pace)
            .field("entries", &self.due.len())
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone> Counts<K> {
    fn new(pace: Pace, most: usize) -> Self {
        Self {
            pace,
            most,
            due: HashMap::new(),
            shared: vec![0; SHARED],
            chooses: RandomState::new(),
            next_sweep: 0,
        }
    }

    fn take(&mut self, who: &K, now: Timestamp) -> Result<(), TooMany> {
        let now = now.0.saturating_mul(1_000);
        if self.due.len() >= self.most && !self.due.contains_key(who) {
            self.sweep(now);
        }
        let pace = self.pace;
        if let Some(due) = self.due.get_mut(who) {
            return pace.take(due, now);
        }
        let shared = self.shared_by(who);
        if self.due.len() >= self.most {
            return pace.take(&mut self.shared[shared], now);
        }
        // A caller that gets its own count inherits the shared one: moving to another count forgives nothing.
        let mut due = self.shared[shared];
        let taken = pace.take(&mut due, now);
        self.due.insert(who.clone(), due);
        taken
    }

    fn give_back(&mut self, who: &K, now: Timestamp) {
        let now = now.0.saturating_mul(1_000);
        let every = self.pace.every;
        let shared = self.shared_by(who);
        let due = match self.due.entry(who.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) => &mut self.shared[shared],
        };
        // Not below now: a whole allowance does not grow.
        *due = due.saturating_sub(every).max(now.min(*due));
    }

    fn shared_by(&self, who: &K) -> usize {
        (self.chooses.hash_one(who) % SHARED as u64) as usize
    }

    /// Forgets callers whose allowance is whole: a new count would be the same.
    fn sweep(&mut self, now: u64) {
        if now < self.next_sweep {
            return;
        }
        self.due.retain(|_, due| *due > now);
        let first = self.due.values().min().copied().unwrap_or(now);
        self.next_sweep = first.max(now.saturating_add(SWEEP_MS * 1_000));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn address(number: u32) -> AddressBlock {
        AddressBlock::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    fn person(name: impl std::fmt::Display) -> PersonId {
        PersonId::new(name.to_string()).unwrap()
    }

    fn entries(joins: &Joins) -> (usize, usize) {
        (
            joins.addresses.lock().unwrap().due.len(),
            joins.people.lock().unwrap().due.len(),
        )
    }

    /// A new person from this address, another one each time.
    fn newcomer(joins: &Joins, from: AddressBlock, now: Timestamp) -> Result<(), TooMany> {
        joins.addresses().take(&from, now)
    }

    #[test]
    fn a_million_made_up_names_from_one_address_are_sixty() {
        let joins = Joins::new(&JoinLimitsConfig::default());
        let (flood, other) = (address(1), address(2));
        let (mut through, mut others) = (0, 0);
        for number in 0..1_000_000u64 {
            let now = Timestamp(5_000 + number * 60_000 / 1_000_000);
            through += u32::from(joins.take(&person(number), flood, false, now).is_ok());
            if number % 50_000 == 0 {
                others += u32::from(
                    joins
                        .take(&person(format!("other-{number}")), other, false, now)
                        .is_ok(),
                );
            }
        }
        // Thirty at once, and one every two seconds.
        assert_eq!(through, 59);
        assert_eq!(others, 20, "nobody else is affected");
        let (addresses, people) = entries(&joins);
        assert_eq!((addresses, people), (2, 79), "a rejected name uses no memory");
    }

    #[test]
    fn a_refusal_says_how_long_to_wait() {
        let joins = Joins::new(&JoinLimitsConfig::default());
        let now = Timestamp(1_000);
        for _ in 0..30 {
            assert_eq!(newcomer(&joins, address(1), now), Ok(()));
        }
        let refused = newcomer(&joins, address(1), now).unwrap_err();
        assert_eq!(refused.wait, Millis(2_000));
        assert_eq!(refused.to_string(), "too many join requests; try again in 2 s");
        let later = now + Millis(1_999);
        assert_eq!(newcomer(&joins, address(1), later).unwrap_err().wait, Millis(1));
        assert_eq!(newcomer(&joins, address(1), now + refused.wait), Ok(()));
        assert!(newcomer(&joins, address(1), now + refused.wait).is_err());
        joins.give_back(address(1), now + refused.wait);
        assert_eq!(newcomer(&joins, address(1), now + refused.wait), Ok(()));
    }

    #[test]
    fn whoever_comes_back_is_counted_by_name_only() {
        let joins = Joins::new(&JoinLimitsConfig::default());
        let now = Timestamp(0);
        // An office of five hundred behind one address, all with tickets, after a restart.
        let back = |name: &str| joins.take(&person(name), address(1), true, now);
        for number in 0..500 {
            assert_eq!(back(&format!("{number}")), Ok(()));
        }
        for _ in 1..20 {
            assert_eq!(back("0"), Ok(()));
        }
        assert_eq!(back("0").unwrap_err().wait, Millis(3_000));
        assert_eq!(back("1"), Ok(()));
        // The address has its whole allowance, even after a person over its limit asked for a ticket.
        assert!(joins.take(&person("0"), address(1), false, now).is_err());
        let new = (0..100).filter(|_| newcomer(&joins, address(1), now).is_ok());
        assert_eq!(new.count(), 30);
    }

    #[test]
    fn giving_back_does_not_save_up() {
        let joins = Joins::new(&JoinLimitsConfig::default());
        let now = Timestamp(60_000);
        for _ in 0..100 {
            joins.give_back(address(1), now);
            assert_eq!(newcomer(&joins, address(1), now), Ok(()));
            joins.give_back(address(1), now);
        }
        let taken = (0..100).filter(|_| newcomer(&joins, address(1), now).is_ok());
        assert_eq!(taken.count(), 30);
    }

    #[test]
    fn a_flood_of_addresses_neither_fills_the_memory_nor_frees_anybody() {
        let joins = Joins::with_room(&JoinLimitsConfig::default(), 1_000);
        let now = Timestamp(1_000_000);
        let flooder = address(7);
        while newcomer(&joins, flooder, now).is_ok() {}
        for number in 0..100_000 {
            let _ = newcomer(&joins, address(1_000 + number), now);
            assert!(number % 10_000 != 0 || newcomer(&joins, flooder, now).is_err());
        }
        assert_eq!(entries(&joins).0, 1_000);
        assert!(
            newcomer(&joins, flooder, now).is_err(),
            "its count is still there"
        );
        // The others are limited even without their own counts.
        let through =
            (0..1_000_000u32).filter(|number| newcomer(&joins, address(1 << 24 | number), now).is_ok());
        assert!(through.count() <= SHARED * 30);
        // Callers with a whole allowance are forgotten, the flooder is not.
        let later = now + Millis(10_000);
        assert_eq!(
            newcomer(&joins, address(5), later).is_ok(),
            newcomer(&joins, address(5), later).is_ok()
        );
        assert!(entries(&joins).0 < 10);
        let again = (0..30).filter(|_| newcomer(&joins, flooder, later).is_ok());
        assert_eq!(again.count(), 5, "one every two seconds, as if nothing had been");
    }

    #[test]
    fn a_clock_that_goes_back_frees_nobody() {
        let joins = Joins::new(&JoinLimitsConfig::default());
        while newcomer(&joins, address(1), Timestamp(100_000)).is_ok() {}
        let refused = newcomer(&joins, address(1), Timestamp(90_000)).unwrap_err();
        assert_eq!(refused.wait, Millis(12_000));
        assert_eq!(newcomer(&joins, address(2), Timestamp(u64::MAX)), Ok(()));
    }

    #[test]
    fn settings_are_checked() {
        assert_eq!(JoinLimitsConfig::default().validate(), Ok(()));
        let odd = JoinLimitsConfig {
            per_person: 0,
            ..JoinLimitsConfig::default()
        };
        assert_eq!(
            odd.validate().unwrap_err(),
            "per_person = 0: it must be from 1 to 1000000"
        );
    }
}
