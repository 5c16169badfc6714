//! Real clients that give a held call up: it is never made, the next one waits less and ends before
//! its client gives up again, and the approval is used by the call after it.

use std::time::{Duration, Instant};

use super::*;

/// Time after which a client's library gives a call up, in milliseconds. A third of it is more than
/// the delays of a busy machine.
const PATIENCE: u64 = 4000;

fn gives_up(peers: &PeerFolders, (sdk, face): (Sdk, ClientFace)) {
    let stage = ApprovalGateway::with("hold = \"10m\"", "");
    let at = format!("{sdk:?} {face:?}");
    let mut client = ApprovingClient::start(peers, &stage.gateway, sdk, face, NOBODY);
    let write = |path: &str| {
        let arguments = json!({"path": path});
        json!({"do": "call", "name": "fx__write", "arguments": arguments, "answers": [], "timeout": PATIENCE})
    };
    let call = client.order(write("given up"));
    let done = client.end(call);
    assert!(done.0["failed"].is_string(), "{at}: the library gives it up: {done:?}");
    let id = operator::pending(&stage).remove(0);
    eventually("the gateway hears of it", || stage.gateway.scrape().contains("headend_calls_held 0\n"));
    operator::headend(&stage, &["approve", &id]);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(stage.called().len(), 0, "{at}: it was given up before");

    let begun = Instant::now();
    let call = client.order(write("another"));
    let done = client.end(call);
    assert_eq!(done.reason(), "awaiting_approval", "{at}: the next one is refused before it is given up: {done:?}");
    assert!(begun.elapsed() >= Duration::from_millis(PATIENCE / 2), "{at}: {:?}", begun.elapsed());
    let call = client.order(write("given up"));
    assert_eq!(client.end(call).text(), "write", "{at}: the approval is there");
    assert_eq!(stage.called(), [json!({"path": "given up"})], "{at}");
}

#[test]
fn a_held_call_that_a_real_client_gives_up_is_never_made() {
    let Some(peers) = PeerFolders::find() else { return };
    std::thread::scope(|scope| {
        for kind in CLIENTS {
            let peers = &peers;
            scope.spawn(move || gives_up(peers, kind));
        }
    });
}
