//! Patterns of `elicit-hosts`: hosts whose pages a server may ask a person to open.

use url::Host;

/// A host, or all hosts below it if it is written with `*.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// The host name in ASCII and lower case.
    name: String,
    /// True if the pattern stands for the hosts below `name`, and not for `name` itself.
    below: bool,
}

impl HostPattern {
    /// Reads `host` or `*.host`. Of addresses only loopback ones are accepted.
    pub fn parse(text: &str) -> Option<Self> {
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

    /// Reports whether a host in ASCII and lower case matches the pattern.
    pub(super) fn fits(&self, host: &str) -> bool {
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

/// Removes the dot at the end of a fully qualified name.
pub(super) fn bare(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// Reports whether a name has an empty label, such as two dots in a row: resolvers disagree on such
/// names, and no ending matches them. Source: RFC 1035, section 2.3.1.
pub(super) fn has_empty_label(name: &str) -> bool {
    bare(name).split('.').any(str::is_empty)
}
