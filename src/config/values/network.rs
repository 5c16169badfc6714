//! Addresses and networks of peers.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A peer's address, or a network of peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNetwork {
    /// The address, as IPv6, with the bits beyond the prefix cleared.
    bits: u128,
    /// The length of the prefix, in bits of the IPv6 form.
    length: u32,
}

impl PeerNetwork {
    /// Parses an address such as `10.0.0.7`, or a network such as `10.0.0.0/8`; `None` if it is
    /// neither, or if bits are set beyond the prefix.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address.parse().ok()?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) if length.bytes().all(|byte| byte.is_ascii_digit()) => length.parse().ok()?,
            Some(_) => return None,
            None => width,
        };
        let length = 128 - width + Some(length).filter(|length| *length <= width)?;
        let bits = mapped(address).to_bits();
        (bits & !mask(length) == 0).then_some(Self { bits, length })
    }

    /// Reports whether every address is in it.
    pub(crate) const fn is_everything(&self) -> bool {
        self.length == 0
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        mapped(address).to_bits() & mask(self.length) == self.bits
    }
}

impl fmt::Display for PeerNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Ipv6Addr::from_bits(self.bits).to_canonical();
        let width = if address.is_ipv4() && self.length >= 96 { 32 } else { 128 };
        match self.length + width - 128 {
            length if length == width => write!(f, "{address}"),
            length => write!(f, "{address}/{length}"),
        }
    }
}

impl serde::Serialize for PeerNetwork {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns the IPv6 form of an address; an IPv4 one is mapped.
fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Returns the mask of a prefix.
fn mask(length: u32) -> u128 {
    u128::MAX.checked_shl(128 - length).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_the_addresses_of_its_prefix() {
        for (network, shown, inside, outside) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.7/32", "10.0.0.7", "::ffff:10.0.0.7", "10.0.0.6"),
            ("10.1.0.0/16", "10.1.0.0/16", "10.1.255.1", "10.2.0.0"),
            ("fd00::/8", "fd00::/8", "fdff::1", "fe80::1"),
            ("::1", "::1", "::1", "127.0.0.1"),
        ] {
            let parsed = PeerNetwork::parse(network).unwrap();
            assert_eq!(parsed.to_string(), shown);
            assert!(parsed.contains(inside.parse().unwrap()), "{network}");
            assert!(!parsed.contains(outside.parse().unwrap()), "{network}");
        }
        for bad in ["", "proxy", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/+8", "fd00::/129", "10.0.0.0/8/8"]
        {
            assert!(PeerNetwork::parse(bad).is_none(), "{bad}");
        }
    }
}
