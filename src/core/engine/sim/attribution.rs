//! Attribution in the simulated world: clients and a server that asks on one shared connection, in any order.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Seen, World, echo};
use crate::engine::call::Failure;
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
    let asked = |id: &str| Seen::Asked(json!(id));
    let want = [asked("answered"), asked("withdrawn"), Seen::Withdrawn(json!("withdrawn")), asked("orphan")];
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
    world.upstreams[0].peer.handle_skipped(start.as_bytes(), &Failure::too_large(), now);
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
    // The server has not read it when it asks.
    world.upstreams[0].peer.handle_cancel(one);
    world.server_says(0, &ask("of one"));
    assert_eq!(world.seen(two), []);
    assert_eq!(world.reply_to(0, &json!("of one")).unwrap()["error"]["code"], -32602);
    world.server_says(0, &ask("of two"));
    assert_eq!(world.seen(two), [Seen::Asked(json!("of two"))], "by now it has");
    assert!(!world.upstreams[0].in_turns, "one doubt does not make calls wait for each other");
}

/// What the clients and the server of one shared connection do, in any order.
#[derive(Clone, Debug)]
enum Talk {
    Call,
    /// The server asks for one of its calls that waits for nothing.
    Ask(usize),
    /// The client of a question gets it as the result of its request, and the call waits.
    Park(usize),
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
        2 => any().prop_map(Talk::Answer),
        2 => any().prop_map(Talk::Finish),
        1 => any().prop_map(Talk::Cancel),
    ];
    prop::collection::vec(step, 1..40)
}

fn pick<T: Clone>(from: &[T], at: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[at % from.len()].clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The names of the questions say whose they are, so that a wrong guess shows.
    #[test]
    fn a_question_reaches_the_call_that_it_belongs_to_or_nobody(steps in talk()) {
        let mut world = World::new().upstream("a", Revision::V2025_11_25, &["t"]);
        let mut calls: Vec<u64> = Vec::new();
        let mut asked = 0_u64;
        for step in steps {
            // Calls whose question is open, by what their client saw.
            let open: Vec<(u64, Value)> = calls.iter().filter_map(|call| Some((*call, world.open_question(*call)?))).collect();
            match step {
                Talk::Call => calls.push(world.call(["x", "y"][calls.len() % 2], &echo("a__t", world.calls + 1)).unwrap()),
                Talk::Ask(at) => {
                    let idle: Vec<u64> = calls.iter().copied().filter(|call| !open.iter().any(|(o, _)| o == call)).collect();
                    if let Some(call) = pick(&idle, at) {
                        asked += 1;
                        let id = format!("{call}/{asked}");
                        world.server_says(0, &json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}}));
                    }
                }
                Talk::Park(at) => if let Some((call, _)) = pick(&open, at) {
                    world.upstreams[0].peer.handle_parked(call);
                },
                Talk::Answer(at) => if let Some((_, question)) = pick(&open, at) {
                    world.answer_question(0, &question);
                },
                Talk::Finish(at) => if let Some(call) = pick(&calls, at) {
                    world.answer_call(0, call);
                    calls.retain(|c| *c != call);
                },
                Talk::Cancel(at) => if let Some(call) = pick(&calls, at) {
                    world.cancel(0, call);
                    calls.retain(|c| *c != call);
                },
            }
            world.check();
        }
        for call in 1..=world.calls {
            for seen in world.seen(call) {
                if let Seen::Asked(id) = seen {
                    prop_assert!(id.as_str().unwrap().starts_with(&format!("{call}/")), "call {} was asked {}", call, id);
                }
            }
        }
    }
}
