//! The `_meta` of requests: reads the members that a client sent, and writes the members that go
//! upstream.

use std::borrow::Cow;

use crate::mcp::client_name::ClientName;
use crate::mcp::extension::Extension;
use crate::mcp::log::LogLevel;
use crate::mcp::trace;
use crate::mcp::version::{Era, Revision};
use crate::wire::id::ClientId;
use crate::wire::json::raw::{RawJson, RawObject};

pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
const PROGRESS_TOKEN: &str = "progressToken";

/// The members of `_meta` that describe a modern request.
#[derive(Clone, Debug)]
pub struct ModernMeta {
    /// The revision that the client claims, supported or not.
    pub version: Cow<'static, str>,
}

/// The reason why `_meta` is unusable; the message names the key, for the client's developer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetaError {
    #[error("params._meta must be an object")]
    NotAnObject,
    #[error("params._meta lacks `{0}`")]
    Missing(&'static str),
    #[error("params._meta `{key}` must be {want}")]
    WrongType { key: &'static str, want: &'static str },
}

/// The `_meta` of a request, split into its members.
#[derive(Clone, Default, Debug)]
pub struct Meta(RawObject);

impl Meta {
    /// Reads `params._meta`; an absent one is empty. Optional members of the protocol that are
    /// `null` count as absent.
    ///
    /// # Errors
    /// [`MetaError::NotAnObject`].
    pub fn of(params: &RawObject) -> Result<Self, MetaError> {
        match params.get("_meta") {
            None => Ok(Self::default()),
            Some(raw) => {
                let mut members = RawObject::parse(raw).map_err(|_| MetaError::NotAnObject)?;
                for name in [PROTOCOL_VERSION, CLIENT_INFO, LOG_LEVEL, PROGRESS_TOKEN] {
                    if members.get(name).is_some_and(RawJson::is_null) {
                        members.remove(name);
                    }
                }
                Ok(Self(members))
            }
        }
    }

    pub fn get(&self, key: &str) -> Option<&RawJson> {
        self.0.get(key)
    }

    /// Reports whether the request claims to be modern, rightly or not.
    pub fn has_claim(&self) -> bool {
        self.0.get(PROTOCOL_VERSION).is_some()
    }

    /// Checks the keys that every modern request must carry, and the types of the optional ones.
    /// Source: MCP 2026-07-28, basic, "`_meta`".
    ///
    /// # Errors
    /// The first key that is missing or of the wrong type.
    pub fn modern(&self) -> Result<ModernMeta, MetaError> {
        let version = self.0.get(PROTOCOL_VERSION).ok_or(MetaError::Missing(PROTOCOL_VERSION))?;
        let quoted = version.bytes().strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\""));
        let mut known = Revision::of(Era::Modern).map(Revision::as_str);
        let version = match known.find(|text| quoted == Some(text.as_bytes())) {
            Some(known) => Cow::Borrowed(known),
            None => {
                let wrong = |_| MetaError::WrongType { key: PROTOCOL_VERSION, want: "a string" };
                Cow::Owned(version.parse::<String>().map_err(wrong)?)
            }
        };
        let object = |key: &'static str, required: bool| match self.0.get(key) {
            None if required => Err(MetaError::Missing(key)),
            Some(raw) if !raw.is_object() => Err(MetaError::WrongType { key, want: "an object" }),
            None | Some(_) => Ok(()),
        };
        object(CLIENT_CAPABILITIES, true)?;
        object(CLIENT_INFO, false)?;
        if self.0.get(CLIENT_INFO).is_some_and(|info| !info.has_string("name")) {
            return Err(MetaError::WrongType { key: CLIENT_INFO, want: "an object with `name` and `version`" });
        }
        if let Some(level) = self.0.get(LOG_LEVEL)
            && LogLevel::read(level).is_none()
        {
            return Err(MetaError::WrongType { key: LOG_LEVEL, want: "a log level" });
        }
        Ok(ModernMeta { version })
    }

    /// Returns the name that the client states about itself; `None` if it is missing or the request
    /// does not claim to be modern.
    pub fn client_name(&self) -> Option<ClientName> {
        self.client_info().and_then(ClientName::read)
    }

    /// Returns the client's `clientInfo`; `None` if it is missing or the request does not claim to
    /// be modern.
    pub fn client_info(&self) -> Option<&RawJson> {
        self.0.get(CLIENT_INFO).filter(|_| self.has_claim())
    }

    /// Returns the client's capabilities; `None` if the request does not claim to be modern.
    pub fn client_capabilities(&self) -> Option<&RawJson> {
        self.0.get(CLIENT_CAPABILITIES).filter(|_| self.has_claim())
    }

    /// Reports whether a modern request declares the extension.
    pub fn declares(&self, extension: &Extension) -> bool {
        self.client_capabilities().is_some_and(|raw| extension.is_in(raw))
    }

    /// Returns the lowest level at which the client wants log messages of this request; `None` if
    /// it names none or the request does not claim to be modern.
    pub fn log_level(&self) -> Option<LogLevel> {
        self.0.get(LOG_LEVEL).filter(|_| self.has_claim()).and_then(LogLevel::read)
    }

    /// Returns the client's progress token.
    ///
    /// # Errors
    /// [`MetaError::WrongType`] if it is neither a string nor an integer.
    pub fn progress_token(&self) -> Result<Option<ClientId>, MetaError> {
        let Some(raw) = self.0.get(PROGRESS_TOKEN) else { return Ok(None) };
        ClientId::from_raw(raw.clone())
            .map(Some)
            .ok_or(MetaError::WrongType { key: PROGRESS_TOKEN, want: "a string or an integer" })
    }

    /// Takes the trace context of the transport, if the message itself has no `traceparent` and
    /// `parent` is well-formed.
    pub fn fall_back_on(&mut self, parent: &str, state: Option<&str>) {
        if self.0.get(trace::PARENT).is_none() && trace::is_parent(parent) {
            self.0.set(trace::PARENT, RawJson::string(parent));
            self.0.remove(trace::STATE);
            if let Some(state) = state {
                self.0.set(trace::STATE, RawJson::string(state));
            }
        }
    }

    /// Returns the well-formed trace context, by key; the keys equal the names of HTTP headers.
    pub fn trace(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let parent = self.0.said(trace::PARENT).filter(|parent| trace::is_parent(parent));
        let state = parent.as_ref().and_then(|_| self.0.said(trace::STATE)).filter(|state| trace::is_state(state));
        parent.map(|parent| (trace::PARENT, parent)).into_iter().chain(state.map(|state| (trace::STATE, state)))
    }

    /// Writes the `_meta` that goes upstream: the client's vendor keys, its trace context if
    /// well-formed, headend's own progress token, and for a modern upstream the required members of
    /// this hop with the client's capabilities. The client's reserved keys and its baggage never
    /// pass. `None` if no member is left.
    pub fn upstream(
        &self,
        revision: Revision,
        token: Option<&RawJson>,
        hop: &HopMeta,
        client: ClientFacts<'_>,
    ) -> Option<RawJson> {
        let mut out = Vec::with_capacity(256);
        self.write_upstream(&mut out, revision, token, hop, client).then(|| RawJson::trusted(out))
    }

    /// Appends the text of [`Self::upstream`] to `out`. Returns false, and appends nothing, if no
    /// member is left.
    pub(crate) fn write_upstream(
        &self,
        out: &mut Vec<u8>,
        revision: Revision,
        token: Option<&RawJson>,
        hop: &HopMeta,
        client: ClientFacts<'_>,
    ) -> bool {
        let start = out.len();
        if !self.0.is_empty() {
            self.0.write_kept(out, start, |key| match key {
                trace::PARENT | trace::STATE => self.trace().any(|(traced, _)| traced == key),
                PROGRESS_TOKEN | trace::BAGGAGE => false,
                key => !is_reserved(key),
            });
        }
        // These names were removed from the client's members above.
        let mut put = |key: &str, quote: &str, value: &[u8]| {
            out.extend_from_slice(if out.len() == start { b"{\"" } else { b",\"" });
            for piece in [key.as_bytes(), b"\":", quote.as_bytes(), value, quote.as_bytes()] {
                out.extend_from_slice(piece);
            }
        };
        if let Some(token) = token {
            put(PROGRESS_TOKEN, "", token.bytes());
        }
        if revision.era() == Era::Modern {
            put(PROTOCOL_VERSION, "\"", revision.as_str().as_bytes());
            put(CLIENT_INFO, "", hop.client_info.bytes());
            // The client's capabilities for this very call, never those of the gateway itself.
            put(CLIENT_CAPABILITIES, "", client.capabilities.map_or(b"{}", |raw| raw.bytes()));
            if let Some(level) = client.log_level {
                put(LOG_LEVEL, "\"", level.into_str().as_bytes());
            }
        }
        let is_any = out.len() > start;
        if is_any {
            out.push(b'}');
        }
        is_any
    }
}

/// Facts about a request's client that its upstream learns.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientFacts<'a> {
    pub capabilities: Option<&'a RawJson>,
    pub log_level: Option<LogLevel>,
}

/// Facts about the gateway that upstreams learn.
#[derive(Clone, Debug)]
pub struct HopMeta {
    pub(crate) client_info: RawJson,
    pub(crate) client_capabilities: RawJson,
}

impl HopMeta {
    /// Creates the facts with headend's name and without capabilities.
    pub fn bare() -> Self {
        Self::declaring(None)
    }

    /// Creates the facts with headend's name and the capabilities of its own requests.
    pub(crate) fn declaring(capabilities: Option<RawJson>) -> Self {
        let client_capabilities = capabilities.unwrap_or(RawJson::EMPTY_OBJECT);
        Self { client_info: implementation(), client_capabilities }
    }

    /// Writes the `_meta` of a request of headend's own to a modern upstream.
    pub fn envelope(&self, revision: Revision) -> RawJson {
        let own = ClientFacts { capabilities: Some(&self.client_capabilities), log_level: None };
        Meta::default().upstream(revision, None, self, own).unwrap_or(RawJson::EMPTY_OBJECT)
    }
}

/// Writes the gateway's own `Implementation`, towards clients and upstreams.
pub(crate) fn implementation() -> RawJson {
    RawJson::trusted(concat!(r#"{"name":"headend","title":"headend","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#))
}

/// Writes the gateway's `Implementation` for revisions before 2025-06-18, which have no `title`.
pub(crate) fn implementation_bare() -> RawJson {
    RawJson::trusted(concat!(r#"{"name":"headend","version":""#, env!("CARGO_PKG_VERSION"), r#""}"#))
}

/// Reports whether the specification reserves a key: its prefix has the label
/// `modelcontextprotocol` or `mcp`, in either order that revisions have reserved. Source: MCP
/// basic, "`_meta`", 2025-06-18 and 2026-07-28.
fn is_reserved(key: &str) -> bool {
    // Fast path: most reserved keys begin like this.
    if key.starts_with("io.modelcontextprotocol/") {
        return true;
    }
    key.split_once('/')
        .is_some_and(|(prefix, _)| prefix.split('.').any(|label| matches!(label, "modelcontextprotocol" | "mcp")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(text: &'static str) -> Meta {
        Meta(RawObject::parse(&RawJson::trusted(text)).unwrap())
    }

    #[test]
    fn a_modern_envelope_needs_its_keys_in_their_types() {
        const V: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
        for (label, text, ok) in [
            ("complete", format!(r#"{{{V},"{CLIENT_CAPABILITIES}":{{}}}}"#), true),
            ("no capabilities", format!("{{{V}}}"), false),
            ("no version", format!(r#"{{"{CLIENT_CAPABILITIES}":{{}}}}"#), false),
            ("version no string", format!(r#"{{"{PROTOCOL_VERSION}":1,"{CLIENT_CAPABILITIES}":{{}}}}"#), false),
            ("capabilities no object", format!(r#"{{{V},"{CLIENT_CAPABILITIES}":[]}}"#), false),
            ("loud", format!(r#"{{{V},"{CLIENT_CAPABILITIES}":{{}},"{LOG_LEVEL}":"loud"}}"#), false),
            ("named", format!(r#"{{{V},"{CLIENT_CAPABILITIES}":{{}},"{CLIENT_INFO}":{{"name":"x"}}}}"#), true),
            (
                "named in a number",
                format!(r#"{{{V},"{CLIENT_CAPABILITIES}":{{}},"{CLIENT_INFO}":{{"name":7}}}}"#),
                false,
            ),
            ("named no object", format!(r#"{{{V},"{CLIENT_CAPABILITIES}":{{}},"{CLIENT_INFO}":["name"]}}"#), false),
        ] {
            let raw = RawObject::parse(&RawJson::trusted(text)).unwrap();
            assert_eq!(Meta(raw).modern().is_ok(), ok, "{label}");
        }
    }

    #[test]
    fn only_vendor_keys_and_our_own_token_go_upstream() {
        let client = meta(
            r#"{"progressToken":"p","io.modelcontextprotocol/logLevel":"info","mcp.dev/x":1,"acme.com/y":2,"traceparent":"00-a","tracestate":"a=b","baggage":"c=d"}"#,
        );
        let token = RawJson::trusted("42");
        let legacy =
            client.upstream(Revision::V2025_11_25, Some(&token), &HopMeta::bare(), ClientFacts::default()).unwrap();
        assert_eq!(legacy.text(), r#"{"acme.com/y":2,"progressToken":42}"#);
        assert!(
            Meta::default().upstream(Revision::V2025_11_25, None, &HopMeta::bare(), ClientFacts::default()).is_none()
        );
        for revision in Revision::of(Era::Modern) {
            let modern = HopMeta::bare().envelope(revision);
            let claim = format!(r#"{{"{PROTOCOL_VERSION}":"{revision}","{CLIENT_INFO}":{{"#);
            assert!(modern.text().starts_with(&claim), "{}", modern.text());
            let read = Meta(RawObject::parse(&modern).unwrap()).modern().unwrap();
            assert!(matches!(read.version, Cow::Borrowed(text) if text == revision.as_str()));
        }
    }

    #[test]
    fn a_well_formed_trace_context_goes_upstream_and_nothing_else_of_that_name() {
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let own = format!(r#""traceparent":"{PARENT}""#);
        for (label, text, header, want) in [
            ("own", format!(r#"{{{own},"tracestate":"a=b"}}"#), None, format!(r#"{{{own},"tracestate":"a=b"}}"#)),
            ("bad state", format!(r#"{{{own},"tracestate":"="}}"#), None, format!("{{{own}}}")),
            ("state alone", r#"{"tracestate":"a=b"}"#.to_owned(), None, String::new()),
            ("no string", r#"{"traceparent":7,"baggage":"x=y"}"#.to_owned(), None, String::new()),
            ("header", "{}".to_owned(), Some((PARENT, Some("a=b"))), format!(r#"{{{own},"tracestate":"a=b"}}"#)),
            ("header, bad state", "{}".to_owned(), Some((PARENT, Some("a"))), format!("{{{own}}}")),
            ("bad header", "{}".to_owned(), Some(("00", Some("a=b"))), String::new()),
            ("both", format!("{{{own}}}"), Some(("00-1-2-3", None)), format!("{{{own}}}")),
            ("own but bad", r#"{"traceparent":"x"}"#.to_owned(), Some((PARENT, None)), String::new()),
        ] {
            let mut meta = Meta(RawObject::parse(&RawJson::trusted(text)).unwrap());
            if let Some((parent, state)) = header {
                meta.fall_back_on(parent, state);
            }
            let sent = meta.upstream(Revision::V2025_11_25, None, &HopMeta::bare(), ClientFacts::default());
            assert_eq!(sent.map_or(String::new(), |sent| sent.text().into_owned()), want, "{label}");
        }
    }

    #[test]
    fn progress_tokens_are_strings_or_integers() {
        assert!(meta(r#"{"progressToken":{"a":1}}"#).progress_token().is_err());
        assert!(meta(r#"{"progressToken":7}"#).progress_token().unwrap().is_some());
        assert!(meta("{}").progress_token().unwrap().is_none());
    }
}
