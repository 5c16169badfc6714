//! Proxies of connections that headend itself makes: the key `proxy` of an upstream, and the
//! variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.
//!
//! [`ProxySettings::route`] is the only place that decides whether a connection is direct or which
//! proxy it takes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::{HeaderValue, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use url::Url;

use super::address::is_loopback;
use crate::source::file::{ConfigNode, ConfigTable};
use crate::source::secret;
use crate::source::secret::{MissingSecrets, REDACTED};

const NO_URL: &str = "is not a URL such as \"http://proxy.example.com:3128\"";
/// The value of `proxy` for direct connections.
const NONE: &str = "none";

/// An HTTP proxy. Its display shows scheme, host and port, never the user or the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// The URL without user, password and path.
    uri: Uri,
    /// The value of `Proxy-Authorization`, marked as sensitive.
    authorization: Option<HeaderValue>,
}

impl Proxy {
    /// Reads the URL of a proxy; a text without a scheme is an `http` URL.
    ///
    /// # Errors
    /// The fault of the text, which is not repeated.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let scheme = if text.contains("://") { "" } else { "http://" };
        let url = Url::parse(&format!("{scheme}{text}")).map_err(|_| NO_URL)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must begin with http:// or https://; headend knows no other kind of proxy");
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err("must end behind the host and the port");
        }
        // The library decodes and encodes the credentials.
        let matcher = Matcher::builder().all(url.as_str()).build();
        let found = matcher.intercept(&Uri::from_static("https://server.invalid/")).ok_or(NO_URL)?;
        Ok(Self { uri: found.uri().clone(), authorization: found.basic_auth().cloned() })
    }

    /// Returns the address to connect to, without credentials.
    pub const fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the value of `Proxy-Authorization`, if the configured URL has a user.
    pub const fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Returns the URL for people, with stars in place of its credentials.
    pub(crate) fn shown(&self) -> String {
        let shown = self.to_string();
        match (&self.authorization, shown.split_once("://")) {
            (Some(_), Some((scheme, host))) => format!("{scheme}://{REDACTED}@{host}"),
            (Some(_) | None, _) => shown,
        }
    }

    /// Reports whether the proxy is on this machine.
    fn is_here(&self) -> bool {
        Url::parse(&self.to_string()).is_ok_and(|url| is_loopback(&url))
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = self.uri.authority().map_or("", http::uri::Authority::as_str);
        write!(f, "{}://{authority}", self.uri.scheme_str().unwrap_or("http"))
    }
}

/// The choice of a proxy for the connections of an upstream or a web hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxySettings {
    /// The proxy that the variables of headend's environment name.
    Environment(Arc<ProxyVariables>),
    /// No proxy, regardless of the environment.
    Direct,
    /// One proxy for every server, regardless of the environment.
    Always(Arc<Proxy>),
}

impl ProxySettings {
    /// Reads the settings of the environment.
    pub(crate) fn from_environment(env: &dyn Fn(&str) -> Option<String>) -> Self {
        Self::Environment(Arc::new(ProxyVariables::read(env)))
    }

    /// Reads the key `proxy` of an upstream behind this URL.
    pub(crate) fn read(table: &mut ConfigTable<'_>, url: &Url, lacks: &mut MissingSecrets) -> Self {
        let environment = Self::from_environment(table.source.env);
        let Some(node) = table.take("proxy") else { return environment };
        match node.as_bool() {
            Some(false) => return Self::Direct,
            Some(true) => {
                node.problem("must be false, \"none\" or the URL of a proxy; the variables of the environment count without this key");
                return environment;
            }
            None if node.as_str() == Some(NONE) => return Self::Direct,
            None => {}
        }
        match proxy(&node, url, lacks) {
            Some(proxy) => Self::Always(Arc::new(proxy)),
            None => environment,
        }
    }

    /// Returns the value of the key `proxy`; `None` without the key.
    pub(crate) fn shown(&self) -> Option<String> {
        match self {
            Self::Environment(_) => None,
            Self::Direct => Some(NONE.to_owned()),
            Self::Always(proxy) => Some(proxy.shown()),
        }
    }

    /// Returns the proxy for connections to this URL; `None` for direct ones. A server on this
    /// machine is reached directly unless `proxy` names a proxy for it.
    ///
    /// # Errors
    /// A sentence for the operator, if the variable that decides has a value that names no usable
    /// proxy.
    pub fn route(&self, url: &Url) -> Result<Option<&Arc<Proxy>>, String> {
        match self {
            Self::Direct => Ok(None),
            Self::Always(proxy) => Ok(Some(proxy)),
            Self::Environment(variables) => variables.route(url),
        }
    }
}

/// Reads the proxy that the key names. A missing secret or variable keeps the upstream from being
/// started.
fn proxy(node: &ConfigNode<'_>, url: &Url, lacks: &mut MissingSecrets) -> Option<Proxy> {
    let before = lacks.found.len();
    let found = secret::read_or_lack(node, lacks).map(|found| found.expanded(node, lacks))?;
    if before < lacks.found.len() {
        return None;
    }
    let proxy = match Proxy::parse(found.secret.expose()) {
        Ok(proxy) => proxy,
        Err(why) if found.secret.has_variables() => {
            lacks.add(node, format!("proxy: with its variables put in it {why}"));
            return None;
        }
        Err(why) => {
            node.problem(why);
            return None;
        }
    };
    if is_loopback(url) && !proxy.is_here() {
        node.problem("the server is on this machine and needs no proxy on another one; remove this key");
    }
    if found.literal && proxy.authorization.is_some() {
        secret::warn_of_literal(node);
    }
    Some(proxy)
}

/// The variables of the environment about proxies, as curl reads them: a lower-case name takes
/// precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyVariables {
    https: Option<ProxyVariable>,
    http: Option<ProxyVariable>,
    /// Hosts that are reached directly.
    except: Vec<NoProxyEntry>,
}

/// A variable and the proxy that it names, or the reason why it names none.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProxyVariable {
    name: &'static str,
    proxy: Result<Arc<Proxy>, &'static str>,
}

/// An entry of `NO_PROXY`: a host, domain, address, network or `*`, for one port or for all.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NoProxyEntry {
    host: String,
    port: Option<u16>,
}

impl ProxyVariables {
    fn read(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let value = |name: &'static str| Some((name, env(name).filter(|value| !value.trim().is_empty())?));
        let first = |names: [&'static str; 2]| names.into_iter().find_map(value);
        let variable = |names| {
            let (name, value) = first(names)?;
            Some(ProxyVariable { name, proxy: Proxy::parse(&value).map(Arc::new) })
        };
        let except = first(["no_proxy", "NO_PROXY"]).map(|(_, list)| list).unwrap_or_default();
        let except = except.split(|c: char| c == ',' || c.is_whitespace()).filter_map(NoProxyEntry::parse).collect();
        // A CGI server puts a client's header `Proxy` into HTTP_PROXY.
        let http = if env("REQUEST_METHOD").is_some() { ["http_proxy"; 2] } else { ["http_proxy", "HTTP_PROXY"] };
        Self { https: variable(["https_proxy", "HTTPS_PROXY"]), http: variable(http), except }
    }

    fn route(&self, url: &Url) -> Result<Option<&Arc<Proxy>>, String> {
        let variable = if url.scheme() == "https" { &self.https } else { &self.http };
        let Some(ProxyVariable { name, proxy }) = variable else { return Ok(None) };
        if is_loopback(url) || self.is_excepted(url) {
            return Ok(None);
        }
        match proxy {
            Ok(proxy) => Ok(Some(proxy)),
            Err(why) => Err(format!("the proxy in ${name} cannot be used: the value {why}")),
        }
    }

    /// Reports whether `NO_PROXY` has an entry for a URL.
    fn is_excepted(&self, url: &Url) -> bool {
        let (Some(host), port) = (url.host_str(), url.port_or_known_default()) else { return false };
        let host = host.strip_suffix('.').unwrap_or(host);
        let Ok(uri) = format!("https://{host}/").parse::<Uri>() else { return false };
        let matches = self.except.iter().filter(|entry| entry.port.is_none() || entry.port == port);
        let hosts: Vec<&str> = matches.map(|entry| entry.host.as_str()).collect();
        if hosts.contains(&"*") {
            // The library would leave addresses out.
            return true;
        }
        let list = hosts.join(",");
        Matcher::builder().all("http://proxy.invalid").no(list).build().intercept(&uri).is_none()
    }
}

impl NoProxyEntry {
    /// Reads an entry; `None` for an invalid one.
    fn parse(entry: &str) -> Option<Self> {
        let is_whole = |text: &str| text.contains('/') || text.parse::<IpAddr>().is_ok();
        let (host, port) = match entry.rsplit_once(':') {
            Some((host, port)) if !is_whole(entry) && !port.ends_with(']') => (host, Some(port.parse().ok()?)),
            Some(_) | None => (entry, None),
        };
        let host = host.trim_start_matches('[').trim_end_matches([']', '.']);
        let host = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        (!host.is_empty()).then(|| Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests;
