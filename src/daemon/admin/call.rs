//! The admin method `call`: one tool call on the same path as the call of an MCP client.

use std::sync::Arc;

use crate::daemon::gateway::Gateway;
use crate::engine::route::Params;
use crate::gateway::call::ClientEvent;
use crate::gateway::client::ClientContext;
use crate::gateway::waiting::client_call::Handled;
use crate::listener::credentials::CallerAccess;
use crate::mcp::meta::Meta;
use crate::mcp::method::Method;
use crate::mcp::version::{Era, Revision};
use crate::operator::views::View;
use crate::operator::{Refusal, tools};
use crate::wire::id::ClientId;
use crate::wire::message::Request;
use crate::wire::raw::{RawJson, RawObject};

/// Calls a tool for a user of the socket and waits for the result. An operator who names a withheld
/// tool gets the reason as the refusal.
pub(crate) async fn call(gateway: &Arc<Gateway>, caller: &CallerAccess, params: &RawJson) -> Result<View, Refusal> {
    gateway.service.settled().await;
    let CallerAccess { caller, access } = caller.clone();
    let raw = Some(params.clone());
    let params = Params::read(raw.as_ref());
    let tool = params.as_ref().ok().and_then(|params| params.object.string("name")).unwrap_or_default();
    if caller.is_operator()
        && let Some(why) = tools::withheld(&gateway.service.snapshots.load(), &tool)
    {
        return Err(Refusal::Refused(why));
    }
    let client = ClientContext::new(caller, access, None, Revision::preferred(Era::Legacy));
    // This side cannot tell whether the command still waits, so the call does not wait for an
    // approval.
    let client = ClientContext { can_wait: false, ..client };
    let id = ClientId::from_raw(RawJson::trusted("1")).ok_or_else(|| Refusal::refused("no id"))?;
    let method = Method::ToolsCall.as_str().to_owned();
    let asked = Request { id, method, params: raw };
    debug_assert!(!Meta::default().has_claim());
    let answer = match gateway.service.handle(&client, &asked, params) {
        Handled::Answer(answer) => answer,
        Handled::Later(answer) => answer.await,
        Handled::Overloaded => return Err(Refusal::refused("too many calls in flight")),
        Handled::Call(mut call) => loop {
            if let ClientEvent::Done(answer) = call.next().await {
                break answer;
            }
        },
    };
    answer.outcome.map(View::Raw).map_err(|error| {
        let message = RawObject::parse(&error).ok().and_then(|e| e.string("message"));
        Refusal::Refused(message.unwrap_or_else(|| "the call failed".to_owned()))
    })
}
