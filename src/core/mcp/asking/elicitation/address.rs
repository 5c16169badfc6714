//! Checks the addresses that a server may ask a person to open.

use url::{Host, Url};

use super::host::{bare, has_empty_label};
use super::terms::{ElicitationTerms, OwnListeners};
use crate::mcp::asking::input_error::BadAddress;
use crate::wire::foreign;

/// Domain names below which there is no public host. Source: RFC 6761, RFC 6762, RFC 8375, RFC
/// 7686, and ICANN's `internal`.
const PRIVATE: [&str; 11] = [
    "local",
    "internal",
    "localhost",
    "localdomain",
    "home.arpa",
    "lan",
    "home",
    "corp",
    "intranet",
    "onion",
    "invalid",
];

/// Returns the address as people see it: the host in ASCII, everything else as it was written.
///
/// # Errors
/// [`BadAddress`].
pub(super) fn check_address(text: &str, terms: &ElicitationTerms) -> Result<String, BadAddress> {
    // Parsers drop some of these characters and turn others into slashes; no two agree.
    if text.contains(|c: char| foreign::is_hidden(c) || c.is_control() || c.is_whitespace() || c == '\\') {
        return Err(BadAddress::Malformed);
    }
    let url = Url::parse(text).map_err(|_| BadAddress::Malformed)?;
    let scheme = url.scheme();
    if !matches!(scheme, "https" | "http") {
        return Err(BadAddress::Scheme);
    }
    let rest = text.get(scheme.len()..).and_then(|rest| rest.strip_prefix("://")).ok_or(BadAddress::Malformed)?;
    let authority = rest.split(['/', '?', '#']).next().filter(|written| !written.is_empty());
    let authority = authority.ok_or(BadAddress::Malformed)?;
    if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
        return Err(BadAddress::UserInfo);
    }
    judge(&url, terms)?;
    let host = url.host_str().ok_or(BadAddress::Malformed)?;
    let port = port_of(authority);
    let written = authority.strip_suffix(port).unwrap_or(authority);
    if written.eq_ignore_ascii_case(host) {
        return Ok(text.to_owned());
    }
    let after = rest.get(authority.len()..).unwrap_or_default();
    Ok(format!("{scheme}://{host}{port}{after}"))
}

/// Returns `:8443` of `host:8443`.
fn port_of(authority: &str) -> &str {
    let at = authority.rfind(':').filter(|at| !authority.get(*at..).unwrap_or_default().contains(']'));
    at.and_then(|at| authority.get(at..)).unwrap_or_default()
}

/// Checks scheme and host of an address against the terms.
fn judge(url: &Url, terms: &ElicitationTerms) -> Result<(), BadAddress> {
    let host = url.host().ok_or(BadAddress::Malformed)?;
    if matches!(host, Host::Domain(name) if has_empty_label(name)) {
        return Err(BadAddress::Malformed);
    }
    let (name, is_loopback, is_number) = match host {
        Host::Domain(name) => (bare(name).to_owned(), is_localhost(bare(name)), false),
        Host::Ipv4(number) => (number.to_string(), number.is_loopback(), true),
        Host::Ipv6(number) => (format!("[{number}]"), number.to_canonical().is_loopback(), true),
    };
    if is_own(&terms.own, &name, url.port_or_known_default().unwrap_or_default(), is_loopback) {
        return Err(BadAddress::Own);
    }
    if is_number && !is_loopback {
        return Err(BadAddress::Number);
    }
    if is_loopback && !terms.on_this_machine {
        return Err(BadAddress::Loopback);
    }
    if !is_loopback && url.scheme() != "https" {
        return Err(BadAddress::Scheme);
    }
    match &terms.elicit.hosts {
        Some(hosts) if !hosts.iter().any(|pattern| pattern.fits(&name)) => Err(BadAddress::Host),
        None if !is_loopback && !is_public(&name) => Err(BadAddress::Private),
        Some(_) | None => Ok(()),
    }
}

/// Reports whether a name is `localhost` or below it. Source: RFC 6761, section 6.3.
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Reports whether the public DNS may know the name: it has a dot, and no ending of private
/// networks.
fn is_public(name: &str) -> bool {
    let is_below = |ending: &str| name.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !PRIVATE.iter().any(|ending| is_below(ending))
}

/// Reports whether host and port are a listener of headend.
fn is_own(own: &OwnListeners, name: &str, port: u16, is_loopback: bool) -> bool {
    (is_loopback && own.ports.contains(&port))
        || own.names.iter().any(|own| match own.rsplit_once(':') {
            Some((host, own_port)) if own_port.parse() == Ok(port) => host.eq_ignore_ascii_case(name),
            Some((_, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => false,
            Some(_) | None => own.eq_ignore_ascii_case(name),
        })
}
