use bytes::Bytes;

use super::*;
use crate::wire::frame::Frame;
use crate::wire::message::Message;

fn answer(text: &str) -> Response {
    let frame = Frame::from_upstream(Bytes::from(text.to_owned())).unwrap();
    let Ok(Message::Response(answer)) = Message::parse(&frame) else { panic!("{text}") };
    answer
}

#[test]
fn only_a_transport_s_own_error_is_a_lost_session() {
    for (id, code, message, lost) in [
        (Some("null"), -32000, "Bad Request: No valid session ID provided", true),
        (Some("null"), -32000, "Bad Request: Server not initialized", true),
        (None, -32000, "", true),
        (Some("\"server-error\""), -32600, "Bad Request: No valid session ID provided", true),
        (Some("\"server-error\""), -32001, "x", true),
        (Some("null"), -32602, "Unknown SESSION", true),
        (Some("null"), -32602, "Unknown tool", false),
        (Some("null"), -32603, "x", false),
        (Some("7"), -32000, "no session", false),
        (Some("\"7\""), -32600, "no session", false),
        (Some("0"), -32001, "no session", false),
        (Some("\"\""), -32001, "no session", false),
    ] {
        let id = id.map(|id| format!(r#""id":{id},"#)).unwrap_or_default();
        let text = format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":{code},"message":"{message}"}}}}"#);
        assert_eq!(is_lost(&answer(&text)), lost, "{text}");
    }
    assert!(!is_lost(&answer(r#"{"jsonrpc":"2.0","id":null,"result":{}}"#)));
    let verdicts = [200, 400, 401, 403, 404, 405, 409, 410, 422, 429, 500, 503].map(judge);
    assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Answer).count(), 10);
}
