//! The routes of the listeners for MCP, metrics and health: their methods, and which need a
//! credential. A path without a route is answered with 404, another method with 405.

use http::Method;

/// A route of a listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerRoute {
    /// The path; `{profile}` stands for the name of a profile, `{endpoint}` for the configured
    /// path.
    pub path: &'static str,
    /// The methods of the route, as the header `Allow` names them.
    pub methods: &'static str,
    /// True if a request without a valid credential is answered with 401.
    pub needs_credential: bool,
}

impl ListenerRoute {
    /// Returns whether the route has a method.
    pub fn has(&self, method: &Method) -> bool {
        // Each request asks, so without a search for a text.
        let mut own = self.methods.as_bytes().split(|byte| matches!(byte, b',' | b' '));
        own.any(|own| own == method.as_str().as_bytes())
    }
}

const fn closed(path: &'static str, methods: &'static str) -> ListenerRoute {
    ListenerRoute { path, methods, needs_credential: true }
}

const fn open(path: &'static str, methods: &'static str) -> ListenerRoute {
    ListenerRoute { path, methods, needs_credential: false }
}

/// The endpoint, and each profile below it.
pub const ENDPOINT: ListenerRoute = closed("{endpoint}", "POST, GET, DELETE");
/// The stream of HTTP+SSE, and the one of each profile.
pub const SSE_STREAM: ListenerRoute = closed("/sse", "GET");
/// The messages of HTTP+SSE, and those of each profile.
pub const SSE_MESSAGES: ListenerRoute = closed("/messages", "POST");

/// The routes of a listener for MCP.
pub const MCP: &[ListenerRoute] = &[
    ENDPOINT,
    ListenerRoute { path: "{endpoint}/{profile}", ..ENDPOINT },
    SSE_STREAM,
    ListenerRoute { path: "/sse/{profile}", ..SSE_STREAM },
    SSE_MESSAGES,
    ListenerRoute { path: "/messages/{profile}", ..SSE_MESSAGES },
];

/// The routes of the listener for metrics and health. `/metrics` needs a credential if the
/// configuration has one, as it must off loopback.
pub const PAGES: &[ListenerRoute] =
    &[closed("/metrics", "GET, HEAD"), open("/healthz", "GET, HEAD"), open("/readyz", "GET, HEAD")];
