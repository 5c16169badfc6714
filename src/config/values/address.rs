//! Classifies the targets of URLs and addresses: this machine, the internet, or another network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Reports whether the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}

/// Reports whether an address belongs to the internet, and not to a private, local, shared,
/// translated or reserved range. Sources: the IANA registries of special-purpose addresses, for
/// IPv4 and IPv6.
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast();
    let is_reserved = match address.octets() {
        // This network; shared by the customers of a carrier; protocol assignments; 6to4 relays;
        // benchmarks; the last block.
        [0, ..] | [192, 0, 0, _] | [192, 88, 99, _] | [240..=255, ..] => true,
        [100, second, ..] => second & 0xc0 == 64,
        [198, second, ..] => second & 0xfe == 18,
        _ => false,
    };
    !is_special && !is_reserved
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // The translation of an IPv4 address, on networks without IPv4.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let [a, b] = high.to_be_bytes();
            let [c, d] = low.to_be_bytes();
            is_public_v4(Ipv4Addr::new(a, b, c, d))
        }
        // Protocol assignments, Teredo among them; documentation, twice; 6to4, which hides an IPv4
        // address.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for public in [
            "1.1.1.1",
            "93.184.216.34",
            "100.63.0.1",
            "100.128.0.1",
            "172.32.0.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.254",
        ] {
            assert!(is_public(public.parse().unwrap()), "{public}");
            assert!(is_public(format!("::ffff:{public}").parse().unwrap()), "{public}, mapped");
            assert!(is_public(format!("64:ff9b::{public}").parse().unwrap()), "{public}, translated");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.1.1.1",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
            assert!(!is_public(format!("::ffff:{other}").parse().unwrap()), "{other}, mapped");
            assert!(!is_public(format!("64:ff9b::{other}").parse().unwrap()), "{other}, translated");
        }
        for public in ["2606:4700::1111", "2a00:1450::1", "2001:200::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "::",
            "::1",
            "::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }
}
