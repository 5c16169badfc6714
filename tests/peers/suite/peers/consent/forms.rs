//! Forms: the client's own person answers, or does not.

use super::*;

/// Three calls are permitted, of eight.
fn every_answer(sdk: Sdk, face: ClientFace) {
    let Some(peers) = PeerFolders::find() else { return };
    let stage = ApprovalGateway::new();
    let at = format!("{sdk:?} over {face:?}");
    let mut client = ApprovingClient::start(&peers, &stage.gateway, sdk, face, FORMS);
    let allowed = client.begin("fx__echo", &text("once"), &["once"]);
    assert_eq!(client.end(allowed).text(), "once", "{at}");
    let question = client.question(allowed, 0);
    let message = question["message"].as_str().unwrap();
    assert!(message.starts_with("headend needs your approval") && message.contains("fx__echo"), "{at}: {message}");

    // (label, text, the person's answers, why it is refused)
    for (label, argument, answers, refused) in [
        ("once is once", "once", &["deny"][..], "denied"),
        ("a denial is remembered", "once", &[], "denied"),
        ("declined", "declined", &["decline"], "denied"),
        ("dismissed", "dismissed", &["cancel"], "denied"),
    ] {
        let done = client.call("fx__echo", &text(argument), answers);
        assert_eq!(done.reason(), refused, "{at}: {label}: {done:?}");
    }
    assert_eq!(client.call("fx__echo", &text("first"), &["session"]).text(), "first", "{at}");
    assert_eq!(client.call("fx__echo", &text("second"), &[]).text(), "second", "{at}: the session is allowed");
    assert_eq!(client.call("fx__env", &json!({}), &["cancel"]).reason(), "denied", "{at}: but no other tool");
    assert_eq!(stage.called(), ["once", "first", "second"].map(text), "{at}");

    let audited = Audited::read(&stage, "fx__echo", "outcome", 3);
    let answers = ["granted", "denied", "declined", "dismissed", "granted"];
    assert_eq!(audited.words("answer"), answers, "{at}");
    assert_eq!(audited.of("prompt").len(), answers.len(), "{at}");
    assert_eq!(audited.words("outcome"), ["ok"; 3], "{at}");
    // Each call needs one approval, though a modern client makes it twice; the session's grant
    // covers the last.
    let calls = ["ask", "allow", "ask", "ask", "ask", "ask", "ask", "allow", "allow"];
    assert_eq!(audited.words("decision"), calls, "{at}");
    let grants: Vec<&Value> = audited.allowed().iter().map(|allowed| &allowed["grant"]).collect();
    assert!(grants[0] != grants[1] && grants[1] == grants[2], "{at}: {grants:?}");
    let listed = operator::headend(&stage, &["grants"]);
    assert!(
        listed.contains(grants[2].as_str().unwrap()) && !listed.contains(grants[0].as_str().unwrap()),
        "{at}: {listed}"
    );
    audited.hangs_together("L1", "client", &at);
    let other = Audited::read(&stage, "fx__env", "answer", 1);
    assert_eq!((other.words("answer"), other.allowed().len()), (vec!["dismissed"], 0), "{at}");
}

#[test]
fn what_a_person_says_to_a_typescript_1_client_over_http_happens() {
    every_answer(Sdk::TypeScript1, ClientFace::Http);
}

#[test]
fn what_a_person_says_to_a_typescript_1_client_over_stdio_happens() {
    every_answer(Sdk::TypeScript1, ClientFace::Attached);
}

#[test]
fn what_a_person_says_to_a_typescript_2_client_happens() {
    every_answer(Sdk::TypeScript2, ClientFace::Http);
}

#[test]
fn what_a_person_says_to_a_python_client_over_http_happens() {
    every_answer(Sdk::Python, ClientFace::Http);
}

#[test]
fn what_a_person_says_to_a_python_client_over_stdio_happens() {
    every_answer(Sdk::Python, ClientFace::Attached);
}

#[test]
fn who_does_not_answer_in_time_has_not_allowed_it() {
    let Some(peers) = PeerFolders::find() else { return };
    std::thread::scope(|scope| {
        for (sdk, face) in CLIENTS {
            let peers = &peers;
            scope.spawn(move || unanswered(peers, sdk, face));
        }
    });
}

fn unanswered(peers: &PeerFolders, sdk: Sdk, face: ClientFace) {
    let stage = ApprovalGateway::with("timeout = \"1s\"\napproval-life = \"1s\"", "");
    let at = format!("{sdk:?} over {face:?}");
    let mut client = ApprovingClient::start(peers, &stage.gateway, sdk, face, FORMS);
    let call = client.begin("fx__echo", &text("x"), &["wait"]);
    client.question(call, 0);
    if sdk.is_modern() {
        // The call waits for its own client's person only.
        Audited::read(&stage, "fx__echo", "answer", 1);
        client.tell(&json!({"do": "answer", "answer": "session"}));
        client.question(call, 1);
        assert_eq!(client.end(call).reason(), "denied", "{at}: it was asked again, and then dismissed");
    } else {
        let done = client.end(call);
        assert_eq!(done.reason(), "denied", "{at}: {done:?}");
        assert!(done.0["text"].as_str().unwrap().contains("in time"), "{at}: {done:?}");
        client.tell(&json!({"do": "answer", "answer": "session"}));
        assert_eq!(client.call("fx__echo", &text("x"), &["cancel"]).reason(), "denied", "{at}: asked again");
    }
    let audited = Audited::read(&stage, "fx__echo", "answer", 2);
    assert_eq!(audited.words("answer"), ["timed-out", "dismissed"], "{at}");
    assert_eq!((audited.allowed().len(), audited.of("outcome").len()), (0, 0), "{at}");
    audited.hangs_together("", "", &at);
    assert_eq!(stage.called().len(), 0, "{at}");
}
