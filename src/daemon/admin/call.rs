//! The admin method `call`: one tool call on the same path as the call of an MCP client.

use std::sync::Arc;

use crate::daemon::gateway::RunningGateway;
use crate::engine::route::RequestParams;
use crate::gateway::call::ClientEvent;
use crate::gateway::client::ClientContext;
use crate::gateway::waiting::client_call::RequestOutcome;
use crate::listener::callers::credentials::CallerAccess;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::operator::views::OperatorView;
use crate::operator::{OperatorRefusal, tools};
use crate::wire::id::ClientId;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::Request;

/// Calls a tool for a user of the socket and waits for the result. An operator who names a withheld
/// tool gets the reason as the refusal.
pub(crate) async fn call(
    gateway: &Arc<RunningGateway>,
    caller: &CallerAccess,
    params: &RawJson,
) -> Result<OperatorView, OperatorRefusal> {
    gateway.service.settled().await;
    let CallerAccess { caller, access } = caller.clone();
    let raw = Some(params.clone());
    let params = RequestParams::read(raw.as_ref());
    let tool = params.as_ref().ok().and_then(|params| params.object.string("name")).unwrap_or_default();
    if caller.is_operator()
        && let Some(why) = tools::why_withheld(&gateway.service.snapshots.load(), &tool)
    {
        return Err(OperatorRefusal::Refused(why));
    }
    let client = ClientContext::new(caller, access, None, Revision::preferred(Era::Legacy));
    // This side cannot tell whether the command still waits, so the call does not wait for an
    // approval.
    let client = ClientContext { can_wait: false, ..client };
    let id = ClientId::from_raw(RawJson::trusted("1")).ok_or_else(|| OperatorRefusal::refused("no id"))?;
    let method = Method::ToolsCall.as_str().to_owned();
    let asked = Request { id, method, params: raw };
    debug_assert!(!Meta::default().has_claim());
    let answer = match gateway.service.handle(&client, &asked, params) {
        RequestOutcome::Answer(answer) => answer,
        RequestOutcome::Later(answer) => answer.await,
        RequestOutcome::Overloaded => return Err(OperatorRefusal::refused("too many calls in flight")),
        RequestOutcome::Call(mut call) => loop {
            if let ClientEvent::Done(answer) = call.next().await {
                break answer;
            }
        },
    };
    answer.outcome.map(OperatorView::Raw).map_err(|error| {
        let message = RawObject::parse(&error).ok().and_then(|e| e.string("message"));
        OperatorRefusal::Refused(message.unwrap_or_else(|| "the call failed".to_owned()))
    })
}
