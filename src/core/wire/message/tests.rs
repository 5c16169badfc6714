use super::*;
use proptest::prelude::*;

fn frame(text: &str) -> Frame {
    Frame::from_client(Bytes::copy_from_slice(text.as_bytes()), JsonBounds::CLIENT).unwrap()
}

fn parse(text: &str) -> Result<Message, MessageError> {
    Message::parse(&frame(text))
}

#[test]
fn messages_are_told_apart_by_their_members() {
    for (text, want) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#, "request"),
        (r#"{"jsonrpc":"2.0","method":"x","params":{}}"#, "notification"),
        (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, "response"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, "response"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#, "shape"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#, "shape"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, "shape"),
        (r#"{"id":1,"method":"x"}"#, "shape"),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, "shape"),
        (r#"{"jsonrpc":"2.0","id":1,"result":1,"error":2}"#, "shape"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"x","result":1}"#, "shape"),
        (r#"["2.0",1,"tools/call",{}]"#, "shape"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#, "syntax"),
    ] {
        let got = match parse(text) {
            Ok(Message::Request(_)) => "request",
            Ok(Message::Notification(_)) => "notification",
            Ok(Message::Response(_)) => "response",
            Err(MessageError::Shape { .. }) => "shape",
            Err(MessageError::Syntax) => "syntax",
        };
        assert_eq!(got, want, "{text}");
    }
}

#[test]
fn a_message_of_an_upstream_with_one_reading_is_read_so() {
    let read = |text: &str| {
        let frame = Frame::from_upstream(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        match Message::of_upstream(&frame, JsonBounds::CLIENT) {
            Ok((message, _, quirk)) => (told(Ok(message)), quirk),
            Err(error) => (told(Err(error)), None),
        }
    };
    let result = r#"response Some("7") Ok("{}")"#;
    for (text, want, quirk) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, result, None),
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#, result, Some(Quirk::NullMember)),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":null,"params":null,"result":{},"error":null}"#,
            result,
            Some(Quirk::NullMember),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"result":null,"error":{}}"#,
            r#"response Some("7") Err("{}")"#,
            Some(Quirk::NullMember),
        ),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"notifications/x","params":null}"#,
            "notification notifications/x None",
            Some(Quirk::NullMember),
        ),
        (r#"{"jsonrpc":"2.0","id":"7","result":{}}"#, result, Some(Quirk::OtherId)),
        (r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#, result, Some(Quirk::OtherId)),
        (r#"{"jsonrpc":"2.0","id":"07","result":{}}"#, r#"response Some("\"07\"") Ok("{}")"#, None),
        (r#"{"jsonrpc":"2.0","id":"7","method":"ping"}"#, r#"request "7" ping None"#, None),
        // No reading, or two.
        (r#"{"jsonrpc":"2.0","id":7,"result":null}"#, r#"response Some("7") Ok("null")"#, None),
        (r#"{"jsonrpc":"2.0","id":7,"result":null,"error":null}"#, r#"both `result` and `error` Some("7")"#, None),
        (r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#, r#"both `result` and `error` Some("7")"#, None),
        (r#"{"id":7,"result":{}}"#, r#"`jsonrpc` must be "2.0" Some("7")"#, None),
    ] {
        assert_eq!(read(text), (want.to_owned(), quirk), "{text}");
    }
    let client = parse(r#"{"jsonrpc":"2.0","id":"7","result":{}}"#);
    assert_eq!(told(client), r#"response Some("\"7\"") Ok("{}")"#, "a client's id is its own");
}

/// Formats everything that a message holds.
fn told(message: Result<Message, MessageError>) -> String {
    let json = |raw: &RawJson| raw.text().into_owned();
    match message {
        Ok(Message::Request(Request { id, method, params })) => {
            format!("request {} {method} {:?}", json(id.raw()), params.as_ref().map(json))
        }
        Ok(Message::Notification(Notification { method, params })) => {
            format!("notification {method} {:?}", params.as_ref().map(json))
        }
        Ok(Message::Response(Response { id, outcome, .. })) => {
            format!("response {:?} {:?}", id.as_ref().map(json), outcome.as_ref().map(json).map_err(json))
        }
        Err(MessageError::Shape { why, id }) => format!("{why} {:?}", id.as_ref().map(|id| json(id.raw()))),
        Err(MessageError::Syntax) => "no JSON".to_owned(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn one_pass_reads_what_the_library_reads(
        members in prop::collection::vec((
            prop::sample::select(vec!["jsonrpc", "jsonrpc", "id", "method", "method", "params", "result", "error", "x", "\\u0069d", ""]),
            prop::sample::select(vec![
                "\"2.0\"", "\"2\\u002e0\"", "1", "-1.5", "\"a\"", "\"\\ud800\"", "null", "{ }", "[1,{\"id\":2}]", "\"tools/call\"",
                "{\"a\":{\"a\":\"b\"}}", "{\"\\ud800\":1}", "01", "\"a", "{\"a\":1,\"a\":2}", "",
            ]),
        ), 0..6),
        begin in prop::sample::select(vec!["{\"jsonrpc\":\"2.0\",", "{", " {", "{\"jsonrpc\":\"2.0\",\"id\":7,", "["]),
        end in prop::sample::select(vec!["}", "}", "} ", " }", "", "}}", "]"]),
    ) {
        let members: Vec<String> = members.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
        let text = format!("{begin}{}{end}", members.join(","));
        let bytes = Bytes::from(text.clone());
        let frame = Frame::from_upstream(bytes.clone()).unwrap();
        prop_assert_eq!(told(Message::parse(&frame)), told(Message::read_whole(&bytes, false).map(|(message, _)| message)), "{}", text);
        if let Ok(frame) = Frame::from_client(bytes.clone(), JsonBounds::CLIENT) {
            prop_assert_eq!(told(Message::parse(&frame)), told(Message::read_whole(&bytes, false).map(|(message, _)| message)), "{}", text);
        }
    }
}

#[test]
fn ids_come_back_byte_for_byte() {
    for id in ["12345678901234567890123", "\"\\u0061\"", "-0"] {
        let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#);
        let Ok(Message::Request(request)) = parse(&text) else { panic!("{id}") };
        let answer = encode_result(request.id.raw(), b"{}");
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
}

#[test]
fn a_shape_error_still_knows_the_id() {
    let Err(MessageError::Shape { id: Some(id), .. }) = parse(r#"{"jsonrpc":"1.0","id":7,"method":"x"}"#) else {
        panic!("id lost")
    };
    assert_eq!(id.raw().bytes().as_ref(), b"7");
}
