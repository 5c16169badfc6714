//! The addresses that a server may have a person open.

use url::{Host, Url};

use super::{Own, Terms};
use crate::wire::foreign;

/// Why an address is not shown to anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAddress {
    #[error("it is no absolute URL, or one that readers understand differently")]
    Malformed,
    #[error("only https is opened, and http on this machine")]
    Scheme,
    #[error("it has a user name or a password in it")]
    UserInfo,
    #[error("its host is a number instead of a name")]
    Number,
    #[error("its host is no public one")]
    Private,
    #[error("it is on this machine, and the client or the server is not")]
    Loopback,
    #[error("it is the gateway's own")]
    Own,
    #[error("its host is none of `elicit-hosts`")]
    Host,
}

/// Names below which no public host is. Source: RFC 6761, RFC 6762, RFC 8375, RFC 7686, and ICANN's `internal`.
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

/// A host, or with `*.` before it all hosts below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPattern {
    /// In ASCII and lower case.
    name: String,
    below: bool,
}

impl HostPattern {
    /// Reads `host` or `*.host`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |name| (true, name));
        match Host::parse(name).ok()? {
            Host::Domain(name) if !name.contains('*') && !has_empty_label(&name) => {
                Some(Self { name: bare(&name).to_owned(), below })
            }
            Host::Ipv4(number) if !below && number.is_loopback() => Some(Self { name: number.to_string(), below }),
            Host::Ipv6(number) if !below && number.is_loopback() => Some(Self { name: format!("[{number}]"), below }),
            Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_) => None,
        }
    }

    fn fits(&self, host: &str) -> bool {
        match host.strip_suffix(&self.name) {
            Some("") => !self.below,
            Some(before) => self.below && before.ends_with('.'),
            None => false,
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

/// The address as people are shown it: the host in ASCII, everything else as it was written.
///
/// # Errors
/// [`BadAddress`].
pub(super) fn safe(text: &str, terms: &Terms) -> Result<String, BadAddress> {
    // Parsers drop some of these and turn others into slashes; no two agree.
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

/// `:8443` of `host:8443`.
fn port_of(authority: &str) -> &str {
    let at = authority.rfind(':').filter(|at| !authority.get(*at..).unwrap_or_default().contains(']'));
    at.and_then(|at| authority.get(at..)).unwrap_or_default()
}

fn judge(url: &Url, terms: &Terms) -> Result<(), BadAddress> {
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

/// Without the dot that some write at the end.
fn bare(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Whether two dots stand side by side, or one in front: resolvers disagree on such names, and no ending fits them.
/// Source: RFC 1035, section 2.3.1.
fn has_empty_label(name: &str) -> bool {
    bare(name).split('.').any(str::is_empty)
}

/// Source: RFC 6761, section 6.3.
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether the public DNS may know the name: it has a dot, and no ending of private networks.
fn is_public(name: &str) -> bool {
    let is_below = |ending: &str| name.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    name.contains('.') && !PRIVATE.iter().any(|ending| is_below(ending))
}

fn is_own(own: &Own, name: &str, port: u16, is_loopback: bool) -> bool {
    (is_loopback && own.ports.contains(&port))
        || own.names.iter().any(|own| match own.rsplit_once(':') {
            Some((host, own_port)) if own_port.parse() == Ok(port) => host.eq_ignore_ascii_case(name),
            Some((_, digits)) if digits.bytes().all(|byte| byte.is_ascii_digit()) => false,
            Some(_) | None => own.eq_ignore_ascii_case(name),
        })
}
