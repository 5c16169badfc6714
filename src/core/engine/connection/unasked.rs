//! Decides for whom an unrequested message of a server is, a notification or a request. Used by
//! every transport.

use serde_json::value::RawValue;

use crate::engine::connection::ask::{
    CallCandidates, ClientAnswer, DeclaredCapabilities, OpenRequests, RequestVerdict, ServerRequest, judge_request,
    unable_answer,
};
use crate::engine::fault::ProtocolFault;
use crate::mcp::method::ItemList;
use crate::mcp::notice::NoticeKind;
use crate::wire::id::WireId;
use crate::wire::json::raw::{RawJson, RawObject};
use crate::wire::message::{Notification, Request};

/// The stream on which a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageStream {
    /// A stream that all calls share: the pipe of a process, or a session's own stream.
    Shared,
    /// The response to one call.
    Call(WireId),
    /// The response to a `subscriptions/listen` request of a client.
    Listening(WireId),
    /// The response to a request of the gateway itself.
    Own,
}

/// The recipient of a notification.
#[derive(Debug)]
pub enum NoticeRecipient {
    /// The request whose progress this is, with the `params`.
    Progress(WireId, RawJson),
    /// The call that a log message belongs to. `None` if the stream does not tell: the message is
    /// then for the only call in flight, if there is just one.
    Log(Option<WireId>, Notification),
    /// The id of a request that the server no longer wants answered.
    Withdrawn(RawJson),
    /// The `subscriptions/listen` request on whose stream the notification came.
    Notice(WireId, Notification),
    /// The client that owns the session, if it is one client's.
    Owner(Notification),
    /// The clients that watch the resource with this URI.
    Updated(String),
    /// The lists that have changed.
    Changed(&'static [ItemList]),
    /// No recipient: the notification is a fault.
    Wrong(ProtocolFault),
    /// No recipient: the notification is ignored.
    Nobody,
}

/// Decides for whom a notification is.
pub fn find_recipient(notice: Notification, stream: MessageStream) -> NoticeRecipient {
    let kind = NoticeKind::of(&notice.method);
    match (kind, stream) {
        (NoticeKind::Updated | NoticeKind::Changed(_) | NoticeKind::Other, MessageStream::Listening(id)) => {
            NoticeRecipient::Notice(id, notice)
        }
        (NoticeKind::Progress, _) => {
            let token = notice.params.as_ref().and_then(progress_token);
            match (token, notice.params, stream) {
                (Some(token), Some(params), MessageStream::Shared) => NoticeRecipient::Progress(token, params),
                (Some(token), Some(params), MessageStream::Call(id) | MessageStream::Listening(id)) if token == id => {
                    NoticeRecipient::Progress(token, params)
                }
                _ => NoticeRecipient::Wrong(ProtocolFault::BadProgress),
            }
        }
        (NoticeKind::Log, MessageStream::Shared) => NoticeRecipient::Log(None, notice),
        (NoticeKind::Log, MessageStream::Call(id) | MessageStream::Listening(id)) => {
            NoticeRecipient::Log(Some(id), notice)
        }
        (NoticeKind::Log, MessageStream::Own) | (NoticeKind::Other, _) => NoticeRecipient::Nobody,
        (NoticeKind::Cancelled, _) => {
            withdrawn_id(notice.params.as_ref()).map_or(NoticeRecipient::Nobody, NoticeRecipient::Withdrawn)
        }
        (NoticeKind::PageDone, _) => NoticeRecipient::Owner(notice),
        (NoticeKind::Updated, _) => {
            updated_uri(notice.params.as_ref()).map_or(NoticeRecipient::Nobody, NoticeRecipient::Updated)
        }
        (NoticeKind::Changed(lists), _) => NoticeRecipient::Changed(lists),
    }
}

/// Returns our id in the progress token of a notification.
fn progress_token(params: &RawJson) -> Option<WireId> {
    #[derive(serde::Deserialize)]
    struct Token<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    let token = params.parse::<Token<'_>>().ok()?.token.get();
    WireId::from_token(&RawJson::trusted(token.to_owned()))
}

/// Returns the id of the request that a notification withdraws.
fn withdrawn_id(params: Option<&RawJson>) -> Option<RawJson> {
    RawObject::parse(params?).ok()?.get("requestId").cloned()
}

/// Returns the URI in a notification that a resource was updated.
pub fn updated_uri(params: Option<&RawJson>) -> Option<String> {
    RawObject::parse(params?).ok()?.string("uri")
}

/// The decision on a server's request.
#[derive(Debug)]
pub enum RequestDecision {
    /// The gateway answers the request itself; with the fault of the request, if any.
    Answered(ClientAnswer, Option<ProtocolFault>),
    /// The request is open, and the client of that call is asked.
    Client(ServerRequest, u64),
}

/// Judges a server's request by the declared capabilities and by the calls that it may belong to.
/// Adds it to `open` if a client is to be asked.
pub fn decide_request(
    request: &Request,
    declared: &DeclaredCapabilities,
    candidates: CallCandidates,
    open: &mut OpenRequests,
) -> RequestDecision {
    match judge_request(request, declared, candidates) {
        RequestVerdict::Answer(answer) => RequestDecision::Answered(answer, None),
        RequestVerdict::Refuse(answer) => RequestDecision::Answered(answer, Some(ProtocolFault::RefusedRequest)),
        RequestVerdict::Ambiguous(answer) => RequestDecision::Answered(answer, Some(ProtocolFault::AmbiguousRequest)),
        RequestVerdict::Tied(call) => {
            let (id, method, params) = (request.id.raw().clone(), request.method.clone(), request.params.clone());
            let asked = ServerRequest { id, method, params };
            if open.enter(&asked, call) {
                RequestDecision::Client(asked, call)
            } else {
                RequestDecision::Answered(unable_answer(&asked.method), Some(ProtocolFault::RefusedRequest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::asking::input::Roots;
    use crate::mcp::asking::kinds::InputKinds;
    use crate::wire::id::ClientId;

    #[test]
    fn a_notification_is_for_whom_its_kind_and_its_stream_say() {
        let (one, listening) = (MessageStream::Call(WireId(7)), MessageStream::Listening(WireId(7)));
        let seven = r#"{"progressToken":7,"progress":1}"#;
        for (label, method, params, stream, want) in [
            ("progress on a pipe", "progress", seven, MessageStream::Shared, "Progress(WireId(7)"),
            ("progress on its stream", "progress", seven, one, "Progress(WireId(7)"),
            ("its token as a text", "progress", r#"{"progressToken":"7"}"#, one, "Progress(WireId(7)"),
            ("another's progress", "progress", r#"{"progressToken":8}"#, one, "Wrong(BadProgress)"),
            ("progress of a list", "progress", seven, MessageStream::Own, "Wrong(BadProgress)"),
            ("progress of nothing", "progress", "{}", MessageStream::Shared, "Wrong(BadProgress)"),
            ("a log on a pipe", "message", "{}", MessageStream::Shared, "Log(None"),
            ("a log of a call", "message", "{}", one, "Log(Some(WireId(7))"),
            ("a log of a list", "message", "{}", MessageStream::Own, "Nobody"),
            ("withdrawn", "cancelled", r#"{"requestId":"a"}"#, one, "Withdrawn("),
            ("withdrawn without an id", "cancelled", "{}", one, "Nobody"),
            ("a page", "elicitation/complete", "{}", one, "Owner("),
            ("an update", "resources/updated", r#"{"uri":"x:/"}"#, one, "Updated(\"x:/\")"),
            ("an update of a stream", "resources/updated", r#"{"uri":"x:/"}"#, listening, "Notice("),
            ("a change in a call", "tools/list_changed", "{}", one, "Changed([Tools])"),
            ("a change of a stream", "tools/list_changed", "{}", listening, "Notice("),
            ("unknown", "x", "{}", MessageStream::Shared, "Nobody"),
            ("unknown on a stream", "x", "{}", listening, "Notice("),
        ] {
            let (method, params) = (format!("notifications/{method}"), Some(RawJson::trusted(params)));
            let told = format!("{:?}", find_recipient(Notification { method, params }, stream));
            assert!(told.starts_with(want), "{label}: {told}");
        }
    }

    #[test]
    fn a_question_under_an_open_id_is_not_asked() {
        let declared =
            DeclaredCapabilities::new(InputKinds { sampling: true, ..InputKinds::default() }, &Roots::Hidden);
        let id = ClientId::from_raw(RawJson::trusted("1")).unwrap();
        let request = Request { id, method: "sampling/createMessage".to_owned(), params: None };
        let mut open = OpenRequests::default();
        let mut ask = || decide_request(&request, &declared, CallCandidates::One(7), &mut open);
        assert!(matches!(ask(), RequestDecision::Client(_, 7)));
        assert!(matches!(ask(), RequestDecision::Answered(Err(_), Some(ProtocolFault::RefusedRequest))));
    }
}
