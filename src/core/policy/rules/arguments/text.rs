//! Argument texts with a syntax of their own: paths, hosts of URLs, domains of mail addresses.
//!
//! Each has one plain spelling that every program reads alike. A text in any other spelling is
//! unknown.

use core::fmt;
use core::net::IpAddr;

use crate::policy::rules::truth::Truth;

/// Returns a directory in its plain spelling, without a `/` at its end; the error says what is
/// wrong with it.
pub(in crate::policy) fn plain_folder(path: &str) -> Result<Box<str>, String> {
    let trimmed = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    if !is_plain_path(trimmed) {
        return Err(format!(
            "`{path}` is no plain absolute path: it begins with `/` and has no `..`, `.`, `//`, `%` or `\\`"
        ));
    }
    Ok(Box::from(trimmed))
}

/// Whether a path is the directory or lies below it; unknown for a path in another spelling. Links
/// are not followed.
pub(in crate::policy) fn is_under(path: &str, base: &str) -> Truth {
    let path = if path.len() > 1 { path.strip_suffix('/').unwrap_or(path) } else { path };
    if !is_plain_path(path) {
        return Truth::Unknown;
    }
    let below = |path: &str, base: &str| {
        base == "/" || path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    if below(path, base) {
        return Truth::Yes;
    }
    // Some file systems ignore case.
    if below(&path.to_lowercase(), &base.to_lowercase()) { Truth::Unknown } else { Truth::No }
}

/// Whether all readers take a text for the same absolute path.
pub(in crate::policy) fn is_plain_path(path: &str) -> bool {
    let odd = |c: char| c.is_control() || matches!(c, '%' | '\\');
    let Some(rest) = path.strip_prefix('/') else { return false };
    !path.contains(odd) && (rest.is_empty() || rest.split('/').all(|part| !matches!(part, "" | "." | "..")))
}

/// A host, or all hosts below a domain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DomainPattern {
    /// The host or domain in lower case, without `*.`.
    name: Box<str>,
    /// True if written with `*.`: matches all names below the domain, and not the domain itself.
    below: bool,
}

impl DomainPattern {
    /// Parses a host name, a `*.` domain or an IP address.
    pub(super) fn host(text: &str) -> Result<Self, String> {
        match plain_address(text) {
            Some(address) => Ok(Self { name: Box::from(address), below: false }),
            None => Self::name(text),
        }
    }

    /// Parses a host name or a `*.` domain.
    pub(super) fn name(text: &str) -> Result<Self, String> {
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let lower = name.to_ascii_lowercase();
        if !is_name(&lower) {
            return Err(format!(
                "`{text}` is no domain, such as \"example.com\" or, for all below it, \"*.example.com\""
            ));
        }
        Ok(Self { name: Box::from(lower), below })
    }

    /// Whether a host, in lower case, matches.
    fn has(&self, host: &str) -> bool {
        if self.below {
            host.strip_suffix(&*self.name).is_some_and(|rest| rest.ends_with('.'))
        } else {
            *host == *self.name
        }
    }
}

/// Whether the URL's host is one of `hosts`; unknown if readers may disagree about the host.
pub(super) fn url_host(url: &str, hosts: &[DomainPattern]) -> Truth {
    host_of(url).map_or(Truth::Unknown, |host| Truth::from(hosts.iter().any(|wanted| wanted.has(&host))))
}

/// The scheme, host and port of an `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::policy) struct UrlOrigin {
    is_secure: bool,
    host: String,
    port: u16,
}

impl UrlOrigin {
    /// Reads the origin of a URL; `None` if readers may disagree about it, and for any other text.
    pub(in crate::policy) fn of(url: &str) -> Option<Self> {
        let host = host_of(url)?;
        let (scheme, rest) = url.split_once("://")?;
        let is_secure = scheme.eq_ignore_ascii_case("https");
        if !is_secure && !scheme.eq_ignore_ascii_case("http") {
            return None;
        }
        let authority = rest.split(['/', '?', '#']).next()?;
        let stated = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
        let default = if is_secure { 443 } else { 80 };
        Some(Self { is_secure, host, port: stated.map_or(Some(default), |(_, port)| port.parse().ok())? })
    }
}

impl fmt::Display for UrlOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_secure, host, port } = self;
        let (scheme, default) = if *is_secure { ("https", 443) } else { ("http", 80) };
        let [open, close] = if host.contains(':') { ["[", "]"] } else { ["", ""] };
        write!(f, "{scheme}://{open}{host}{close}")?;
        if *port == default { f.write_str("/") } else { write!(f, ":{port}/") }
    }
}

/// Returns the host of an HTTP or WebSocket URL; `None` if readers may disagree about the host.
fn host_of(url: &str) -> Option<String> {
    if url.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
        return None;
    }
    let (scheme, rest) = url.split_once("://")?;
    if !["http", "https", "ws", "wss"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    // Some readers take an `@` before the path for the end of a user's name.
    if authority.contains(['@', '%']) {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err() || !port.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let host = host.to_ascii_lowercase();
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return plain_address(address).filter(|_| address.contains(':'));
    }
    // Some readers take a name whose last label begins with a digit for a number in some notation.
    if plain_address(&host).is_some() {
        Some(host)
    } else {
        Some(host).filter(|host| is_name(host) && !is_numeric(host))
    }
}

/// Returns an IP address in lower case if it is in its usual spelling.
fn plain_address(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let address: IpAddr = lower.parse().ok()?;
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    (!mapped && address.to_string() == lower).then_some(lower)
}

/// Whether the last label of a host begins with a digit.
fn is_numeric(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    last.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a text is a domain name in lower case, without a dot at its end.
fn is_name(name: &str) -> bool {
    let label = |label: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Whether the domain of a mail address is one of `domains`; unknown if readers may disagree.
pub(super) fn email_domain(address: &str, domains: &[DomainPattern]) -> Truth {
    let Some((user, domain)) = address.split_once('@') else { return Truth::Unknown };
    // The address may have no comments, quotes, lists, routes or display names.
    let plain = |b: u8| {
        b.is_ascii_alphanumeric()
            || matches!(b, b'.' | b'_' | b'-' | b'+' | b'=' | b'\'' | b'~' | b'#' | b'$' | b'&' | b'*')
    };
    let domain = domain.to_ascii_lowercase();
    if user.is_empty() || !user.bytes().all(plain) || !is_name(&domain) {
        return Truth::Unknown;
    }
    Truth::from(domains.iter().any(|wanted| wanted.has(&domain)))
}
