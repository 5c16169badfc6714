//! Clients that accept everything, and clients of another caller.

use super::*;

/// Returns the page that a question names, which must be that of an open approval.
pub(super) fn page_of(stage: &ApprovalGateway, question: &Value) -> String {
    assert_eq!(question["mode"], "url", "{question}");
    let url = question["url"].as_str().unwrap();
    let open = operator::pending(stage);
    assert!(open.iter().any(|id| url.ends_with(&format!("/approvals/{id}"))), "{url}: {open:?}");
    assert!(url.starts_with("http://127.0.0.1:"), "{url}");
    url.to_owned()
}

#[test]
fn a_client_that_accepts_every_form_cannot_run_what_needs_the_page() {
    let Some(peers) = PeerFolders::find() else { return };
    for sdk in [Sdk::TypeScript1, Sdk::TypeScript2] {
        let stage = ApprovalGateway::new();
        let mut client = ApprovingClient::start(&peers, &stage.gateway, sdk, ClientFace::Http, FORMS);
        for path in ["a", "a", "b"] {
            let call = client.begin("fx__write", &json!({"path": path}), &["all"]);
            let done = client.end(call);
            assert_eq!(done.reason(), "awaiting_approval", "{sdk:?}: {done:?}");
            assert_eq!(client.questions(call), Vec::<Value>::new(), "{sdk:?}: it is not even asked");
        }
        // A call whose approval needs no more than a form runs at the client's word.
        assert_eq!(client.call("fx__echo", &text("x"), &["all"]).text(), "x", "{sdk:?}");
        assert_eq!(stage.called(), [text("x")], "{sdk:?}");
        assert_eq!(Audited::read(&stage, "fx__write", "prompt", 1).allowed().len(), 0, "{sdk:?}");
    }
}

#[test]
fn a_client_that_accepts_every_page_unopened_cannot_run_what_needs_it() {
    let Some(peers) = PeerFolders::find() else { return };
    std::thread::scope(|scope| {
        for (sdk, capabilities) in [
            (Sdk::TypeScript1, PAGES),
            (Sdk::TypeScript1, BOTH),
            (Sdk::TypeScript2, PAGES),
            (Sdk::TypeScript2, BOTH),
            (Sdk::Python, BOTH),
        ] {
            let peers = &peers;
            scope.spawn(move || unopened(peers, sdk, capabilities));
        }
    });
}

fn unopened(peers: &PeerFolders, sdk: Sdk, capabilities: &str) {
    let stage = ApprovalGateway::with("timeout = \"3s\"", "");
    let at = format!("{sdk:?} {capabilities}");
    let mut client = ApprovingClient::start(peers, &stage.gateway, sdk, ClientFace::Http, capabilities);
    let call = client.begin("fx__write", &json!({"path": "a"}), &["all"]);
    page_of(&stage, &client.question(call, 0));
    let done = client.end(call);
    let questions = client.questions(call);
    assert!(questions.iter().all(|question| question["mode"] == "url"), "{at}: {questions:?}");
    if sdk.is_modern() {
        assert!(done.0["failed"].is_string(), "{at}: it is asked until it gives up: {done:?}");
        assert_eq!(questions.len(), 3, "{at}: {questions:?}");
        assert!(questions.iter().all(|question| question["url"] == questions[0]["url"]), "{at}: one prompt");
    } else {
        assert_eq!((done.reason(), questions.len()), ("denied", 1), "{at}: {done:?}");
        let audited = Audited::read(&stage, "fx__write", "answer", 1);
        assert_eq!(audited.words("answer"), ["timed-out"], "{at}");
    }
    let audited = Audited::read(&stage, "fx__write", "prompt", 1);
    assert_eq!(audited.of("prompt").len(), 1, "{at}");
    assert_eq!((audited.allowed().len(), audited.of("outcome").len()), (0, 0), "{at}");
    assert_eq!(stage.called().len(), 0, "{at}");
}

#[test]
fn the_real_client_of_another_caller_cannot_answer_on_a_stream() {
    let Some(peers) = PeerFolders::find() else { return };
    let stage = ApprovalGateway::new();
    let second = Some(crate::consenting::TOKEN.to_owned());
    let mut asking = ApprovingClient::start(&peers, &stage.gateway, Sdk::TypeScript1, ClientFace::Http, FORMS);
    let mut other = ApprovingClient::of(&peers, &stage.gateway, Sdk::TypeScript1, second, FORMS);
    let call = asking.begin("fx__echo", &text("mine"), &["wait"]);
    let question = asking.question(call, 0);
    for answer in ["once", "session"] {
        other.tell(&json!({"do": "respond", "id": question["id"], "answer": answer}));
    }
    other.responded(2);
    // A call of the other caller, which waits for that caller's own person.
    let theirs = other.begin("fx__echo", &text("mine"), &["wait"]);
    other.question(theirs, 0);
    assert_eq!(stage.called().len(), 0);
    assert_eq!(operator::pending(&stage).len(), 2);
    asking.tell(&json!({"do": "answer", "answer": "once"}));
    assert_eq!(asking.end(call).text(), "mine");
    other.tell(&json!({"do": "answer", "answer": "deny"}));
    assert_eq!(other.end(theirs).reason(), "denied");
    assert_eq!(stage.called(), [text("mine")]);
    let audited = Audited::read(&stage, "fx__echo", "outcome", 1);
    let callers: Vec<&Value> = audited.of("answer").iter().map(|answer| &answer["caller"]).collect();
    assert_eq!(
        (callers, audited.words("answer")),
        (vec![&json!("local"), &json!("second")], vec!["granted", "denied"])
    );
    audited.hangs_together("L1", "client", "the caller itself");
}

#[test]
fn the_real_client_of_another_caller_cannot_answer_with_a_state_that_it_got_hold_of() {
    let Some(peers) = PeerFolders::find() else { return };
    let stage = ApprovalGateway::new();
    let mut asking = ApprovingClient::start(&peers, &stage.gateway, Sdk::Python, ClientFace::Http, FORMS);
    let by_hand = asking.order(json!({"do": "begin", "name": "fx__echo", "arguments": text("mine")}));
    let state = asking.end(by_hand).0["state"].clone();
    assert!(state.is_string(), "{state}");
    let resume = |answer: &str| json!({"do": "resume", "name": "fx__echo", "arguments": text("mine"), "state": state, "answer": answer});
    for sdk in [Sdk::TypeScript2, Sdk::Python] {
        let second = Some(crate::consenting::TOKEN.to_owned());
        let mut other = ApprovingClient::of(&peers, &stage.gateway, sdk, second, FORMS);
        for answer in ["once", "session"] {
            let stolen = other.order(resume(answer));
            let done = other.end(stolen);
            assert_eq!(done.0["code"], -32602, "{sdk:?} {answer}: {done:?}");
        }
    }
    assert_eq!(stage.called().len(), 0);
    let own = asking.order(resume("once"));
    assert_eq!(asking.end(own).text(), "mine", "the prompt was open all the time");
    assert_eq!(stage.called(), [text("mine")]);
    let audited = Audited::read(&stage, "fx__echo", "outcome", 1);
    assert_eq!(audited.words("answer"), ["granted"]);
    audited.hangs_together("L1", "client", "the caller itself");
}
