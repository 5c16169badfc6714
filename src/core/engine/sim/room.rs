//! Lists whose answers find no room in the gateway.

use super::*;

/// Takes the messages that the peer has written.
fn take_written(peer: &mut Peer<SimPort>) -> Vec<Value> {
    let out: Vec<u8> = peer.outgoing().split().to_vec();
    let lines = out.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// Returns the ids of the requests of that method.
fn ids(lines: &[Value], method: &str) -> Vec<u64> {
    lines.iter().filter(|line| line["method"] == method).map(|line| line["id"].as_u64().unwrap()).collect()
}

fn answer(peer: &mut Peer<SimPort>, id: u64, result: &Value, now: Instant) {
    peer.handle_line(Bytes::from(json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()), now);
}

/// Takes the inventories that the peer has announced since the last call of this function.
fn take_inventories(peer: &mut Peer<SimPort>) -> Vec<Inventory> {
    let events = std::iter::from_fn(|| peer.poll_event());
    events.filter_map(|event| if let PeerEvent::Inventory(told) = event { Some(told) } else { None }).collect()
}

fn skip(peer: &mut Peer<SimPort>, start: &str, now: Instant) {
    peer.handle_skipped(
        start.as_bytes(),
        &CallFailure::new(FailureReason::Busy, ExecutionDoubt::Unknown, "no room"),
        now,
    );
}

/// Returns a peer that has asked for its tools and prompts, and the ids of these requests.
fn opened(now: Instant) -> (Peer<SimPort>, u64, u64) {
    let mut peer = Peer::new(options("files", EraHint::Legacy), now);
    let id = ids(&take_written(&mut peer), "initialize")[0];
    let offers = json!({"tools": {"listChanged": true}, "prompts": {}});
    answer(&mut peer, id, &json!({"protocolVersion": "2025-11-25", "capabilities": offers}), now);
    let lines = take_written(&mut peer);
    let (tools, prompts) = (ids(&lines, "tools/list")[0], ids(&lines, "prompts/list")[0]);
    (peer, tools, prompts)
}

#[test]
fn a_list_whose_answer_finds_no_room_is_read_again_and_nothing_is_told_without_it() {
    let now = epoch();
    for start in [r#"{"jsonrpc":"2.0","id":ID,"result":{"#, r#"{"result":{"tools":[{"#] {
        let (mut peer, tools, prompts) = opened(now);
        answer(&mut peer, prompts, &json!({"prompts": []}), now);
        skip(&mut peer, &start.replace("ID", &tools.to_string()), now);
        assert!(take_inventories(&mut peer).is_empty(), "{start}: the tools are not known");
        let again = ids(&take_written(&mut peer), "tools/list");
        answer(&mut peer, again[0], &json!({"tools": [{"name": "read"}]}), now);
        let told = take_inventories(&mut peer);
        assert_eq!((told.len(), told[0].items(ItemList::Tools).len(), again.len()), (1, 1, 1), "{start}");
    }
}

#[test]
fn a_list_that_never_finds_room_is_asked_for_once_a_second_and_keeps_what_was_known() {
    let mut now = epoch();
    let (mut peer, tools, prompts) = opened(now);
    answer(&mut peer, prompts, &json!({"prompts": []}), now);
    answer(&mut peer, tools, &json!({"tools": [{"name": "read"}]}), now);
    assert_eq!(take_inventories(&mut peer).len(), 1);
    let change = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    peer.handle_line(Bytes::from(change.to_string()), now);
    let (end, mut asked) = (now + Duration::from_secs(60), 0);
    while now < end {
        for id in ids(&take_written(&mut peer), "tools/list") {
            asked += 1;
            skip(&mut peer, &format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"#), now);
        }
        assert!(take_inventories(&mut peer).is_empty());
        if peer.outgoing().is_empty() {
            now = peer.poll_timeout().expect("the list is read again");
            peer.handle_timeout(now);
        }
    }
    assert!((60..70).contains(&asked), "{asked}");
    let id = ids(&take_written(&mut peer), "tools/list")[0];
    answer(&mut peer, id, &json!({"tools": [{"name": "read"}, {"name": "write"}]}), now);
    assert_eq!(take_inventories(&mut peer)[0].items(ItemList::Tools).len(), 2);
}
