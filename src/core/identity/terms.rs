//! The operator's terms for the tokens of one issuer.

use serde::Serialize;
use strum::VariantArray as _;

use super::algorithm::SignatureAlgorithm;

/// The default of `types`. Source: RFC 9068, section 2.1.
pub const ACCESS_TOKEN: &str = "at+jwt";
/// The type of any JWT, ID tokens included.
pub const ANY_JWT: &str = "JWT";

/// A `[[server.auth.issuers]]` table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct IssuerTerms {
    /// The first half of the names of its callers.
    pub name: String,
    /// The value of `iss`, compared as text.
    pub issuer: String,
    /// Audiences accepted besides the address of the place, at the endpoint and at profiles that
    /// list them.
    pub audiences: Vec<String>,
    pub algorithms: Vec<SignatureAlgorithm>,
    /// Accepted values of `typ`, without `application/`.
    pub types: Vec<String>,
    pub subject_claim: String,
    pub scopes_claim: String,
    pub groups_claim: String,
}

impl IssuerTerms {
    /// Returns the defaults for an issuer with this name and this `iss`.
    pub fn new(name: String, issuer: String) -> Self {
        Self {
            name,
            issuer,
            audiences: Vec::new(),
            algorithms: SignatureAlgorithm::VARIANTS.to_vec(),
            types: vec![ACCESS_TOKEN.to_owned()],
            subject_claim: "sub".to_owned(),
            scopes_claim: "scope".to_owned(),
            groups_claim: "groups".to_owned(),
        }
    }
}

/// Returns a media type without `application/`, which tokens may leave out. Types are compared
/// without regard to case. Source: RFC 7515, section 4.1.9.
pub fn short_type(text: &str) -> &str {
    const PREFIX: &str = "application/";
    match text.split_at_checked(PREFIX.len()) {
        Some((prefix, rest)) if prefix.eq_ignore_ascii_case(PREFIX) && !rest.contains('/') => rest,
        Some(_) | None => text,
    }
}
