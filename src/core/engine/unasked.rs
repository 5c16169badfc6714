//! Unasked messages of a server, notifications and requests, and the clients that get them. For every transport.

use serde_json::value::RawValue;

use crate::engine::ask::{Candidates, ClientAnswer, Declared, OpenRequests, ServerRequest, Verdict, judge, unable};
use crate::engine::fault::Fault;
use crate::mcp::method::List;
use crate::mcp::notice::NoticeKind;
use crate::wire::id::WireId;
use crate::wire::message::{Notification, Request};
use crate::wire::raw::{RawJson, RawObject};

/// Where a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// All calls share it: the pipe of a process, a session's own stream.
    Shared,
    /// The answer to one call.
    Call(WireId),
    /// The answer to a call that wants everything on its stream.
    Listening(WireId),
    /// The answer to a request of the gateway's own.
    Own,
}

/// Whom a notification is for.
#[derive(Debug)]
pub enum Told {
    /// `params` of the progress of that request.
    Progress(WireId, RawJson),
    /// A log message of that call; of the only one in flight, if there is one, where the stream does not tell.
    Log(Option<WireId>, Notification),
    /// The server's request of that id needs no answer any more.
    Withdrawn(RawJson),
    /// The call that wants everything on its stream.
    Notice(WireId, Notification),
    /// The client whose session this is, if it is one client's.
    Owner(Notification),
    /// Whoever watches that resource.
    Updated(String),
    /// These lists have changed.
    Changed(&'static [List]),
    Wrong(Fault),
    Nobody,
}

/// Says whom a notification is for.
pub fn told(notice: Notification, stream: Stream) -> Told {
    let kind = NoticeKind::of(&notice.method);
    match (kind, stream) {
        (NoticeKind::Updated | NoticeKind::Changed(_) | NoticeKind::Other, Stream::Listening(id)) => {
            Told::Notice(id, notice)
        }
        (NoticeKind::Progress, _) => {
            let token = notice.params.as_ref().and_then(progress_token);
            match (token, notice.params, stream) {
                (Some(token), Some(params), Stream::Shared) => Told::Progress(token, params),
                (Some(token), Some(params), Stream::Call(id) | Stream::Listening(id)) if token == id => {
                    Told::Progress(token, params)
                }
                _ => Told::Wrong(Fault::BadProgress),
            }
        }
        (NoticeKind::Log, Stream::Shared) => Told::Log(None, notice),
        (NoticeKind::Log, Stream::Call(id) | Stream::Listening(id)) => Told::Log(Some(id), notice),
        (NoticeKind::Log, Stream::Own) | (NoticeKind::Other, _) => Told::Nobody,
        (NoticeKind::Cancelled, _) => withdrawn_id(notice.params.as_ref()).map_or(Told::Nobody, Told::Withdrawn),
        (NoticeKind::PageDone, _) => Told::Owner(notice),
        (NoticeKind::Updated, _) => updated_uri(notice.params.as_ref()).map_or(Told::Nobody, Told::Updated),
        (NoticeKind::Changed(lists), _) => Told::Changed(lists),
    }
}

/// The id of ours that a progress notification speaks of.
fn progress_token(params: &RawJson) -> Option<WireId> {
    #[derive(serde::Deserialize)]
    struct Token<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    let token = params.parse::<Token<'_>>().ok()?.token.get();
    WireId::from_token(&RawJson::trusted(token.to_owned()))
}

/// The id in a notification that withdraws a request.
fn withdrawn_id(params: Option<&RawJson>) -> Option<RawJson> {
    RawObject::parse(params?).ok()?.get("requestId").cloned()
}

/// The URI in a notification of an update.
pub fn updated_uri(params: Option<&RawJson>) -> Option<String> {
    RawObject::parse(params?).ok()?.string("uri")
}

/// What becomes of a server's request.
#[derive(Debug)]
pub enum Asked {
    /// It is answered here; with what was wrong about it.
    Answered(ClientAnswer, Option<Fault>),
    /// It is open, and the client of that call is asked.
    Client(ServerRequest, u64),
}

/// Judges a request of the server by what it was told and by the calls that it may belong to.
pub fn asked(request: &Request, declared: &Declared, candidates: Candidates, open: &mut OpenRequests) -> Asked {
    match judge(request, declared, candidates) {
        Verdict::Answer(answer) => Asked::Answered(answer, None),
        Verdict::Refuse(answer) => Asked::Answered(answer, Some(Fault::RefusedRequest)),
        Verdict::Ambiguous(answer) => Asked::Answered(answer, Some(Fault::AmbiguousRequest)),
        Verdict::Tied(call) => {
            let (id, method, params) = (request.id.raw().clone(), request.method.clone(), request.params.clone());
            let asked = ServerRequest { id, method, params };
            if open.enter(&asked, call) {
                Asked::Client(asked, call)
            } else {
                Asked::Answered(unable(&asked.method), Some(Fault::RefusedRequest))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::input::Roots;
    use crate::mcp::kinds::Kinds;
    use crate::wire::id::ClientId;

    #[test]
    fn a_notification_is_for_whom_its_kind_and_its_stream_say() {
        let (one, listening) = (Stream::Call(WireId(7)), Stream::Listening(WireId(7)));
        let seven = r#"{"progressToken":7,"progress":1}"#;
        for (label, method, params, stream, want) in [
            ("progress on a pipe", "progress", seven, Stream::Shared, "Progress(WireId(7)"),
            ("progress on its stream", "progress", seven, one, "Progress(WireId(7)"),
            ("its token as a text", "progress", r#"{"progressToken":"7"}"#, one, "Progress(WireId(7)"),
            ("another's progress", "progress", r#"{"progressToken":8}"#, one, "Wrong(BadProgress)"),
            ("progress of a list", "progress", seven, Stream::Own, "Wrong(BadProgress)"),
            ("progress of nothing", "progress", "{}", Stream::Shared, "Wrong(BadProgress)"),
            ("a log on a pipe", "message", "{}", Stream::Shared, "Log(None"),
            ("a log of a call", "message", "{}", one, "Log(Some(WireId(7))"),
            ("a log of a list", "message", "{}", Stream::Own, "Nobody"),
            ("withdrawn", "cancelled", r#"{"requestId":"a"}"#, one, "Withdrawn("),
            ("withdrawn without an id", "cancelled", "{}", one, "Nobody"),
            ("a page", "elicitation/complete", "{}", one, "Owner("),
            ("an update", "resources/updated", r#"{"uri":"x:/"}"#, one, "Updated(\"x:/\")"),
            ("an update of a stream", "resources/updated", r#"{"uri":"x:/"}"#, listening, "Notice("),
            ("a change in a call", "tools/list_changed", "{}", one, "Changed([Tools])"),
            ("a change of a stream", "tools/list_changed", "{}", listening, "Notice("),
            ("unknown", "x", "{}", Stream::Shared, "Nobody"),
            ("unknown on a stream", "x", "{}", listening, "Notice("),
        ] {
            let (method, params) = (format!("notifications/{method}"), Some(RawJson::trusted(params)));
            let told = format!("{:?}", told(Notification { method, params }, stream));
            assert!(told.starts_with(want), "{label}: {told}");
        }
    }

    #[test]
    fn a_question_under_an_open_id_is_not_asked() {
        let declared = Declared::new(Kinds { sampling: true, ..Kinds::default() }, &Roots::Hidden);
        let id = ClientId::from_raw(RawJson::trusted("1")).unwrap();
        let request = Request { id, method: "sampling/createMessage".to_owned(), params: None };
        let mut open = OpenRequests::default();
        let mut ask = || asked(&request, &declared, Candidates::One(7), &mut open);
        assert!(matches!(ask(), Asked::Client(_, 7)));
        assert!(matches!(ask(), Asked::Answered(Err(_), Some(Fault::RefusedRequest))));
    }
}
