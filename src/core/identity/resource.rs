//! The places that clients call with a token: the endpoint and each profile. Each has its own
//! address, which is an audience there and nowhere else, and its own metadata.
//!
//! Source: RFC 9728, sections 2 and 3.1; RFC 8707.

use bytes::Bytes;
use url::Url;

use super::terms::IssuerTerms;
use crate::wire::json::raw::{RawJson, RawObject};

/// The path under which the metadata of a resource lies; the path of the resource follows it.
pub const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// One place, with everything that its clients learn and its tokens need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtectedResource {
    /// The address of the place, the only audience that is its own.
    pub address: String,
    /// The path of the metadata on this server.
    pub metadata_path: String,
    /// The address of the metadata.
    pub metadata_address: String,
    /// The metadata.
    pub document: Bytes,
    /// Audiences of issuers that are accepted here; `None` for all of them.
    other_audiences: Option<Vec<String>>,
}

impl ProtectedResource {
    /// Describes the place at `path` below the public address. `public` has no slash at its end.
    /// `audiences` are the issuers' audiences that are accepted there; `None` for all of them.
    pub fn new<'a>(
        public: &str,
        path: &str,
        issuers: impl Iterator<Item = &'a IssuerTerms>,
        scopes: &[String],
        audiences: Option<Vec<String>>,
    ) -> Self {
        let address = format!("{public}{path}");
        // The path of the public address comes after the well-known part.
        let (origin, base) = match Url::parse(public) {
            Ok(url) => (url.origin().ascii_serialization(), url.path().trim_end_matches('/').to_owned()),
            Err(_) => (public.to_owned(), String::new()),
        };
        let metadata_path = format!("{WELL_KNOWN}{base}{path}");
        let metadata_address = format!("{origin}{metadata_path}");
        let mut document = RawObject::of([
            ("resource", RawJson::string(&address)),
            ("authorization_servers", RawJson::list(issuers.map(|terms| RawJson::string(&terms.issuer)))),
            ("bearer_methods_supported", RawJson::list([RawJson::string("header")])),
        ]);
        let listed = (!scopes.is_empty()).then(|| RawJson::list(scopes.iter().map(|scope| RawJson::string(scope))));
        document.set_some("scopes_supported", listed);
        let document = document.encode().into_bytes();
        Self { address, metadata_path, metadata_address, document, other_audiences: audiences }
    }

    /// Reports whether a token with these audiences is for this place. The audiences of its issuer
    /// count where the place accepts them.
    pub fn accepts(&self, audiences: &[String], terms: &IssuerTerms) -> bool {
        let is_accepted = |audience: &String| {
            *audience == self.address
                || terms.audiences.contains(audience)
                    && self.other_audiences.as_ref().is_none_or(|accepted| accepted.contains(audience))
        };
        audiences.iter().any(is_accepted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(public: &str, path: &str, audiences: Option<&[&str]>) -> ProtectedResource {
        let terms = IssuerTerms::new("corp".to_owned(), "https://login.example.com".to_owned());
        let audiences = audiences.map(|some| some.iter().map(|one| (*one).to_owned()).collect());
        ProtectedResource::new(public, path, std::iter::once(&terms), &["a".to_owned()], audiences)
    }

    #[test]
    fn the_metadata_lies_between_the_origin_and_the_path() {
        for (public, path, address, metadata) in [
            (
                "https://h.example",
                "/mcp",
                "https://h.example/mcp",
                "https://h.example/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "https://h.example/base",
                "/mcp/p",
                "https://h.example/base/mcp/p",
                "https://h.example/.well-known/oauth-protected-resource/base/mcp/p",
            ),
            (
                "http://127.0.0.1:8627",
                "/mcp",
                "http://127.0.0.1:8627/mcp",
                "http://127.0.0.1:8627/.well-known/oauth-protected-resource/mcp",
            ),
        ] {
            let place = place(public, path, None);
            assert_eq!((&*place.address, &*place.metadata_address), (address, metadata));
            assert!(metadata.ends_with(&place.metadata_path), "{metadata}");
        }
    }

    #[test]
    fn the_document_names_the_place_its_issuers_and_its_scopes() {
        let want = "{\"resource\":\"https://h.example/mcp\",\"authorization_servers\":[\"https://login.example.com\"],\
                    \"bearer_methods_supported\":[\"header\"],\"scopes_supported\":[\"a\"]}";
        assert_eq!(place("https://h.example", "/mcp", None).document, want);
    }

    #[test]
    fn a_place_accepts_its_own_address_and_audiences_of_the_issuer() {
        let mut terms = IssuerTerms::new("corp".to_owned(), "https://login.example.com".to_owned());
        terms.audiences = vec!["api://headend".to_owned()];
        let endpoint = place("https://h.example", "/mcp", None);
        let closed = place("https://h.example", "/mcp/p", Some(&[]));
        let open = place("https://h.example", "/mcp/p", Some(&["api://headend", "api://unknown"]));
        for (audience, wanted) in [
            ("https://h.example/mcp", [true, false, false]),
            ("https://h.example/mcp/p", [false, true, true]),
            ("https://h.example/mcp/", [false, false, false]),
            ("https://h.example", [false, false, false]),
            ("api://headend", [true, false, true]),
            ("api://unknown", [false, false, false]),
        ] {
            let audiences = ["https://other.example".to_owned(), audience.to_owned()];
            assert_eq!(
                [&endpoint, &closed, &open].map(|place| place.accepts(&audiences, &terms)),
                wanted,
                "{audience}"
            );
        }
    }
}
