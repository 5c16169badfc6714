//! Lines that are no message, and messages with one reading.

use super::*;

/// Returns a line with that id for `ID`, in the line's own encoding.
fn with_id(line: &[u8], id: &Value) -> Vec<u8> {
    let replaced = |from: &[u8], to: &[u8]| {
        let at = line.windows(from.len()).position(|part| part == from)?;
        Some([&line[..at], to, &line[at + from.len()..]].concat())
    };
    let id = id.to_string();
    replaced(b"ID", id.as_bytes()).or_else(|| replaced(&utf16("ID"), &utf16(&id))).unwrap()
}

/// Returns a call in flight, and the id that the server got.
fn called(world: &mut World, n: u64) -> (u64, Value) {
    let key = world.call("x", &echo("a__t", n)).unwrap();
    let call = world.upstreams[0].server.calls.pop_back().unwrap();
    (key, call["id"].clone())
}

fn says(world: &mut World, line: &[u8]) {
    let now = world.now;
    world.upstreams[0].peer.handle_line(Bytes::copy_from_slice(line), now);
    world.settle();
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn a_line_that_is_no_json_ends_the_call_that_it_names_and_no_other() {
    let text = |text: &str| text.as_bytes().to_vec();
    let lines = [
        ("`NaN`", text(r#"{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}"#)),
        ("`NaN`", text(r#"{"jsonrpc":"2.0","id":"ID","result":{"x":NaN}}"#)),
        ("`-Infinity`", text(r#"{"result":{"x":-Infinity},"jsonrpc":"2.0","id":ID}"#)),
        ("not UTF-8", b"{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"x\":\"caf\xe9\"}}".to_vec()),
        ("UTF-16", utf16(r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#)),
        ("control character", text("{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"x\":\"\u{1}\"}}")),
        ("without its end", text(r#"{"jsonrpc":"2.0","id":ID,"result":{"x":"#)),
        ("`jsonrpc` must be", text(r#"{"id":ID,"result":{}}"#)),
    ];
    for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
        for (why, line) in &lines {
            let mut world = World::new().upstream("a", revision, &["t"]);
            let ((one, id), (two, other)) = (called(&mut world, 1), called(&mut world, 2));
            says(&mut world, &with_id(line, &id));
            assert_eq!(
                world.seen(one),
                [SeenCallEvent::Failed(FailureReason::UpstreamProtocol, ExecutionDoubt::Unknown)],
                "{why}"
            );
            let told = world.upstreams[0].unread.last().unwrap().clone();
            assert!(told.why.contains(why) && told.start.starts_with('{') && told.is_meant, "{why}: {told}");
            world.server_says(0, &json!({"jsonrpc": "2.0", "id": other, "result": {}}));
            assert_eq!(world.seen(two), [SeenCallEvent::Result(json!({}))], "{why}");
        }
    }
}

#[test]
fn a_line_that_names_no_request_ends_none_and_is_told() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let (one, id) = called(&mut world, 1);
    for line in [
        "hello".to_owned(),
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{{"x":NaN}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"x":NaN,"id":{id}}}}}"#),
        format!(r#"{{"result":{{"x":NaN,"id":{id}}}}}"#),
        format!(r#"{{"id":{id},"method":"sampling/createMessage","params":{{}}}}"#),
    ] {
        says(&mut world, line.as_bytes());
        assert_eq!(world.seen(one), [], "{line}");
    }
    assert_eq!(world.upstreams[0].unread.len(), 5);
    assert_eq!(world.upstreams[0].faults, [ProtocolFault::Garbage; 5]);
}

#[test]
fn ids_that_come_back_in_another_form_are_the_ones_that_were_sent() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    for (n, form) in ["\"ID\"", "ID.0", "ID.00"].into_iter().enumerate() {
        let (key, id) = called(&mut world, n as u64);
        let line = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, form.replace("ID", &id.to_string()));
        says(&mut world, line.as_bytes());
        assert_eq!(world.seen(key), [SeenCallEvent::Result(json!({}))], "{form}");
        assert_eq!(world.upstreams[0].quirks.len(), n + 1, "{form}");
    }
    let (key, id) = called(&mut world, 9);
    for form in [format!("\"0{id}\""), format!("\"{id} \""), format!("{id}.5"), format!("\"{id}.0\"")] {
        says(&mut world, format!(r#"{{"jsonrpc":"2.0","id":{form},"result":{{}}}}"#).as_bytes());
        assert_eq!(world.seen(key), [], "{form}");
    }
}

/// Returns a peer that has asked the first question, whose id it is.
fn opening(hint: EraHint) -> (Peer<SimPort>, Value, Instant) {
    let now = epoch();
    let mut peer = Peer::new(options("a", hint), now);
    let out = peer.outgoing().split();
    let question: Value = serde_json::from_slice(out.strip_suffix(b"\n").unwrap()).unwrap();
    (peer, question, now)
}

fn failed(peer: &mut Peer<SimPort>) -> Option<String> {
    std::iter::from_fn(|| peer.poll_event())
        .find_map(|event| if let PeerEvent::Failed { why, .. } = event { Some(why) } else { None })
}

#[test]
fn a_handshake_says_what_came_in_place_of_its_answer() {
    let (mut peer, question, now) = opening(EraHint::Legacy);
    let id = &question["id"];
    peer.handle_line(format!(r#"{{"id":{id},"result":{{}}}}"#).into(), now);
    let why = failed(&mut peer).unwrap();
    assert!(why.contains("no JSON-RPC message") && why.contains("`jsonrpc`"), "{why}");
    for (lines, want) in
        [(["starting ..", "{", "  \"id\": 1,"], "without its end"), (["Content-Length: 40", "x", "y"], "as in LSP")]
    {
        let (mut peer, _, now) = opening(EraHint::Legacy);
        lines.into_iter().for_each(|line| peer.handle_line(Bytes::from_static(line.as_bytes()), now));
        assert_eq!(failed(&mut peer), None, "an answer may come yet");
        peer.handle_timeout(peer.poll_timeout().unwrap());
        let why = failed(&mut peer).unwrap();
        assert!(why.contains("in time") && why.contains("no JSON-RPC message") && why.contains(want), "{why}");
    }
}

#[test]
fn a_handshake_is_read_with_every_quirk() {
    let result = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
    for text in [
        r#"[{"jsonrpc":"2.0","id":ID,"result":RESULT}]"#,
        r#"{"jsonrpc":"2.0","id":"ID","result":RESULT}"#,
        r#"{"jsonrpc":"2.0","id":ID.0,"result":RESULT,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":ID,"method":null,"params":null,"error":null,"result":RESULT}"#,
    ] {
        let (mut peer, question, now) = opening(EraHint::Legacy);
        let line = text.replace("ID", &question["id"].to_string()).replace("RESULT", result);
        peer.handle_line(line.into(), now);
        let events: Vec<PeerEvent> = std::iter::from_fn(|| peer.poll_event()).collect();
        assert!(events.iter().any(|event| matches!(event, PeerEvent::Ready(_))), "{text}: {events:?}");
        assert!(events.iter().any(|event| matches!(event, PeerEvent::Quirk(_))), "{text}: {events:?}");
    }
}

#[test]
fn a_server_that_sends_back_what_it_gets_is_a_terminal() {
    for hint in [EraHint::Probe, EraHint::Legacy, EraHint::Modern] {
        let (mut peer, question, now) = opening(hint);
        peer.handle_line(question.to_string().into(), now);
        assert!(failed(&mut peer).is_some_and(|why| why.contains("sends back what it gets")), "{hint:?}");
        assert!(peer.outgoing().is_empty(), "{hint:?}: it is not answered");
    }
}

#[test]
fn nothing_that_cannot_be_read_is_skipped_in_silence() {
    let deep = format!("{}{}", "[".repeat(80), "]".repeat(80));
    for (line, why) in [
        ("[]".to_owned(), "an empty batch"),
        (r#"[{"jsonrpc":"2.0","id":ID,"result":{"x":NaN}}]"#.to_owned(), "`NaN`"),
        (r#"[{"jsonrpc":"2.0","id":ID,"result":{}},"#.to_owned(), "without its end"),
        (r#"{"jsonrpc":"2.0","id":ID,"result":7}"#.to_owned(), "no object"),
        (format!(r#"{{"jsonrpc":"2.0","id":ID,"result":{{"x":{deep}}}}}"#), "nested too deeply"),
        (format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":{{"x":{deep}}}}}"#), "too deeply"),
        (r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}"#.to_owned(), "no request"),
        (r#"{"jsonrpc":"2.0","id":"ID ","result":{}}"#.to_owned(), "no request"),
        (r#"{"jsonrpc":"2.0","id":987654,"result":{}}"#.to_owned(), "no request"),
    ] {
        for revision in [Revision::V2025_03_26, Revision::V2025_11_25, Revision::V2026_07_28] {
            let mut world = World::new().upstream("a", revision, &["t"]);
            let (_, id) = called(&mut world, 1);
            says(&mut world, line.replace("ID", &id.to_string()).as_bytes());
            let told = &world.upstreams[0].unread;
            let is_read = why == "no request";
            let has_reason =
                |told: &UnreadableBytes| told.why.contains(why) && !told.start.is_empty() && told.is_meant != is_read;
            // An empty array is no message in the other revisions.
            let is_named = told.len() == 1 && (has_reason(&told[0]) || line == "[]");
            assert!(is_named, "{revision}, {line:.80}: {told:?}");
        }
    }
}

#[test]
fn a_line_that_is_too_large_is_named_and_one_without_room_is_not() {
    for (failure, want) in
        [(CallFailure::too_large(), 1), (CallFailure::new(FailureReason::Busy, ExecutionDoubt::Unknown, "x"), 0)]
    {
        let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
        let (_, id) = called(&mut world, 1);
        let now = world.now;
        let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":"yyyy"#);
        world.upstreams[0].peer.handle_skipped(start.as_bytes(), &failure, now);
        world.settle();
        let told = &world.upstreams[0].unread;
        assert_eq!(told.len(), want, "{told:?}");
        assert!(told.iter().all(|told| told.start == start && told.why.contains("over the size limit")), "{told:?}");
    }
    let (mut peer, _, now) = opening(EraHint::Legacy);
    peer.handle_skipped(br#"{"jsonrpc":"2.0","id":1,"result":{"x":"yyyy"#, &CallFailure::too_large(), now);
    peer.handle_timeout(peer.poll_timeout().unwrap());
    assert!(
        failed(&mut peer).is_some_and(|why| why.contains("over the size limit")),
        "it is the reason of the start that failed"
    );
}
