//! The unit in which join limits count addresses.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// What counts as one address: an IPv4 address, or the first 64 bits of an IPv6 address. One user can choose freely
/// among the rest of those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressBlock(IpAddr);

impl AddressBlock {
    /// The block of an address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(six) => Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into(),
            four => four,
        })
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(four) => four.fmt(f),
            IpAddr::V6(six) => write!(f, "{six}/64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_of_ipv6_is_one_block() {
        let block = |text: &str| AddressBlock::of(text.parse().unwrap());
        assert_eq!(block("2001:db8:1:2::1"), block("2001:db8:1:2:ffff::9"));
        assert_ne!(block("2001:db8:1:2::1"), block("2001:db8:1:3::1"));
        assert_eq!(block("::ffff:198.51.100.1"), block("198.51.100.1"));
        assert_ne!(block("198.51.100.1"), block("198.51.100.2"));
        assert_eq!(block("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
        assert_eq!(block("198.51.100.1").to_string(), "198.51.100.1");
    }
}
