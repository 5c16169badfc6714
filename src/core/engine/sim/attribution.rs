//! Attribution in the simulated world: clients and a server that asks on one shared connection, in
//! any order.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{DeclaredCapabilities, Peer, PeerOptions, SeenCallEvent, TIMES, World, echo, options};
use crate::engine::failure::CallFailure;
use crate::engine::handshake::EraHint;
use crate::mcp::version::Revision;

#[test]
fn a_question_ends_with_its_answer_its_withdrawal_or_its_call() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let ask = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": {}});
    let call = world.call("x", &echo("a__t", 1)).unwrap();
    world.server_says(0, &ask("answered"));
    world.answer_question(0, &json!("answered"));
    assert!(world.reply_to(0, &json!("answered")).is_some());
    world.server_says(0, &ask("withdrawn"));
    let params = json!({"requestId": "withdrawn"});
    world.server_says(0, &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    world.answer_question(0, &json!("withdrawn"));
    assert!(world.reply_to(0, &json!("withdrawn")).is_none(), "a late answer goes nowhere");
    world.server_says(0, &ask("orphan"));
    world.cancel(0, call);
    assert_eq!(world.reply_to(0, &json!("orphan")).unwrap()["error"]["code"], -1, "the server does not wait for ever");
    let asked = |id: &str| SeenCallEvent::Asked(json!(id));
    let want = [asked("answered"), asked("withdrawn"), SeenCallEvent::Withdrawn(json!("withdrawn")), asked("orphan")];
    assert_eq!(world.seen(call), want);
}

#[test]
fn a_question_ends_with_its_call_where_the_answer_cannot_be_read() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let ask = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "sampling/createMessage", "params": {}});
    world.call("x", &echo("a__t", 1)).unwrap();
    world.server_says(0, &ask("malformed"));
    let id = world.upstreams[0].server.calls[0]["id"].clone();
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": id, "result": {}, "error": {"code": 1}}));
    world.call("x", &echo("a__t", 2)).unwrap();
    world.server_says(0, &ask("oversize"));
    let start = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"#, world.upstreams[0].server.calls[1]["id"]);
    let now = world.now;
    world.upstreams[0].peer.handle_skipped(start.as_bytes(), &CallFailure::too_large(), now);
    world.settle();
    for id in ["malformed", "oversize"] {
        assert_eq!(
            world.reply_to(0, &json!(id)).unwrap()["error"]["code"],
            -1,
            "{id}: the server does not wait for ever"
        );
    }
    assert_eq!(world.upstreams[0].peer.left(), 0);
}

#[test]
fn a_question_about_a_call_that_was_cancelled_meanwhile_reaches_no_other() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let ask = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}});
    let (one, two) = (world.call("x", &echo("a__t", 1)).unwrap(), world.call("y", &echo("a__t", 2)).unwrap());
    // The server has not read this call when it asks.
    let now = world.now;
    world.upstreams[0].peer.handle_cancel(one, now);
    world.server_says(0, &ask("of one"));
    assert_eq!(world.seen(two), []);
    assert_eq!(world.reply_to(0, &json!("of one")).unwrap()["error"]["code"], -32602);
    world.server_says(0, &ask("of two"));
    assert_eq!(world.seen(two), [SeenCallEvent::Asked(json!("of two"))], "by now it has");
    assert!(!world.upstreams[0].in_turns, "one doubt does not make calls wait for each other");
}

/// A server that does not answer pings keeps the doubt until it answers a call that came after the
/// cancellation.
#[test]
fn a_doubt_ends_also_where_the_server_answers_no_pings() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    world.upstreams[0].server.deaf = true;
    let ask = |id: &str| json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}});
    let (one, two) = (world.call("x", &echo("a__t", 1)).unwrap(), world.call("y", &echo("a__t", 2)).unwrap());
    world.cancel(0, one);
    world.pass(TIMES.start);
    assert!(world.upstreams[0].peer.poll_timeout().is_none(), "the ping is given up");
    world.server_says(0, &ask("early"));
    assert_eq!(world.reply_to(0, &json!("early")).unwrap()["error"]["code"], -32602);
    let three = world.call("y", &echo("a__t", 3)).unwrap();
    world.answer_call(0, two);
    world.server_says(0, &ask("of three"));
    assert_eq!(world.reply_to(0, &json!("of three")).unwrap()["error"]["code"], -32602, "two was sent before");
    let four = world.call("y", &echo("a__t", 4)).unwrap();
    world.answer_call(0, three);
    world.server_says(0, &ask("of four"));
    assert_eq!(world.seen(four), [SeenCallEvent::Asked(json!("of four"))]);
    assert!(!world.upstreams[0].in_turns);
}

#[test]
fn log_lines_of_a_call_that_was_cancelled_meanwhile_reach_no_other() {
    let mut world = World::new();
    world.add("a", Revision::V2025_11_25, &["t"], EraHint::Legacy);
    // A process that several callers share is told of no client.
    let options = PeerOptions { declared: DeclaredCapabilities::default(), ..options("a", EraHint::Legacy) };
    world.upstreams[0].peer = Peer::new(options, world.now);
    world.settle();
    let log = |text: &str| json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}});
    let (one, two) = (world.call("x", &echo("a__t", 1)).unwrap(), world.call("y", &echo("a__t", 2)).unwrap());
    let now = world.now;
    world.upstreams[0].peer.handle_cancel(one, now);
    world.server_says(0, &log("of one"));
    assert_eq!(world.seen(two), []);
    world.server_says(0, &log("of two"));
    assert_eq!(world.seen(two), [SeenCallEvent::Log(json!({"data": "of two"}))]);
}

#[test]
fn a_call_that_ends_without_its_answer_is_cancelled() {
    let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
    let ids = |world: &World| -> Vec<Value> {
        world.upstreams[0].server.calls.iter().map(|call| call["id"].clone()).collect()
    };
    for n in 1..=3 {
        world.call("x", &echo("a__t", n)).unwrap();
    }
    let mut open = ids(&world);
    let broken = open.remove(0);
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": broken, "result": {}, "error": {"code": 1}}));
    assert_eq!(world.upstreams[0].server.cancelled, std::slice::from_ref(&broken));
    let start = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"#, open[0]);
    let now = world.now;
    world.upstreams[0].peer.handle_skipped(start.as_bytes(), &CallFailure::too_large(), now);
    world.settle();
    assert_eq!(world.upstreams[0].server.cancelled, std::slice::from_ref(&broken), "the line was its answer");
    world.upstreams[0].peer.handle_skipped(br#"{"result":{"#, &CallFailure::too_large(), now);
    world.settle();
    assert_eq!(world.upstreams[0].server.cancelled, [broken, open[1].clone()]);
    assert_eq!(world.upstreams[0].peer.left(), 0);
}

/// An event between the clients and the server of one shared connection.
#[derive(Clone, Debug)]
enum Talk {
    Call,
    /// The server asks a question for one of its calls that has no open question.
    Ask(usize),
    /// The client of a question gets it as the result of its request, and the call waits.
    Park(usize),
    /// A second passes.
    Pass,
    Answer(usize),
    Finish(usize),
    Cancel(usize),
}

fn talk() -> impl Strategy<Value = Vec<Talk>> {
    let any = any::<usize>;
    let step = prop_oneof![
        3 => Just(Talk::Call),
        4 => any().prop_map(Talk::Ask),
        2 => any().prop_map(Talk::Park),
        1 => Just(Talk::Pass),
        2 => any().prop_map(Talk::Answer),
        2 => any().prop_map(Talk::Finish),
        1 => any().prop_map(Talk::Cancel),
    ];
    prop::collection::vec(step, 1..40)
}

fn pick<T: Clone>(from: &[T], at: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[at % from.len()].clone())
}

/// Returns whether the server waits for no answer to that question.
fn is_answered(world: &World, question: Option<&Value>) -> bool {
    question.is_none_or(|id| world.reply_to(0, id).is_some())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The names of the questions say whose they are, so that a wrong guess shows. The server waits
    /// for its answers.
    #[test]
    fn a_question_reaches_the_call_that_it_belongs_to_or_nobody(steps in talk()) {
        let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
        let mut calls: Vec<u64> = Vec::new();
        let mut asked = 0_u64;
        // The last question about each call.
        let mut last: BTreeMap<u64, Value> = BTreeMap::new();
        for step in steps {
            // Calls whose question is open, by what their client saw.
            let open: Vec<(u64, Value)> = calls.iter().filter_map(|call| Some((*call, world.open_question(*call)?))).collect();
            match step {
                Talk::Call => calls.push(world.call(["x", "y"][calls.len() % 2], &echo("a__t", world.calls + 1)).unwrap()),
                Talk::Ask(at) => {
                    let idle: Vec<u64> = calls.iter().copied().filter(|call| is_answered(&world, last.get(call))).collect();
                    if let Some(call) = pick(&idle, at) {
                        asked += 1;
                        let id = format!("{call}/{asked}");
                        last.insert(call, json!(id));
                        world.server_says(0, &json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}}));
                    }
                }
                Talk::Park(at) => if let Some((call, _)) = pick(&open, at) {
                    world.upstreams[0].peer.handle_parked(call);
                },
                Talk::Answer(at) => if let Some((_, question)) = pick(&open, at) {
                    world.answer_question(0, &question);
                },
                Talk::Pass => world.pass(Duration::from_secs(1)),
                Talk::Finish(at) => {
                    let done: Vec<u64> = calls.iter().copied().filter(|call| is_answered(&world, last.get(call))).collect();
                    if let Some(call) = pick(&done, at) {
                        world.answer_call(0, call);
                        calls.retain(|c| *c != call);
                    }
                }
                Talk::Cancel(at) => if let Some(call) = pick(&calls, at) {
                    world.cancel(0, call);
                    calls.retain(|c| *c != call);
                },
            }
            world.check();
        }
        for call in 1..=world.calls {
            for seen in world.seen(call) {
                if let SeenCallEvent::Asked(id) = seen {
                    prop_assert!(id.as_str().unwrap().starts_with(&format!("{call}/")), "call {} was asked {}", call, id);
                }
            }
        }
    }
}
