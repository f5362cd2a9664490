//! The address of a visitor: the peer's, or the one that a trusted proxy forwards.
//!
//! Everybody can write headers, so only the end of the forwarded list counts, which the trusted proxies have added. The last
//! address that is not a trusted proxy's is the visitor's.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};

/// The trusted proxies between the visitors and this service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxiesConfig {
    /// Addresses and networks of the trusted proxies, like `10.0.0.0/8` or `2001:db8::7`. Without any the service trusts no
    /// forwarding header.
    pub proxies: Vec<String>,
    /// The header that the proxies add to. The service ignores the other one, because a visitor may have sent it.
    pub header: ProxyHeader,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProxyHeader {
    #[default]
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

/// The networks of the trusted proxies.
#[derive(Debug, Clone, Default)]
pub(crate) struct Proxies {
    networks: Vec<Network>,
    header: ProxyHeader,
}

impl Proxies {
    /// Parses the networks. The error names the one that is not valid, and says what would be right.
    pub(crate) fn new(config: &ProxiesConfig) -> Result<Self, String> {
        let network = |text: &String| {
            Network::of(text).map_err(|problem| {
                format!(
                    "proxies contains {text:?}: {problem}; it must be an address or a network, like \"10.0.0.7\", \
                     \"10.0.0.0/8\" or \"2001:db8::/32\""
                )
            })
        };
        Ok(Self {
            networks: config.proxies.iter().map(network).collect::<Result<_, _>>()?,
            header: config.header,
        })
    }

    fn trust(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.has(address))
    }

    /// The visitor's address. If a header is not valid, it is the peer's: then all visitors of the proxy share its limits.
    pub(crate) fn visitor(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let peer = peer.to_canonical();
        if !self.trust(peer) {
            return peer;
        }
        let (name, read): (_, fn(&str) -> Option<IpAddr>) = match self.header {
            ProxyHeader::XForwardedFor => ("x-forwarded-for", address),
            ProxyHeader::Forwarded => ("forwarded", forwarded),
        };
        let mut last = peer;
        // From the end, and split at every comma, so that the visitor's part cannot change how the end is parsed.
        for line in headers.get_all(name).iter().rev() {
            let Ok(line) = line.to_str() else {
                return peer;
            };
            for entry in line.rsplit(',') {
                let Some(address) = read(entry.trim()) else {
                    return peer;
                };
                if !self.trust(address) {
                    return address;
                }
                last = address;
            }
        }
        // All addresses are trusted: the visitor is behind the first of them.
        last
    }
}

impl Proxies {
    /// Whether a trusted proxy reports that the visitor used TLS. Only the entry of the nearest proxy counts.
    pub(crate) fn report_tls(&self, peer: IpAddr, headers: &HeaderMap) -> bool {
        if !self.trust(peer.to_canonical()) {
            return false;
        }
        let name = match self.header {
            ProxyHeader::XForwardedFor => "x-forwarded-proto",
            ProxyHeader::Forwarded => "forwarded",
        };
        let line = headers.get_all(name).iter().next_back();
        let Some(entry) = line
            .and_then(|line| line.to_str().ok())
            .and_then(|line| line.rsplit(',').next())
        else {
            return false;
        };
        let scheme = match self.header {
            ProxyHeader::XForwardedFor => Some(entry),
            ProxyHeader::Forwarded => entry
                .split(';')
                .filter_map(|pair| pair.split_once('='))
                .find_map(|(name, value)| name.trim().eq_ignore_ascii_case("proto").then_some(value)),
        };
        scheme.is_some_and(|scheme| scheme.trim().trim_matches('"').eq_ignore_ascii_case("https"))
    }
}

#[derive(Debug, Clone, Copy)]
struct Network {
    /// All bits after the prefix are zero.
    base: IpAddr,
    bits: u32,
}

impl Network {
    fn of(text: &str) -> Result<Self, String> {
        let (base, bits) = match text.split_once('/') {
            Some((base, bits)) => (base, Some(bits)),
            None => (text, None),
        };
        let base: IpAddr = base
            .parse()
            .map_err(|_| format!("{base:?} is not an IP address"))?;
        if base != base.to_canonical() {
            return Err("it is an IPv4 address in IPv6 notation: write it as IPv4".into());
        }
        let most = if base.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => {
                let number = bits.parse().ok().filter(|number| *number <= most);
                number.ok_or_else(|| format!("/{bits} is not from /0 to /{most}"))?
            }
        };
        let network = Self { base, bits };
        if network.cut(base) != base {
            let base = network.cut(base);
            return Err(format!(
                "it has bits after the prefix /{bits}: write {base}/{bits}"
            ));
        }
        Ok(network)
    }

    /// The address with zeros after this network's prefix.
    fn cut(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(four) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                std::net::Ipv4Addr::from_bits(four.to_bits() & mask).into()
            }
            IpAddr::V6(six) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                Ipv6Addr::from_bits(six.to_bits() & mask).into()
            }
        }
    }

    fn has(&self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && self.cut(address) == self.base
    }
}

/// Parses an address with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = match text.strip_prefix('[') {
        Some(six) => {
            let (six, port) = six.split_once(']')?;
            let fits = port.is_empty() || is_port(port.strip_prefix(':')?);
            fits.then(|| six.parse::<Ipv6Addr>().ok().map(IpAddr::V6))??
        }
        None => match text.split_once(':') {
            // Several colons are IPv6 without a port.
            Some((four, port)) if is_port(port) => IpAddr::V4(four.parse().ok()?),
            _ => text.parse().ok()?,
        },
    };
    Some(address.to_canonical())
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Parses the address in an entry like `for="[2001:db8::1]:4711";proto=https`.
fn forwarded(entry: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in entry.split(';') {
        let (name, value) = pair.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("for") {
            let value = value.trim();
            let plain = value
                .strip_prefix('"')
                .map_or(Some(value), |rest| rest.strip_suffix('"'))?;
            // An entry with two addresses is not valid.
            if found.replace(address(plain)?).is_some() {
                return None;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn proxies(list: &[&str], header: ProxyHeader) -> Proxies {
        let proxies = list.iter().map(|proxy| (*proxy).to_owned()).collect();
        Proxies::new(&ProxiesConfig { proxies, header }).unwrap()
    }

    fn headers(name: &'static str, lines: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, line.parse().unwrap());
        }
        headers
    }

    #[test]
    fn only_entries_of_trusted_proxies_count() {
        let ours = proxies(&["10.0.0.0/8", "2001:db8::7"], ProxyHeader::XForwardedFor);
        for (peer, lines, visitor) in [
            ("203.0.113.9", &["198.51.100.1"][..], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("2001:db8::7", &["198.51.100.1"], "198.51.100.1"),
            ("2001:db8::8", &["198.51.100.1"], "2001:db8::8"),
            // The visitor forged the first entry, and the proxy added to it.
            ("10.0.0.1", &["1.1.1.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["1.1.1.1", "198.51.100.1, 10.9.9.9"], "198.51.100.1"),
            ("10.0.0.1", &["nonsense, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["::ffff:198.51.100.1"], "198.51.100.1"),
            // If the header is not valid, the address is the peer's.
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1,"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, 10.0.0.2, [::1"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1:99999"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1:"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.256"], "10.0.0.1"),
            ("10.0.0.1", &["\u{e9}"], "10.0.0.1"),
        ] {
            let found = ours.visitor(ip(peer), &headers("x-forwarded-for", lines));
            assert_eq!(found, ip(visitor), "{peer} {lines:?}");
        }
        let none = Proxies::default();
        let found = none.visitor(ip("10.0.0.1"), &headers("x-forwarded-for", &["198.51.100.1"]));
        assert_eq!(found, ip("10.0.0.1"));
    }

    #[test]
    fn the_other_header_is_ignored() {
        let both = |header| {
            let mut both = headers("x-forwarded-for", &["198.51.100.1"]);
            both.append("forwarded", "for=198.51.100.2".parse().unwrap());
            proxies(&["10.0.0.0/8"], header).visitor(ip("10.0.0.1"), &both)
        };
        assert_eq!(both(ProxyHeader::XForwardedFor), ip("198.51.100.1"));
        assert_eq!(both(ProxyHeader::Forwarded), ip("198.51.100.2"));
    }

    #[test]
    fn forwarded_is_parsed_by_its_standard() {
        let ours = proxies(&["10.0.0.0/8"], ProxyHeader::Forwarded);
        for (line, visitor) in [
            ("for=198.51.100.1;proto=https;by=10.0.0.1", "198.51.100.1"),
            ("For=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            ("for=\"198.51.100.1:4711\", for=10.2.2.2", "198.51.100.1"),
            // A visitor's open quote does not hide the proxy's entry.
            ("for=\"1.1.1.1, for=\"198.51.100.1\"", "198.51.100.1"),
            ("for=unknown", "10.0.0.1"),
            ("for=_hidden", "10.0.0.1"),
            ("proto=https", "10.0.0.1"),
            ("for=198.51.100.1;for=198.51.100.2", "10.0.0.1"),
            ("for=\"198.51.100.1", "10.0.0.1"),
            ("for=198.51.100.1;x", "10.0.0.1"),
        ] {
            let found = ours.visitor(ip("10.0.0.1"), &headers("forwarded", &[line]));
            assert_eq!(found, ip(visitor), "{line}");
        }
    }

    #[test]
    fn only_trusted_proxies_report_tls() {
        let ours = proxies(&["10.0.0.0/8"], ProxyHeader::XForwardedFor);
        let standard = proxies(&["10.0.0.0/8"], ProxyHeader::Forwarded);
        for (proxies, name, peer, line, tls) in [
            (&ours, "x-forwarded-proto", "10.0.0.1", "https", true),
            (&ours, "x-forwarded-proto", "10.0.0.1", "http, HTTPS", true),
            // The visitor forged the first entry, and the proxy added to it.
            (&ours, "x-forwarded-proto", "10.0.0.1", "https, http", false),
            (&ours, "x-forwarded-proto", "10.0.0.1", "", false),
            (&ours, "x-forwarded-proto", "198.51.100.1", "https", false),
            (
                &ours,
                "forwarded",
                "10.0.0.1",
                "for=198.51.100.1;proto=https",
                false,
            ),
            (
                &standard,
                "forwarded",
                "10.0.0.1",
                "for=198.51.100.1;Proto=\"https\"",
                true,
            ),
            (
                &standard,
                "forwarded",
                "10.0.0.1",
                "proto=https, for=198.51.100.1",
                false,
            ),
            (&standard, "forwarded", "198.51.100.1", "proto=https", false),
            (&standard, "x-forwarded-proto", "10.0.0.1", "https", false),
        ] {
            let reported = proxies.report_tls(ip(peer), &headers(name, &[line]));
            assert_eq!(reported, tls, "{name}: {line} from {peer}");
        }
        assert!(!Proxies::default().report_tls(ip("10.0.0.1"), &headers("x-forwarded-proto", &["https"])));
    }

    #[test]
    fn networks_are_checked() {
        let everybody = proxies(&["0.0.0.0/0", "::/0"], ProxyHeader::XForwardedFor);
        assert!(everybody.trust(ip("203.0.113.9")) && everybody.trust(ip("2001:db8::1")));
        let four = proxies(&["0.0.0.0/0"], ProxyHeader::XForwardedFor);
        assert!(!four.trust(ip("2001:db8::1")));
        for (odd, problem) in [
            ("", "\"\" is not an IP address"),
            ("proxy.example", "\"proxy.example\" is not an IP address"),
            ("10.0.0.0/33", "/33 is not from /0 to /32"),
            ("10.0.0.0/x", "/x is not from /0 to /32"),
            ("::/129", "/129 is not from /0 to /128"),
            ("10.0.0.7/8", "it has bits after the prefix /8: write 10.0.0.0/8"),
            ("::ffff:10.0.0.0/104", "write it as IPv4"),
        ] {
            let config = ProxiesConfig {
                proxies: vec![odd.into()],
                header: ProxyHeader::default(),
            };
            let error = Proxies::new(&config).unwrap_err();
            assert!(
                error.starts_with(&format!("proxies contains {odd:?}: ")),
                "{error}"
            );
            assert!(error.contains(problem), "{error}");
        }
        let config: ProxiesConfig =
            toml::from_str("proxies = [\"10.0.0.0/8\"]\nheader = \"forwarded\"").unwrap();
        assert_eq!(config.header, ProxyHeader::Forwarded);
        let config: ProxiesConfig = toml::from_str("header = \"x-forwarded-for\"").unwrap();
        assert_eq!(config, ProxiesConfig::default());
    }
}
