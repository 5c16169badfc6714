//! Routes the read of a URI that a tool's result handed to the caller.

use super::{CallResumption, RoutedRequest, item};
use crate::catalog::merge::Catalog;
use crate::catalog::name::{UpstreamName, canonical_uri};
use crate::engine::askers::CallOrigin;
use crate::engine::call::OutgoingCall;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::wire::json::raw::RawObject;

/// Builds the upstream's request for the read of a handed URI, whose visibility is left to the
/// decision; `None` if the upstream is gone, or if the URI is withheld or hidden by a filter.
pub fn route_handed(
    catalog: &Catalog,
    (upstream, uri): (&UpstreamName, &str),
    params: &RawObject,
    meta: Meta,
) -> Option<RoutedRequest> {
    let method = Method::ResourcesRead;
    let entry = catalog.find_handed(upstream, uri)?;
    let is_listed = catalog.entry(entry).is_some_and(|entry| *entry.original == *uri);
    let (resume, token) = (CallResumption::read(method, params).ok()?, meta.progress_token().ok()?);
    let outgoing = OutgoingCall {
        body: RawObject::of_strings(&[("uri", uri)]),
        wants_progress: token.is_some(),
        capabilities: meta.input_capabilities(),
        log_level: meta.log_level(),
        party: CallOrigin { item: item(catalog, method, entry), ..CallOrigin::default() },
        ..OutgoingCall::own(method, meta)
    };
    Some(RoutedRequest {
        entry,
        canonical: (!is_listed).then(|| canonical_uri(upstream, uri)),
        outgoing,
        token,
        resume,
    })
}
