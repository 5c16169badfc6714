//! Judges a request by itself and by the head of its HTTP request, before the session is looked at.
//! The body says which era it is of, and the head must say the same.

use crate::engine::answer::{RequestAnswer, invalid_params, method_not_found};
use crate::engine::route::RequestParams;
use crate::mcp::capability::unsupported_version_data;
use crate::mcp::client_name::ClientName;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::wire::code;
use crate::wire::headers::decode_value;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::Request;

/// A header field that repeats a part of the body. Its name is in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(const_into_str)]
pub enum RequestField {
    #[strum(serialize = "mcp-protocol-version")]
    Version,
    #[strum(serialize = "mcp-method")]
    Method,
    /// Name or URI of the item.
    #[strum(serialize = "mcp-name")]
    Name,
}

/// The head of an HTTP request.
pub trait RequestHead {
    /// Returns the first of these fields, and whether another follows.
    fn field(&self, field: RequestField) -> (Option<&[u8]>, bool);
}

/// Returns whether the head speaks of the modern era.
pub fn is_modern(head: &dyn RequestHead) -> bool {
    text(head.field(RequestField::Version).0).is_some_and(Revision::header_is_modern)
}

/// Returns whether the head fits a message of a session: its version is a legacy one, or missing.
pub fn fits_session(head: &dyn RequestHead) -> bool {
    let (version, again) = head.field(RequestField::Version);
    let is_legacy = |text| Revision::parse(text).is_some_and(|revision| revision.era() == Era::Legacy);
    !again && version.is_none_or(|version| text(Some(version)).is_some_and(is_legacy))
}

/// Returns a header value as trimmed text, if it is ASCII.
fn text(value: Option<&[u8]>) -> Option<&str> {
    value.filter(|value| value.is_ascii()).and_then(|value| std::str::from_utf8(value).ok()).map(str::trim)
}

/// Returns the answer to a request whose head differs from its body.
pub fn mismatch(why: &str) -> RequestAnswer {
    RequestAnswer::error(code::HEADER_MISMATCH, why, None).with_status(400)
}

/// Returns the revision that a request claims.
///
/// # Errors
/// The answer to send, if that is no modern revision that is served.
fn claimed_revision(claimed: &str) -> Result<Revision, RequestAnswer> {
    Revision::parse(claimed).filter(|revision| revision.era() == Era::Modern).ok_or_else(|| {
        let served: Vec<&str> = Revision::of(Era::Modern).rev().map(Revision::as_str).collect();
        let text = format!("Unsupported protocol version; this server speaks {}", served.join(", "));
        let data = unsupported_version_data(claimed);
        RequestAnswer::error(code::UNSUPPORTED_VERSION, &text, Some(&data)).with_status(400)
    })
}

/// Checks the version and the `Mcp-*` fields of the head against the body, and returns the revision
/// that the body names. Policy never reads these fields again.
///
/// Source: MCP 2026-07-28, streamable-http, "Server validation"; order as the official suite
/// expects it.
///
/// # Errors
/// The answer to send.
fn check(
    head: &dyn RequestHead,
    request: &Request,
    method: Method,
    params: &RawObject,
    claimed: &str,
) -> Result<Revision, RequestAnswer> {
    let once = |field: RequestField| match head.field(field) {
        (_, true) => Err(mismatch(&format!("the header {} occurs twice", field.into_str()))),
        (value, false) => Ok(value),
    };
    let (version, named, name) =
        (text(once(RequestField::Version)?), once(RequestField::Method)?, once(RequestField::Name)?);
    if version.is_some_and(|version| version != claimed) {
        return Err(mismatch("MCP-Protocol-Version differs from the version in params._meta"));
    }
    if named.is_some_and(|named| named.trim_ascii() != request.method.as_bytes()) {
        return Err(mismatch("Mcp-Method differs from the method in the body"));
    }
    let revision = claimed_revision(claimed)?;
    if version.is_none() {
        return Err(mismatch("the MCP-Protocol-Version header is missing"));
    }
    if named.is_none() {
        return Err(mismatch("the Mcp-Method header is missing"));
    }
    let Some(in_body) = method.name_member().and_then(|member| params.said(member)) else {
        return Ok(revision);
    };
    let Some(name) = name else { return Err(mismatch("the Mcp-Name header is missing")) };
    match decode_value(name) {
        Ok(value) if value == in_body => Ok(revision),
        Ok(_) => Err(mismatch("Mcp-Name differs from the name in the body")),
        Err(_) => Err(mismatch("Mcp-Name cannot be decoded")),
    }
}

/// A request that may be served as far as it can be judged by itself.
#[derive(Debug)]
pub enum CheckedRequest {
    Initialize {
        revision: Revision,
        capabilities: Option<RawJson>,
        name: Option<ClientName>,
    },
    /// A request of the legacy era.
    Legacy(RequestParams),
    /// A request of the modern era, which says everything about itself, and whose method exists.
    Modern {
        revision: Revision,
        method: Method,
        params: RequestParams,
    },
}

/// Checks the boolean members of the capabilities in `initialize`; null is absent.
///
/// # Errors
/// The answer to send, which names the member of another type.
fn check_flags(capabilities: Option<&RawJson>) -> Result<(), RequestAnswer> {
    let roots = capabilities.and_then(|raw| RawObject::parse(raw).ok()).and_then(|all| all.object("roots"));
    let is_boolean = |raw: &RawJson| raw.is_null() || matches!(raw.bytes().as_ref(), b"true" | b"false");
    if roots.is_none_or(|roots| roots.get("listChanged").is_none_or(is_boolean)) {
        return Ok(());
    }
    let text = "`capabilities.roots.listChanged` must be true or false";
    Err(RequestAnswer::error(code::INVALID_PARAMS, text, None))
}

impl CheckedRequest {
    /// Judges a request and finds its era. Requests on pipes have no head.
    ///
    /// # Errors
    /// The answer to send.
    pub fn of(request: &Request, head: Option<&dyn RequestHead>) -> Result<Self, RequestAnswer> {
        let head_is_modern = head.is_some_and(is_modern);
        if request.method.starts_with("rpc.") {
            // Reserved by JSON-RPC, so no head can make a method of these names.
            return Err(method_not_found(&request.method, if head_is_modern { Era::Modern } else { Era::Legacy }));
        }
        let method = Method::parse(&request.method);
        let params = RequestParams::read(request.params.as_ref()).map_err(|error| invalid_params(&error))?;
        match (params.meta.has_claim(), method) {
            (false, Method::Initialize) if head_is_modern => {
                Err(mismatch("`initialize` does not exist in the version that the header names"))
            }
            (false, Method::Initialize) => {
                let missing =
                    || RequestAnswer::error(code::INVALID_PARAMS, "`initialize` needs params.protocolVersion", None);
                let version = params.object.string("protocolVersion").ok_or_else(missing)?;
                let capabilities = params.object.get("capabilities").cloned();
                check_flags(capabilities.as_ref())?;
                let name = params.object.get("clientInfo").and_then(ClientName::read);
                Ok(Self::Initialize { revision: Revision::negotiate(&version), capabilities, name })
            }
            (false, _) if !head_is_modern => Ok(Self::Legacy(params)),
            _ => Self::modern(request, head, method, params),
        }
    }

    /// Judges a request whose body or head says that it is modern.
    fn modern(
        request: &Request,
        head: Option<&dyn RequestHead>,
        method: Method,
        params: RequestParams,
    ) -> Result<Self, RequestAnswer> {
        let envelope = params.meta.modern();
        let envelope = envelope
            .map_err(|error| RequestAnswer::error(code::INVALID_PARAMS, &error.to_string(), None).with_status(400))?;
        let revision = match head {
            Some(head) => check(head, request, method, &params.object, &envelope.version)?,
            None => claimed_revision(&envelope.version)?,
        };
        if !method.defined_in(revision.era()) {
            return Err(method_not_found(&request.method, revision.era()));
        }
        Ok(Self::Modern { revision, method, params })
    }
}
