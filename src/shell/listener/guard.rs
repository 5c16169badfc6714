//! Checks of a request head before any byte of the body is read: Host, Origin, and the shape of the
//! head.

use std::net::SocketAddr;

use http::header::{HOST, HeaderMap, ORIGIN, TRANSFER_ENCODING};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, Method, Response, StatusCode};

use crate::config::MAX_HEADER_FIELDS;
use crate::listener::body::ReplyBody;
use crate::listener::reply::{refusal, refusal_and_close};
use crate::wire::coding;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// Headers of a proxy that forwards a request from another machine.
const FORWARDED: [&str; 4] = ["forwarded", "x-forwarded-for", "x-real-ip", "via"];
/// Headers that influence a decision: if one was sent twice, two readers could use different
/// values. Headers that repeat parts of the body are compared with it later.
const SINGLE: [&str; 5] = ["authorization", "content-type", "mcp-session-id", "last-event-id", "origin"];

/// Returns whether a request from a loopback address claims to come from this machine: it names a
/// loopback host and has no header of a proxy.
pub fn is_direct(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    let names_loopback = host.is_some_and(|host| LOOPBACK.iter().any(|name| host.host().eq_ignore_ascii_case(name)));
    names_loopback && !FORWARDED.iter().any(|name| headers.contains_key(*name))
}

/// The rules for request heads of one listener.
#[derive(Debug)]
pub struct HeadGuard {
    /// Host values for this listener as nearly every client writes them.
    usual: [String; 3],
    hosts: Vec<String>,
    origins: Vec<String>,
    port: u16,
    max_field_bytes: usize,
    /// The scheme of this listener's own origin, up to the host.
    scheme: &'static str,
    /// True if browsers reach the allowed hosts by a proxy with TLS, and only loopback directly.
    is_proxied: bool,
}

impl HeadGuard {
    pub fn new(
        listen: SocketAddr,
        allowed_hosts: &[String],
        allowed_origins: &[String],
        max_field_bytes: usize,
    ) -> Self {
        Self {
            usual: LOOPBACK.map(|name| format!("{name}:{}", listen.port())),
            hosts: allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            origins: allowed_origins.iter().map(|origin| origin.to_ascii_lowercase()).collect(),
            port: listen.port(),
            max_field_bytes,
            scheme: "http://",
            is_proxied: false,
        }
    }

    /// Makes the own origin of the listener an `https` one.
    pub fn over_tls(self) -> Self {
        Self { scheme: "https://", ..self }
    }

    /// Makes the origins of the allowed hosts `https` ones, as pages that a proxy with TLS passes
    /// on have. A page of such a host over `http` may be anyone's on the way.
    pub fn behind_tls_proxy(self) -> Self {
        let origins = self.hosts.iter().map(|host| format!("https://{host}")).collect();
        Self { origins, is_proxied: true, ..self }
    }

    /// Checks Host, Origin and the shape of the head. All of this precedes authentication, so no
    /// answer reveals what exists.
    ///
    /// # Errors
    /// The response to send.
    pub fn admit(&self, head: &Parts) -> Result<(), Box<Response<ReplyBody>>> {
        let bad = |text: &str| Box::new(refusal_and_close(StatusCode::BAD_REQUEST, text));
        if head.headers.len() > MAX_HEADER_FIELDS {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Box::new(refusal_and_close(status, "too many header fields")));
        }
        if head.headers.iter().any(|(name, value)| name.as_str().len() + value.len() > self.max_field_bytes) {
            let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
            return Err(Box::new(refusal_and_close(status, "a header field is too long")));
        }
        if !coding::is_plain_transfer(head.headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes)) {
            let text = "Transfer-Encoding must be chunked and nothing else";
            return Err(Box::new(refusal_and_close(StatusCode::NOT_IMPLEMENTED, text)));
        }
        let mut hosts = head.headers.get_all(HOST).iter();
        let host = hosts.next().ok_or_else(|| bad("the Host header is missing"))?;
        if hosts.next().is_some() {
            return Err(bad("more than one Host header"));
        }
        let host = host.to_str().ok().filter(|host| !host.is_empty()).ok_or_else(|| bad("bad Host header"))?;
        let is_usual = self.usual.iter().any(|usual| usual == host);
        if !is_usual || head.uri.authority().is_some() || head.headers.contains_key(ORIGIN) {
            self.admit_host(head, host)?;
        }
        // Most requests repeat no header.
        if head.headers.len() != head.headers.keys_len() {
            for name in SINGLE {
                if head.headers.get_all(name).iter().nth(1).is_some() {
                    return Err(bad("a header that may occur once occurs twice"));
                }
            }
        }
        Ok(())
    }

    /// Checks a Host value by its parts, and the request target against it.
    fn admit_host(&self, head: &Parts, host: &str) -> Result<(), Box<Response<ReplyBody>>> {
        let bad = |text: &str| Box::new(refusal_and_close(StatusCode::BAD_REQUEST, text));
        let authority: Authority = host.parse().map_err(|_| bad("bad Host header"))?;
        if host.contains('@') {
            return Err(bad("bad Host header"));
        }
        if let Some(target) = head.uri.authority() {
            // An absolute target must name this server: the gateway is no proxy.
            if head.method == Method::CONNECT || !target.as_str().eq_ignore_ascii_case(authority.as_str()) {
                return Err(bad("the request target is not this server"));
            }
        }
        let port = port(&authority).map_err(|()| bad("bad port in the Host header"))?;
        if !self.allows_host(&authority, port) {
            let text = "this Host is not allowed; see `server.allowed-hosts`";
            return Err(Box::new(refusal(StatusCode::FORBIDDEN, text)));
        }
        self.admit_origin(&head.headers, &authority)
    }

    /// Returns whether a Host is loopback with this listener's port, or is allowed by the
    /// configuration.
    fn allows_host(&self, authority: &Authority, port: Option<u16>) -> bool {
        let name = authority.host().to_ascii_lowercase();
        let port_fits = port.is_none_or(|port| port == self.port);
        (port_fits && LOOPBACK.contains(&name.as_str()))
            || self.hosts.iter().any(|allowed| *allowed == name || *allowed == authority.as_str().to_ascii_lowercase())
    }

    /// Checks that an Origin is this server's own or a configured one. Programs other than browsers
    /// send none.
    fn admit_origin(&self, headers: &HeaderMap, authority: &Authority) -> Result<(), Box<Response<ReplyBody>>> {
        let mut origins = headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(()) };
        let text = origin.to_str().unwrap_or_default().to_ascii_lowercase();
        let is_direct = !self.is_proxied || LOOPBACK.iter().any(|name| authority.host().eq_ignore_ascii_case(name));
        let own = is_direct && text.strip_prefix(self.scheme) == Some(authority.as_str().to_ascii_lowercase().as_str());
        if origins.next().is_none() && (own || self.origins.contains(&text)) {
            return Ok(());
        }
        let text = "this Origin is not allowed; see `server.allowed-origins`";
        Err(Box::new(refusal(StatusCode::FORBIDDEN, text)))
    }
}

/// Returns the port in a Host value without user info. The `http` crate accepts any text as a port
/// and returns `None` for text that is not a number.
///
/// RFC 3986, section 3.2.3, allows an empty port. No client sends one, so a sender of one may be
/// odd in other ways too.
///
/// # Errors
/// The port has characters other than digits, or is not between 1 and 65535.
fn port(authority: &Authority) -> Result<Option<u16>, ()> {
    let Some(rest) = authority.as_str().strip_prefix(authority.host()) else { return Err(()) };
    if rest.is_empty() {
        return Ok(None);
    }
    let digits = rest.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())).ok_or(())?;
    digits.parse().ok().filter(|port| *port != 0).map(Some).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MAX_HEADER_FIELD;

    fn head(headers: &[(&'static str, &'static str)]) -> Parts {
        let mut builder = http::Request::builder().method("POST").uri("/mcp");
        for (name, value) in headers {
            builder = builder.header(*name, *value);
        }
        builder.body(()).unwrap().into_parts().0
    }

    fn guard() -> HeadGuard {
        HeadGuard::new(
            "127.0.0.1:8627".parse().unwrap(),
            &["gw.example".to_owned()],
            &["https://app.example".to_owned()],
            MAX_HEADER_FIELD,
        )
    }

    #[test]
    fn only_own_and_configured_hosts_and_origins_pass() {
        for (label, headers, status) in [
            ("loopback", vec![("host", "localhost:8627")], 0),
            ("loopback v6", vec![("host", "[::1]:8627")], 0),
            ("no port", vec![("host", "127.0.0.1")], 0),
            ("configured", vec![("host", "gw.example")], 0),
            ("none", vec![], 400),
            ("two", vec![("host", "localhost"), ("host", "localhost")], 400),
            ("rebinding", vec![("host", "evil.example:8627")], 403),
            ("suffix trick", vec![("host", "localhost.evil.example")], 403),
            ("trailing dot", vec![("host", "localhost.")], 403),
            ("other port", vec![("host", "localhost:1")], 403),
            ("userinfo", vec![("host", "localhost@evil.example")], 400),
            ("name behind the port", vec![("host", "localhost:8627.evil")], 400),
            ("name behind the port of a configured host", vec![("host", "gw.example:443.evil")], 400),
            ("name behind the port of an address", vec![("host", "[::1]:8627.evil")], 400),
            ("sign", vec![("host", "localhost:+8627")], 400),
            ("minus", vec![("host", "localhost:-1")], 400),
            ("empty port", vec![("host", "localhost:")], 400),
            ("empty port of an address", vec![("host", "[::1]:")], 400),
            ("empty port of a configured host", vec![("host", "gw.example:")], 400),
            ("port 0", vec![("host", "localhost:0")], 400),
            ("port beyond 16 bits", vec![("host", "gw.example:65536")], 400),
            ("hexadecimal port", vec![("host", "localhost:0x21b3")], 400),
            ("blank in the port", vec![("host", "localhost: 8627")], 400),
            ("two ports", vec![("host", "localhost:8627:8627")], 400),
            ("address without brackets", vec![("host", "::1:8627")], 400),
            ("text behind an address", vec![("host", "[::1]8627")], 400),
            ("open bracket", vec![("host", "[::1:8627")], 400),
            ("nothing but a port", vec![("host", ":8627")], 403),
            ("leading zeros, the same number", vec![("host", "localhost:08627")], 0),
            ("any port of a configured host", vec![("host", "gw.example:8443")], 0),
            ("own origin", vec![("host", "localhost:8627"), ("origin", "http://localhost:8627")], 0),
            ("configured origin", vec![("host", "localhost:8627"), ("origin", "https://app.example")], 0),
            ("foreign origin", vec![("host", "localhost:8627"), ("origin", "https://evil.example")], 403),
            ("null origin", vec![("host", "localhost:8627"), ("origin", "null")], 403),
            (
                "two origins",
                vec![("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://localhost")],
                403,
            ),
            ("two tokens", vec![("host", "localhost"), ("authorization", "a"), ("authorization", "b")], 400),
            (
                "two tokens, usual host",
                vec![("host", "localhost:8627"), ("authorization", "a"), ("authorization", "b")],
                400,
            ),
            ("two of another", vec![("host", "localhost:8627"), ("accept", "a"), ("accept", "b")], 0),
        ] {
            let got = guard().admit(&head(&headers)).err().map_or(0, |response| response.status().as_u16());
            assert_eq!(got, status, "{label}");
        }
    }

    #[test]
    fn behind_a_proxy_with_tls_only_loopback_has_pages_without_tls() {
        let hosts = ["gw.example".to_owned(), "Gw.example:8443".to_owned()];
        let guard = HeadGuard::new("127.0.0.1:8628".parse().unwrap(), &hosts, &[], MAX_HEADER_FIELD).behind_tls_proxy();
        for (host, origin, status) in [
            ("gw.example", "https://gw.example", 0),
            ("gw.example:8443", "https://gw.example:8443", 0),
            ("localhost:8628", "http://localhost:8628", 0),
            ("[::1]:8628", "http://[::1]:8628", 0),
            ("gw.example", "http://gw.example", 403),
            ("gw.example", "HTTP://GW.EXAMPLE", 403),
            ("gw.example:8443", "http://gw.example:8443", 403),
            ("gw.example:80", "http://gw.example:80", 403),
            ("gw.example", "http://localhost:8628", 403),
            ("gw.example", "null", 403),
            ("localhost:8628", "https://localhost:8628", 403),
        ] {
            let head = head(&[("host", host), ("origin", origin)]);
            let got = guard.admit(&head).err().map_or(0, |response| response.status().as_u16());
            assert_eq!(got, status, "{host} {origin}");
        }
    }

    #[test]
    fn the_target_of_a_request_is_this_server() {
        for (label, method, target, status) in [
            ("its own", "POST", "http://localhost:8627/mcp", 0),
            ("its own in capitals", "POST", "http://LOCALHOST:8627/mcp", 0),
            ("another", "POST", "http://evil.example/mcp", 400),
            ("another of its names", "POST", "http://127.0.0.1:8627/mcp", 400),
            ("a tunnel", "CONNECT", "localhost:8627", 400),
        ] {
            let mut head = head(&[("host", "localhost:8627")]);
            head.method = method.parse().unwrap();
            head.uri = target.parse().unwrap();
            let got = guard().admit(&head).err().map_or(0, |response| response.status().as_u16());
            assert_eq!(got, status, "{label}");
        }
    }
}
