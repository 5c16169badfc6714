//! Clients without a person: the operator answers on the command line.

use super::*;

#[test]
fn the_operator_answers_for_real_clients_that_cannot_ask() {
    let Some(peers) = PeerFolders::find() else { return };
    std::thread::scope(|scope| {
        for (sdk, face) in CLIENTS {
            let peers = &peers;
            scope.spawn(move || answered_by_the_operator(peers, sdk, face));
        }
    });
}

/// Makes a call that is refused until an approval, and returns the approval's id.
fn refused(stage: &ApprovalGateway, client: &mut ApprovingClient, name: &str, arguments: &Value) -> String {
    let done = client.call(name, arguments, &[]);
    assert_eq!(done.reason(), "awaiting_approval", "{done:?}");
    let id = done.refusal()["approval"]["id"].as_str().unwrap().to_owned();
    assert_eq!(done.refusal()["approval"]["command"], format!("headend approve {id}"), "{done:?}");
    operator::for_a_model(done.0["text"].as_str().unwrap());
    let listed = operator::headend(stage, &["approvals"]);
    assert!(listed.contains(&id[..8]) && listed.contains(name), "{listed}");
    assert_eq!(operator::pending(stage), [id.as_str()]);
    id
}

fn answered_by_the_operator(peers: &PeerFolders, sdk: Sdk, face: ClientFace) {
    let stage = ApprovalGateway::new();
    let at = format!("{sdk:?} over {face:?}");
    let mut client = ApprovingClient::start(peers, &stage.gateway, sdk, face, NOBODY);
    // (tool, words of the command line, calls that are permitted then)
    for (tool, how, calls) in [
        ("fx__echo", &["approve"][..], 1),
        ("fx__env", &["approve", "--for", "session"], 2),
        ("fx__denied", &["approve", "--for", "1h"], 2),
        ("fx__write", &["approve", "--for", "always"], 2),
        ("fx__fail", &["deny"], 0),
    ] {
        let before = stage.called().len();
        let arguments = text(tool);
        let id = refused(&stage, &mut client, tool, &arguments);
        operator::headend(&stage, &[how, &[&id]].concat());
        assert_eq!(stage.called().len(), before, "{at}: {tool}: an approval runs nothing by itself");
        for nth in 0..calls {
            // Grants for longer than once are for any arguments.
            let arguments = if nth == 0 { arguments.clone() } else { text("something else") };
            let done = client.call(tool, &arguments, &[]);
            assert_eq!(done.0["refusal"], Value::Null, "{at}: {tool} {nth}: {done:?}");
        }
        assert_eq!(stage.called().len(), before + calls, "{at}: {tool}");
        let last = if calls == 0 { ("answer", 1) } else { ("outcome", calls) };
        let audited = Audited::read(&stage, tool, last.0, last.1);
        let answer = if calls == 0 { "denied" } else { "granted" };
        assert_eq!(audited.words("answer"), [answer], "{at}: {tool}");
        let by = audited.of("answer")[0]["by"].as_str().unwrap();
        assert_eq!(audited.of("answer")[0]["evidence"], "L3", "{at}: {tool}");
        assert_eq!(audited.allowed().len(), calls, "{at}: {tool}");
        audited.hangs_together("L3", by, &at);
    }
    assert_eq!(client.call("fx__fail", &text("fx__fail"), &[]).reason(), "denied", "{at}");
    let spent = client.call("fx__echo", &text("fx__echo"), &[]);
    assert_eq!(spent.reason(), "awaiting_approval", "{at}: once is once");
    assert_eq!(stage.called().len(), 7, "{at}");
}
