//! Every JSON-RPC error code that the gateway sends or recognises, with its source.

/// Text that is not JSON. JSON-RPC 2.0.
pub const PARSE_ERROR: i64 = -32700;
/// JSON that is not a JSON-RPC message. JSON-RPC 2.0.
pub const INVALID_REQUEST: i64 = -32600;
/// Unknown method. JSON-RPC 2.0; HTTP 404 in 2026-07-28.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// Bad parameters, and since 2024-11-05 also an unknown tool, prompt or cursor. JSON-RPC 2.0.
pub const INVALID_PARAMS: i64 = -32602;
/// The gateway or an upstream failed. JSON-RPC 2.0.
pub const INTERNAL: i64 = -32603;
/// Unknown resource, up to 2025-11-25 only. MCP server/resources.
pub const RESOURCE_NOT_FOUND: i64 = -32002;
/// A header is missing, malformed or differs from the body. MCP 2026-07-28, streamable-http.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
/// The client lacks a capability that the request needs. MCP 2026-07-28, basic.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The claimed protocol version is not served. MCP 2026-07-28, versioning.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// A person or a client declined a request of a server. MCP client/sampling, the example of all
/// revisions.
pub(crate) const REJECTED: i64 = -1;
/// The client must open a page before the call; 2025-11-25 only. MCP 2025-11-25,
/// client/elicitation.
pub const URL_ELICITATION_REQUIRED: i64 = -32042;
/// Ours: a rule refused the request. Outside the reserved range, as the specification recommends.
pub(crate) const DENIED: i64 = 1001;
/// Ours: a limit refused the request.
pub(crate) const LIMITED: i64 = 1002;
/// Ours: a person has to approve the call first.
pub(crate) const AWAITING_APPROVAL: i64 = 1003;

/// Returns the code that a client gets for an upstream's error. A reserved code without a defined
/// meaning becomes [`INTERNAL`].
///
/// Source: MCP 2026-07-28, basic, "Error codes": -32000..-32019 carry no meaning, undefined ones up
/// to -32099 must not be sent.
pub fn outward(code: i64) -> i64 {
    match code {
        PARSE_ERROR | INVALID_REQUEST | METHOD_NOT_FOUND | INVALID_PARAMS | INTERNAL => code,
        -32768..=-32000 => INTERNAL,
        _ => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_codes_without_meaning_become_internal_errors() {
        for (label, code, want) in [
            ("standard", INVALID_PARAMS, INVALID_PARAMS),
            ("legacy implementation range", -32001, INTERNAL),
            ("resource not found is translated by its caller", RESOURCE_NOT_FOUND, INTERNAL),
            ("undefined reserved", -32050, INTERNAL),
            ("this hop's header error", HEADER_MISMATCH, INTERNAL),
            ("application code", -1, -1),
            ("application code", 1234, 1234),
        ] {
            assert_eq!(outward(code), want, "{label} {code}");
        }
    }
}
