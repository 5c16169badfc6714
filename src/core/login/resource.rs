//! Metadata of the protected resource: where it is, and how much of it is believed. Source: RFC
//! 9728.

use url::Url;

use super::document::PeerDocument;
use super::error::{DocumentKind, OAuthError};
use super::terms::{LoginTerms, ResourceRule, parse_plain_url};

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The part of a resource's metadata that a login needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// The identifier, byte for byte as it was published.
    pub resource: String,
    /// Issuers; never empty.
    pub issuers: Vec<String>,
    pub scopes: Option<Vec<String>>,
}

impl ResourceMetadata {
    /// Returns the addresses to ask, in this order, until one has the document: the challenge's,
    /// then one below the upstream's path, then one at the root.
    ///
    /// # Errors
    /// [`OAuthError::ForeignMetadata`] if the challenge's address is not at the upstream's own
    /// origin, and [`OAuthError::Unreachable`].
    pub fn places(terms: &LoginTerms, named: Option<&str>) -> Result<Vec<Url>, OAuthError> {
        let mut places = Vec::new();
        if let Some(named) = named {
            let url = parse_plain_url(named).filter(|url| url.origin() == terms.url.origin());
            places.push(url.ok_or(OAuthError::ForeignMetadata)?);
        }
        let mut inserted = terms.url.clone();
        inserted.set_fragment(None);
        inserted.set_path(&format!("{WELL_KNOWN}{}", terms.url.path().trim_end_matches('/')));
        let mut root = inserted.clone();
        root.set_path(WELL_KNOWN);
        root.set_query(None);
        for url in [inserted, root] {
            if !places.contains(&url) {
                places.push(url);
            }
        }
        if places.iter().any(|url| terms.reach(url).is_none()) {
            return Err(OAuthError::Unreachable(DocumentKind::Resource));
        }
        Ok(places)
    }

    /// Reads the metadata.
    ///
    /// # Errors
    /// [`OAuthError::OtherResource`] if it is about another resource, and [`OAuthError::Document`].
    pub fn read(terms: &LoginTerms, document: &PeerDocument) -> Result<Self, OAuthError> {
        let resource = document.needed("resource")?;
        // The operator's own text needs no proof.
        let is_checked = !matches!(terms.resource, ResourceRule::Is(_));
        if is_checked && !covers(&resource, &terms.url) {
            return Err(OAuthError::OtherResource);
        }
        let issuers = document.texts("authorization_servers")?.unwrap_or_default();
        if issuers.is_empty() {
            return Err(document.wrong("authorization_servers"));
        }
        Ok(Self { resource, issuers, scopes: document.texts("scopes_supported")? })
    }
}

/// Returns the value of the parameter `resource`.
///
/// Without metadata there is none, since a server of before 2025-06-18 does not know the parameter;
/// but if the operator pinned an issuer, it is the upstream's own address.
pub fn resource_parameter(terms: &LoginTerms, published: Option<&ResourceMetadata>) -> Option<String> {
    match (&terms.resource, published) {
        (ResourceRule::Omit, _) => None,
        (ResourceRule::Is(text), _) => Some(text.clone()),
        (ResourceRule::Auto, Some(published)) => Some(published.resource.clone()),
        (ResourceRule::Auto, None) if !terms.issuers.is_empty() => Some(canonical(&terms.url)),
        (ResourceRule::Auto, None) => None,
    }
}

/// Returns a URL without its fragment, and without the slash that a URL parser adds to a bare host.
fn canonical(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    let is_bare = url.path() == "/" && url.query().is_none();
    let text = url.as_str();
    text.strip_suffix('/').filter(|_| is_bare).unwrap_or(text).to_owned()
}

/// Returns whether a resource is this URL, or a place above it on the same server.
fn covers(resource: &str, url: &Url) -> bool {
    let Some(resource) = parse_plain_url(resource) else { return false };
    let above = resource.path().trim_end_matches('/');
    let below = url.path().strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let same_query = resource.query().is_none() || resource.query() == url.query();
    resource.origin() == url.origin() && below && same_query
}

#[cfg(test)]
mod tests;
