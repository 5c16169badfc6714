//! The challenge in `WWW-Authenticate`, by which a client learns what its credential lacks.
//!
//! Source: RFC 6750, section 3, and RFC 9728, section 5.1.

use http::header::WWW_AUTHENTICATE;
use http::{HeaderValue, Response};

use crate::listener::body::ReplyBody;

/// A challenge to send a bearer token. Each text is of visible ASCII and spaces, without `"` and
/// `\`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BearerChallenge<'a> {
    pub error: Option<&'a str>,
    /// The scopes that the request needs, with spaces between.
    pub scope: Option<&'a str>,
    /// The address of the metadata of the protected resource.
    pub resource_metadata: Option<&'a str>,
}

impl BearerChallenge<'_> {
    /// Returns the value of the header.
    pub fn header(&self) -> HeaderValue {
        let params = [("error", self.error), ("scope", self.scope), ("resource_metadata", self.resource_metadata)];
        let params: Vec<String> =
            params.into_iter().filter_map(|(name, value)| Some(format!("{name}=\"{}\"", value?))).collect();
        let challenge = format!("Bearer {}", params.join(", "));
        HeaderValue::from_str(challenge.trim_end()).unwrap_or(HeaderValue::from_static("Bearer"))
    }
}

/// The scopes that a refused request needs, in the extensions of its response.
#[derive(Clone, Debug)]
pub struct NeededScopes(pub Box<str>);

impl NeededScopes {
    /// Takes the scopes out of a response; `None` if it was not refused for want of scopes.
    pub fn take(response: &mut Response<ReplyBody>) -> Option<Self> {
        response.extensions_mut().remove()
    }

    /// Adds the challenge to the response.
    pub fn challenge(&self, response: &mut Response<ReplyBody>, resource_metadata: Option<&str>) {
        let scope = Some(&*self.0);
        let challenge = BearerChallenge { error: Some("insufficient_scope"), scope, resource_metadata };
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge.header());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_says_what_it_has_to() {
        let (error, scope) = (Some("insufficient_scope"), Some("mcp:read mcp:write"));
        let resource_metadata = Some("https://mcp.example.com/.well-known/oauth-protected-resource");
        for (challenge, want) in [
            (BearerChallenge::default(), "Bearer"),
            (BearerChallenge { error: Some("invalid_token"), ..Default::default() }, r#"Bearer error="invalid_token""#),
            (
                BearerChallenge { error, scope, resource_metadata },
                "Bearer error=\"insufficient_scope\", scope=\"mcp:read mcp:write\", \
                 resource_metadata=\"https://mcp.example.com/.well-known/oauth-protected-resource\"",
            ),
            (BearerChallenge { scope: Some("a\nb"), ..Default::default() }, "Bearer"),
        ] {
            assert_eq!(challenge.header(), want);
        }
    }
}
