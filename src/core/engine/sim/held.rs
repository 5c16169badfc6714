//! Questions that wait until it is clear whose they are, in the simulated world.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{SeenCallEvent, World, echo};
use crate::catalog::merge::CatalogEntry;
use crate::engine::askers::{DefinedItem, ItemConduct};
use crate::engine::connection::turns::TurnGate;
use crate::mcp::version::Revision;

const HELD: TurnGate = TurnGate { is_held: true, is_taken: false };

fn world() -> World {
    World::new().upstream("a", Revision::V2025_11_25, &["form", "echo", "late"])
}

/// Sends a question of the server with that id.
fn asks(world: &mut World, id: &str) {
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}}));
}

/// Returns the error code of the answer to that question, if there is an answer.
fn refusal(world: &World, id: &str) -> Option<i64> {
    world.reply_to(0, &json!(id)).map(|reply| reply["error"]["code"].as_i64().unwrap())
}

fn asked(id: &str) -> SeenCallEvent {
    SeenCallEvent::Asked(json!(id))
}

fn conduct(world: &World, tool: &str) -> Option<ItemConduct> {
    let catalog = world.catalog();
    let entry: Option<&CatalogEntry> = catalog.entries().iter().find(|entry| &*entry.original == tool);
    world.upstreams[0].askers.conduct(&DefinedItem::of(entry?))
}

#[test]
fn a_question_is_that_of_the_one_call_that_is_left_of_those_that_ran() {
    let mut world = world();
    let [one, two, mine] =
        [1, 2, 3].map(|n| world.call("x", &echo(if n == 3 { "a__form" } else { "a__echo" }, n)).unwrap());
    asks(&mut world, "q");
    assert_eq!(world.upstreams[0].gate, HELD);
    world.answer_call(0, one);
    // A call sent after the question came cannot be its cause.
    let later = world.call("y", &echo("a__echo", 4)).unwrap();
    assert_eq!((world.seen(mine), refusal(&world, "q")), (vec![], None));
    world.answer_call(0, two);
    assert_eq!(world.seen(mine), [asked("q")]);
    assert_eq!(world.upstreams[0].gate, TurnGate { is_held: false, is_taken: true }, "it has no turn");
    world.answer_question(0, &json!("q"));
    world.answer_call(0, mine);
    assert_eq!(world.upstreams[0].gate, TurnGate::default());
    assert_eq!(world.seen(later), []);
    assert_eq!((conduct(&world, "form"), conduct(&world, "echo")), (Some(ItemConduct::Asks), None));
    assert!(!world.upstreams[0].in_turns, "nothing is suspected");
    let again = world.call("y", &echo("a__form", 5)).unwrap();
    assert!(world.upstreams[0].gate.is_taken, "it was on its way when that became known");
    world.answer_call(0, again);
    assert_eq!(world.upstreams[0].gate, TurnGate::default());
}

#[test]
fn a_question_that_is_not_clear_in_time_is_refused() {
    let mut world = world();
    let (one, two) = (world.call("x", &echo("a__form", 1)).unwrap(), world.call("y", &echo("a__echo", 2)).unwrap());
    asks(&mut world, "q");
    let patience = world.upstreams[0].askers.patience();
    world.pass(patience - Duration::from_millis(1));
    assert_eq!(refusal(&world, "q"), None);
    world.pass(Duration::from_millis(1));
    assert_eq!(refusal(&world, "q"), Some(-32602));
    assert!(!world.upstreams[0].gate.is_held, "calls that wait go on");
    assert_eq!((world.seen(one), world.seen(two)), (vec![], vec![]));
    assert_eq!(
        (conduct(&world, "form"), conduct(&world, "echo")),
        (Some(ItemConduct::Suspect), Some(ItemConduct::Suspect))
    );
    world.answer_call(0, two);
    asks(&mut world, "again");
    assert_eq!(world.seen(one), [asked("again")]);
    assert_eq!((conduct(&world, "form"), conduct(&world, "echo")), (Some(ItemConduct::Asks), None), "now it is known");
    world.upstreams[0].askers.set_patience(Duration::ZERO);
    world.call("y", &echo("a__echo", 3)).unwrap();
    asks(&mut world, "at once");
    assert_eq!(refusal(&world, "at once"), Some(-32602));
}

#[test]
fn a_second_question_meanwhile_is_refused_with_the_first() {
    let mut world = world();
    let calls = [1, 2, 3].map(|n| world.call("x", &echo("a__form", n)).unwrap());
    asks(&mut world, "q1");
    asks(&mut world, "q2");
    assert_eq!((refusal(&world, "q1"), refusal(&world, "q2")), (Some(-32602), Some(-32602)));
    assert!(!world.upstreams[0].gate.is_held);
    assert!(world.upstreams[0].gate.is_taken, "three of a kind are in flight without a turn");
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
    asks(&mut world, "q3");
    world.server_says(0, &json!({"jsonrpc": "2.0", "id": "p2", "method": "ping"}));
    assert_eq!(refusal(&world, "q3"), None, "a ping is no question");
    assert_eq!(world.reply_to(0, &json!("p2")).unwrap()["result"], json!({}));
    world.answer_call(0, calls[0]);
    world.answer_call(0, calls[1]);
    assert_eq!(world.seen(calls[2]), [asked("q3")]);
}

#[test]
fn calls_that_wait_pass_between_two_questions_however_fast_they_follow() {
    let mut world = world();
    for n in 1..=3 {
        world.call("x", &echo("a__form", n)).unwrap();
    }
    asks(&mut world, "q1");
    assert!(world.upstreams[0].gate.is_held);
    let lifted = world.upstreams[0].lifted;
    for id in ["q2", "q3"] {
        let ask = json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": {}});
        let now = world.now;
        world.upstreams[0].peer.handle_line(Bytes::from(ask.to_string()), now);
    }
    world.settle();
    assert!(world.upstreams[0].gate.is_held, "the third is held, and the two before are refused");
    assert_eq!((refusal(&world, "q1"), refusal(&world, "q2")), (Some(-32602), Some(-32602)));
    assert_eq!(world.upstreams[0].lifted, lifted + 1);
}

#[test]
fn a_question_is_refused_where_calls_of_two_callers_are_on_the_connection() {
    let mut world = world();
    world.many_callers = true;
    let one = world.call("x", &echo("a__form", 1)).unwrap();
    asks(&mut world, "q1");
    assert_eq!(world.seen(one), [asked("q1")], "one caller");
    let two = world.call("y", &echo("a__form", 2)).unwrap();
    asks(&mut world, "q2");
    assert_eq!(refusal(&world, "q2"), Some(-32602));
    assert!(!world.upstreams[0].gate.is_held, "nothing is waited for");
    world.answer_call(0, one);
    asks(&mut world, "q3");
    assert_eq!(refusal(&world, "q3"), Some(-32602), "it may be about the call of the other caller");
    assert_eq!(world.seen(two), []);
}

#[test]
fn a_question_is_refused_where_one_of_the_calls_is_cancelled_meanwhile() {
    let mut world = world();
    let calls = [1, 2, 3].map(|n| world.call("x", &echo("a__form", n)).unwrap());
    asks(&mut world, "q");
    world.cancel(0, calls[0]);
    assert_eq!(refusal(&world, "q"), Some(-32602));
    assert_eq!(world.upstreams[0].gate, TurnGate { is_held: false, is_taken: true });
    world.answer_call(0, calls[1]);
    assert_eq!(world.seen(calls[2]), []);
}

#[test]
fn a_question_that_is_held_ends_with_its_withdrawal_and_with_its_server() {
    let mut world = world();
    let calls = [1, 2].map(|n| world.call("x", &echo("a__echo", n)).unwrap());
    asks(&mut world, "q");
    let params = json!({"requestId": "q"});
    world.server_says(0, &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    assert_eq!(world.upstreams[0].gate, TurnGate::default());
    world.answer_call(0, calls[0]);
    assert_eq!((world.seen(calls[1]), refusal(&world, "q")), (vec![], None));
    world.call("x", &echo("a__echo", 3)).unwrap();
    asks(&mut world, "r");
    assert_eq!(world.upstreams[0].gate, HELD);
    let now = world.now;
    world.upstreams[0].peer.handle_closed("crashed");
    world.settle();
    assert_eq!(world.upstreams[0].gate, TurnGate::default());
    assert_eq!(world.upstreams[0].peer.left(), 0);
    world.upstreams[0].peer.handle_timeout(now + Duration::from_secs(60));
}

#[test]
fn an_item_that_asks_after_its_calls_have_ended_gets_no_question_through() {
    let mut world = world();
    let late = world.call("x", &echo("a__late", 1)).unwrap();
    world.answer_call(0, late);
    let params = json!({"jsonrpc": "2.0", "id": "roots", "method": "roots/list"});
    world.server_says(0, &params);
    assert_eq!(conduct(&world, "late"), None, "servers ask for roots at any time");
    asks(&mut world, "late 1");
    assert_eq!(refusal(&world, "late 1"), Some(-32601));
    assert_eq!(conduct(&world, "late"), Some(ItemConduct::Late));
    let form = world.call("y", &echo("a__form", 2)).unwrap();
    asks(&mut world, "late 2");
    assert_eq!(refusal(&world, "late 2"), Some(-32602), "too soon after it");
    world.pass(world.upstreams[0].askers.patience());
    asks(&mut world, "of form");
    assert_eq!(world.seen(form), [asked("of form")]);
    world.answer_question(0, &json!("of form"));
    let late = world.call("x", &echo("a__late", 3)).unwrap();
    asks(&mut world, "anybody's");
    assert_eq!(refusal(&world, "anybody's"), Some(-32602));
    world.answer_call(0, form);
    asks(&mut world, "its own");
    assert_eq!(refusal(&world, "its own"), Some(-32602));
    world.answer_call(0, late);
    world.call("x", &echo("a__form", 4)).unwrap();
    asks(&mut world, "late 3");
    assert_eq!(refusal(&world, "late 3"), Some(-32602), "its time begins anew");
}

#[test]
fn a_question_about_a_cancelled_call_is_no_late_one() {
    let mut world = world();
    let call = world.call("x", &echo("a__form", 1)).unwrap();
    world.cancel(0, call);
    asks(&mut world, "q");
    assert_eq!((refusal(&world, "q"), conduct(&world, "form")), (Some(-32601), None));
}

/// An event with a server that asks at any time.
#[derive(Clone, Debug)]
enum Rude {
    Call(usize),
    /// The server asks about any of the calls so far, ended or not.
    Ask(usize),
    Finish(usize),
    Park(usize),
    Answer(usize),
    Cancel(usize),
    Pass,
}

fn rude() -> impl Strategy<Value = Vec<Rude>> {
    let any = any::<usize>;
    let step = prop_oneof![
        4 => any().prop_map(Rude::Call),
        4 => any().prop_map(Rude::Ask),
        3 => any().prop_map(Rude::Finish),
        1 => any().prop_map(Rude::Park),
        1 => any().prop_map(Rude::Answer),
        1 => any().prop_map(Rude::Cancel),
        1 => Just(Rude::Pass),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_question_reaches_no_other_caller_whatever_its_server_does(steps in rude(), many_callers in any::<bool>()) {
        let mut world = world();
        world.many_callers = many_callers;
        let mut callers: Vec<&str> = Vec::new();
        let (mut live, mut asked) = (Vec::<u64>::new(), 0);
        let mut questions: Vec<Value> = Vec::new();
        let pick = |from: &[u64], at: usize| (!from.is_empty()).then(|| from[at % from.len()]);
        for step in steps {
            match step {
                Rude::Call(at) => {
                    let (caller, tool) = (["x", "y"][at % 2], ["a__form", "a__late"][at / 2 % 2]);
                    callers.push(caller);
                    live.push(world.call(caller, &echo(tool, callers.len() as u64)).unwrap());
                }
                Rude::Ask(at) if !callers.is_empty() => {
                    asked += 1;
                    let id = format!("{}/{asked}", at % callers.len() + 1);
                    asks(&mut world, &id);
                    questions.push(json!(id));
                }
                Rude::Finish(at) => if let Some(call) = pick(&live, at) {
                    world.answer_call(0, call);
                    live.retain(|other| *other != call);
                },
                Rude::Park(at) => if let Some(call) = pick(&live, at) {
                    world.upstreams[0].peer.handle_parked(call);
                },
                Rude::Answer(at) => if let Some(id) = questions.get(at % questions.len().max(1)).cloned() {
                    world.answer_question(0, &id);
                },
                Rude::Cancel(at) => if let Some(call) = pick(&live, at) {
                    world.cancel(0, call);
                    live.retain(|other| *other != call);
                },
                Rude::Pass => world.pass(Duration::from_secs(2)),
                Rude::Ask(_) => {}
            }
            world.check();
            // Nothing is held without an end, and nothing keeps calls back without a reason.
            let upstream = &mut world.upstreams[0];
            prop_assert!(!upstream.gate.is_held || upstream.peer.poll_timeout().is_some());
            prop_assert!(!live.is_empty() || upstream.gate == TurnGate::default());
        }
        for call in 1..=world.calls {
            for seen in world.seen(call) {
                if let SeenCallEvent::Asked(id) = seen {
                    let of: usize = id.as_str().unwrap().split('/').next().unwrap().parse().unwrap();
                    let (mine, theirs) = (callers[usize::try_from(call).unwrap() - 1], callers[of - 1]);
                    prop_assert!(!many_callers || mine == theirs, "{} of {} was asked {}", call, mine, id);
                }
            }
        }
        world.pass(Duration::from_secs(60));
        prop_assert!(!world.upstreams[0].gate.is_held);
    }
}
