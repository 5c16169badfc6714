//! HTTP-specific checks of a modern request: headers that must agree with the body.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::engine::answer::RequestAnswer;
use crate::engine::client::asked::{RequestField, RequestHead, mismatch};
use crate::engine::sealed::run_id::{RunId, split_mark};
use crate::gateway::client::{ClientContext, view_of};
use crate::gateway::decision::found::rename_bare;
use crate::gateway::service::Service;
use crate::mcp::method::{ItemList, Method};
use crate::wire::json::raw::{RawJson, RawObject};

static VERSION: HeaderName = HeaderName::from_static(RequestField::Version.into_str());
static METHOD: HeaderName = HeaderName::from_static(RequestField::Method.into_str());
static NAME: HeaderName = HeaderName::from_static(RequestField::Name.into_str());

/// The headers of a request, in the form that the engine reads.
pub(crate) struct RequestHeaders<'h>(pub &'h HeaderMap);

impl RequestHead for RequestHeaders<'_> {
    fn field(&self, field: RequestField) -> (Option<&[u8]>, bool) {
        let name = match field {
            RequestField::Version => &VERSION,
            RequestField::Method => &METHOD,
            RequestField::Name => &NAME,
        };
        let mut values = self.0.get_all(name).iter();
        (values.next().map(HeaderValue::as_bytes), values.next().is_some())
    }
}

/// Returns the run of the replica in whose memory the parked call or the task of a request is, if
/// the request names one.
pub(crate) fn run_of(method: Method, params: &RawObject) -> Option<RunId> {
    let is_of_task = matches!(method, Method::TasksGet | Method::TasksUpdate | Method::TasksCancel);
    split_mark(&params.said(if is_of_task { "taskId" } else { "requestState" })?).0
}

/// Checks the headers that must repeat arguments, as the tool's schema demands. Only for tools that
/// this client can see.
///
/// # Errors
/// The answer to send.
pub(crate) fn check_param_headers(
    service: &Service,
    client: &ClientContext,
    headers: &HeaderMap,
    params: &RawObject,
) -> Result<(), RequestAnswer> {
    let snapshot = service.snapshots.load_full();
    let Some(view) = view_of(&snapshot, client).filter(|view| view.catalog.mirrors_arguments) else { return Ok(()) };
    let renamed = rename_bare(&snapshot, view, client, Method::ToolsCall, params);
    let params = renamed.as_ref().unwrap_or(params);
    let found = params.said("name").and_then(|name| view.catalog.find(ItemList::Tools, &name));
    let found = found.filter(|at| view.visible(&snapshot.policy, *at, client.viewer()));
    let Some(entry) = found.and_then(|at| view.catalog.entry(at)).filter(|entry| !entry.headers.is_empty()) else {
        return Ok(());
    };
    for (name, _) in entry.headers.params() {
        if headers.get_all(format!("mcp-param-{name}").to_ascii_lowercase()).iter().nth(1).is_some() {
            return Err(mismatch("an Mcp-Param header occurs twice"));
        }
    }
    let arguments = params.get("arguments").map(RawJson::text);
    let find = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    entry.headers.check(arguments.as_deref(), find).map_err(|error| mismatch(&error.to_string()))
}
