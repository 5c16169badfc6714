//! Reads the addresses that proxies write into `Forwarded` and `X-Forwarded-For`.
//!
//! Source: RFC 7239, sections 4 to 6.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::FORWARDED;

/// Most addresses that are read, from the last one on: a client can write any number of its own.
const MOST: usize = 32;

/// Returns the addresses of the chain of proxies, the client's first, as far as they can be read:
/// an entry that is no address hides all entries before it. `Forwarded` goes before
/// `X-Forwarded-For`.
pub(crate) fn addresses(headers: &HeaderMap) -> Vec<IpAddr> {
    let values = |name: &str| {
        let values = headers.get_all(name).iter();
        values.map(|value| value.to_str().unwrap_or("?")).collect::<Vec<_>>()
    };
    let standard = values(FORWARDED.as_str());
    let usual = values("x-forwarded-for");
    let entries: Vec<&str> =
        if standard.is_empty() { &usual } else { &standard }.iter().flat_map(|value| value.split(',')).collect();
    let read = |entry: &&str| if standard.is_empty() { address(entry.trim()) } else { element(entry) };
    let mut found: Vec<IpAddr> = entries.iter().rev().take(MOST).map_while(read).collect();
    found.reverse();
    found
}

/// Reads the address in one element of `Forwarded`.
fn element(element: &str) -> Option<IpAddr> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    let node = node.strip_prefix('"').and_then(|node| node.strip_suffix('"')).unwrap_or(node);
    address(node)
}

/// Reads an address with or without brackets and port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readable_end_of_a_chain_counts() {
        for (name, values, want) in [
            ("x-forwarded-for", &["192.0.2.1, 10.0.0.7"][..], "192.0.2.1 10.0.0.7"),
            ("x-forwarded-for", &["1.2.3.4", "192.0.2.1:99"], "1.2.3.4 192.0.2.1"),
            ("x-forwarded-for", &["1.2.3.4, unknown, 192.0.2.1"], "192.0.2.1"),
            ("x-forwarded-for", &["[2001:db8::1]:80, 2001:db8::2"], "2001:db8::1 2001:db8::2"),
            ("forwarded", &["for=192.0.2.1;proto=https, For=\"[2001:db8::1]:4711\""], "192.0.2.1 2001:db8::1"),
            ("forwarded", &["for=_hidden", "by=10.0.0.1;for=192.0.2.1"], "192.0.2.1"),
            ("forwarded", &["proto=https"], ""),
            ("forwarded", &[], ""),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(http::HeaderName::from_static(name), value.parse().unwrap());
            }
            let got: Vec<String> = addresses(&headers).iter().map(ToString::to_string).collect();
            assert_eq!(got.join(" "), want, "{name}: {values:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", vec!["192.0.2.1"; 1000].join(",").parse().unwrap());
        assert_eq!(addresses(&headers).len(), MOST);
    }
}
