//! Decides which addresses text of another program may lead to: the rules for all documents, tokens
//! and notifications.
//!
//! A URL is judged twice. [`Reach::admits_host`] judges its host after parsing, since a literal
//! address passes no resolver. [`Reach::admits`] judges each address that a name resolves to, and
//! only a judged address may be connected to.
//!
//! Source: the special-purpose address registries of IANA (RFC 6890 and later), RFC 6052 for NAT64.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// The range of addresses that a connection may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// Addresses of the public internet.
    Public,
    /// Addresses of the public internet and of private networks: for an origin that the operator
    /// wrote down.
    Private,
    /// This machine only.
    Loopback,
}

/// The kind of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressKind {
    Public,
    /// RFC 1918, shared address space (RFC 6598), unique local (RFC 4193).
    Private,
    Loopback,
    /// Link-local, multicast, reserved, documentation, tunnels: never connected to.
    Other,
}

impl Reach {
    /// Reports whether this address may be connected to.
    pub fn admits(self, address: IpAddr) -> bool {
        match kind(address) {
            AddressKind::Public => self != Self::Loopback,
            AddressKind::Private => self == Self::Private,
            AddressKind::Loopback => self == Self::Loopback,
            AddressKind::Other => false,
        }
    }

    /// Reports whether a connection to a URL's host may be tried: a literal address is judged here,
    /// a name after it is resolved.
    pub fn admits_host(self, url: &Url) -> bool {
        match literal(url) {
            Some(address) => self.admits(address),
            None => url.host_str().is_some_and(|host| !host.is_empty()),
        }
    }
}

/// Returns the address in a URL's host if the host is a literal. The URL parser has normalised
/// decimal, octal and hexadecimal spellings.
pub fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(IpAddr::V4(address)),
        Host::Ipv6(address) => Some(IpAddr::V6(address)),
        Host::Domain(_) => None,
    }
}

/// Reports whether a URL names this machine: a loopback address or `localhost` (RFC 6761, 6.3).
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => {
            let name = name.strip_suffix('.').unwrap_or(name);
            name == "localhost" || name.ends_with(".localhost")
        }
        None => false,
    }
}

fn kind(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    }
}

/// Returns the kind of an IPv4 address.
fn v4(address: Ipv4Addr) -> AddressKind {
    match address.octets() {
        [127, ..] => AddressKind::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => AddressKind::Private,
        [0, ..] | [169, 254, ..] | [192, 0, 0 | 2, _] | [192, 88, 99, _] => AddressKind::Other,
        [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] | [224..=255, ..] => AddressKind::Other,
        _ => AddressKind::Public,
    }
}

/// Returns the kind of an IPv6 address.
fn v6(address: Ipv6Addr) -> AddressKind {
    let [first, second, third, fourth, fifth, sixth, ..] = address.segments();
    match first {
        _ if address.is_loopback() => AddressKind::Loopback,
        // NAT64 leads to the IPv4 address inside: networks without IPv4 reach public ones this way.
        0x64 if [second, third, fourth, fifth, sixth] == [0xff9b, 0, 0, 0, 0] => {
            let [.., a, b, c, d] = address.octets();
            if v4(Ipv4Addr::new(a, b, c, d)) == AddressKind::Public { AddressKind::Public } else { AddressKind::Other }
        }
        0xfc00..=0xfdff => AddressKind::Private,
        // Protocol assignments (Teredo, ORCHID, benchmarks), documentation, 6to4.
        0x2001 if second < 0x200 || second == 0xdb8 => AddressKind::Other,
        0x2002 => AddressKind::Other,
        0x3fff if second < 0x1000 => AddressKind::Other,
        0x2000..=0x3fff => AddressKind::Public,
        // Unspecified, IPv4-mapped, discard, link-local, site-local, multicast, and everything that
        // is not assigned.
        _ => AddressKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_address_is_reached_as_far_as_it_may_be() {
        let all = [Reach::Public, Reach::Private, Reach::Loopback];
        for (text, want) in [
            ("1.1.1.1", [true, true, false]),
            ("2606:4700::1111", [true, true, false]),
            ("64:ff9b::101:101", [true, true, false]),
            ("10.0.0.1", [false, true, false]),
            ("172.16.0.1", [false, true, false]),
            ("172.32.0.1", [true, true, false]),
            ("192.168.1.1", [false, true, false]),
            ("100.64.0.1", [false, true, false]),
            ("fd00::1", [false, true, false]),
            ("127.0.0.1", [false, false, true]),
            ("127.8.9.10", [false, false, true]),
            ("::1", [false, false, true]),
            ("0.0.0.0", [false; 3]),
            ("0.1.2.3", [false; 3]),
            ("169.254.169.254", [false; 3]),
            ("192.0.2.1", [false; 3]),
            ("198.18.0.1", [false; 3]),
            ("224.0.0.1", [false; 3]),
            ("255.255.255.255", [false; 3]),
            ("::", [false; 3]),
            ("fe80::1", [false; 3]),
            ("fec0::1", [false; 3]),
            ("ff02::1", [false; 3]),
            ("::ffff:127.0.0.1", [false; 3]),
            ("::ffff:169.254.169.254", [false; 3]),
            ("::ffff:1.1.1.1", [false; 3]),
            ("::127.0.0.1", [false; 3]),
            ("64:ff9b::a9fe:a9fe", [false; 3]),
            ("64:ff9b::7f00:1", [false; 3]),
            ("64:ff9b::a00:1", [false; 3]),
            ("64:ff9b:1::1", [false; 3]),
            ("2001::1", [false; 3]),
            ("2001:db8::1", [false; 3]),
            ("2002:7f00:1::", [false; 3]),
            ("100::1", [false; 3]),
        ] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(all.map(|reach| reach.admits(address)), want, "{text}");
        }
    }

    #[test]
    fn literal_hosts_are_judged_as_they_are_parsed() {
        for (text, public, loopback) in [
            ("http://2852039166/", false, false),
            ("http://0251.0376.0251.0376/", false, false),
            ("http://0xA9FEA9FE/", false, false),
            ("http://127.1/", false, true),
            ("https://[::ffff:169.254.169.254]/", false, false),
            ("https://[64:ff9b::a9fe:a9fe]/", false, false),
            ("https://example.com/", true, true),
            ("https://1.1.1.1/", true, false),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!(Reach::Public.admits_host(&url), public, "{text}");
            assert_eq!(Reach::Loopback.admits_host(&url), loopback, "{text}");
        }
        for (text, want) in [
            ("http://localhost:1/", true),
            ("http://localhost.:1/", true),
            ("http://a.localhost/", true),
            ("http://[::1]/", true),
            ("http://127.9.9.9/", true),
            ("http://localhost.example/", false),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(text).unwrap()), want, "{text}");
        }
    }
}
