//! Tests of how held calls end: no call runs that was not allowed when it was decided, and none
//! after its client gave it up.

use rustix::process::Signal;

use super::*;
use crate::stage::upstream::Patch;

/// Connects a client by a pipe to the daemon.
fn attached(stage: &ConsentGateway, era: ClientEra) -> Mcp {
    Mcp::stdio(stage.gateway.pipe(), era)
}

/// Connects a client over HTTP+SSE.
fn old(stage: &ConsentGateway) -> OldClient {
    let mut client = OldClient::connect(&stage.gateway, stage.gateway.token(), "/sse");
    client.initialize("2024-11-05");
    client
}

fn cancellation(id: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

/// A way in which a client gives a held call up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum GivesUp {
    ClosesItsStream,
    Cancels,
    EndsItsSession,
    CancelsOnAPipe(ClientEra),
    ClosesItsPipe(ClientEra),
    CancelsOnTheOldTransport,
    ClosesTheOldTransport,
}

impl GivesUp {
    /// Makes a call, and gives it up once it waits and that time has passed.
    fn play(self, stage: &ConsentGateway, params: Value, after: Duration) {
        let wait = || {
            open_ids(&stage.gateway.world);
            pass(after);
        };
        match self {
            Self::ClosesItsStream => {
                let mut call = stage.client(ClientEra::Modern, json!({})).open("tools/call", params.clone());
                wait();
                if params["_meta"]["progressToken"].is_string() {
                    assert_eq!(call.next().unwrap()["method"], "notifications/progress");
                }
                drop(call);
            }
            Self::Cancels | Self::EndsItsSession => {
                let mut client = stage.client(ClientEra::LEGACY, json!({}));
                let call = client.open("tools/call", params);
                wait();
                if self == Self::Cancels {
                    client.notify("notifications/cancelled", json!({"requestId": call.id}));
                } else {
                    assert_eq!(client.end_session(), 204);
                }
            }
            Self::CancelsOnAPipe(era) | Self::ClosesItsPipe(era) => {
                let mut client = attached(stage, era);
                let call = message("held", client.dress(params));
                client.pipe().send(call.to_string().as_bytes());
                wait();
                if self == Self::CancelsOnAPipe(era) {
                    client.notify("notifications/cancelled", json!({"requestId": "held"}));
                    // Lines are read in order.
                    assert!(client.request("tools/list", json!({})).result()["tools"].is_array());
                } else {
                    assert!(client.pipe().close(PATIENCE).is_some());
                }
            }
            Self::CancelsOnTheOldTransport | Self::ClosesTheOldTransport => {
                let client = old(stage);
                assert_eq!(client.post(&message("held", params)).0, 202);
                wait();
                if self == Self::CancelsOnTheOldTransport {
                    assert_eq!(client.post(&cancellation("held")).0, 202);
                }
                drop(client);
            }
        }
    }

    /// Asserts that the given-up call is never made, and that the next calls of that client are
    /// held for two thirds of the time that it waited.
    fn is_for_good(self, params: impl Fn(&str) -> Value) {
        const AFTER: Duration = Duration::from_millis(300);
        let stage = ConsentGateway::of(GatewaySetup::new().server("legacy-sse = true"), LONG, "");
        let text = "given up";
        self.play(&stage, params(text), AFTER);
        // The approval is still open, and calls by that client's name are held for two thirds of
        // the time.
        assert_eq!(pending(&stage).len(), 1, "{self:?}");
        pass(Duration::from_millis(300));
        let mut client = stage.client(ClientEra::Modern, json!({}));
        let begun = now();
        let mut next = client.open("tools/call", echo(text));
        let response = next.next_within(Duration::from_secs(30)).unwrap_or_else(|error| panic!("{self:?}: {error}"));
        assert_eq!(reason_of(&response.unwrap()), "awaiting_approval", "{self:?}");
        assert!(now() - begun >= AFTER / 3 * 2, "{self:?}: {:?}", now() - begun);
        assert_eq!(stage.called().len(), 0, "{self:?}");
        pending(&stage).iter().for_each(|id| approve(&stage.gateway, id));
        pass(Duration::from_millis(200));
        assert_eq!(stage.called().len(), 0, "{self:?}: the approval came too late for that call");
        // Repeating the call finds the late approval.
        assert!(echoed(&client.call("fx__echo", json!({"text": text})), text), "{self:?}");
        assert_eq!(stage.called().len(), 1, "{self:?}");
    }
}

#[test]
fn a_call_that_its_client_gave_up_over_http_is_never_made_and_the_next_ones_wait_less() {
    for way in [GivesUp::ClosesItsStream, GivesUp::Cancels, GivesUp::EndsItsSession] {
        way.is_for_good(echo);
    }
}

#[test]
fn nor_is_one_whose_stream_has_begun() {
    for way in [GivesUp::ClosesItsStream, GivesUp::Cancels, GivesUp::EndsItsSession] {
        way.is_for_good(echo_with_progress);
    }
}

#[test]
fn nor_is_one_on_a_pipe() {
    for era in ClientEra::BOTH {
        GivesUp::CancelsOnAPipe(era).is_for_good(echo_with_progress);
        GivesUp::ClosesItsPipe(era).is_for_good(echo);
    }
}

#[test]
fn nor_is_one_over_the_old_transport() {
    GivesUp::CancelsOnTheOldTransport.is_for_good(echo);
    GivesUp::ClosesTheOldTransport.is_for_good(echo_with_progress);
}

#[test]
fn a_legacy_client_that_lost_its_stream_has_not_given_up_and_finds_the_answer() {
    let stage = ConsentGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::LEGACY, json!({}));
    let mut call = client.open("tools/call", echo_with_progress("resumed"));
    let id = call.id.clone();
    let first = call.event().unwrap().id.unwrap();
    let open = open_ids(&stage.gateway.world);
    drop(call);
    pass(Duration::from_millis(300));
    assert_eq!(pending(&stage), open);
    approve(&stage.gateway, &open[0]);
    let mut resumed = client.resume(&first);
    let response = loop {
        let message = resumed.next().expect("the answer comes");
        if message["id"] == id {
            break message;
        }
    };
    assert!(is_echo(&response, "resumed"), "{response}");
    assert_eq!(stage.called().len(), 1);
}

#[test]
fn an_approval_in_the_moment_of_giving_up_is_used_once_at_most() {
    let stage = ConsentGateway::with(LONG, "");
    let mut used = Vec::new();
    for (turns, era) in (0..TURNS).flat_map(|turns| ClientEra::BOTH.map(|era| (turns, era))) {
        let text = format!("turn {turns} {era:?}");
        // A name of its own, since clients of one name share their patience.
        let (address, token) = (stage.gateway.address, stage.gateway.token());
        let mut client = Mcp::http_named(address, token, era, &text);
        let call = client.open("tools/call", echo(&text));
        let id = open_ids(&stage.gateway.world).remove(0);
        let answered = stage.answer_after(turns, &id, "once");
        block_on(take_turns(TURNS / 2));
        if era != ClientEra::Modern {
            client.notify("notifications/cancelled", json!({"requestId": call.id}));
        }
        drop(call);
        assert!(block_on(answered).unwrap(), "{text}: its approval is open still");
        // Repeating the call runs it by that approval, or waits for another one.
        let mut next = client.open("tools/call", echo(&text));
        let again = next.next_within(Duration::from_millis(300)).ok().flatten();
        let ran = stage.called().iter().filter(|called| **called == json!({"text": text})).count();
        assert!(ran <= 1, "{text}: one yes is one execution");
        let by_next = again.is_some_and(|response| is_echo(&response, &text));
        assert!(!by_next || ran == 1, "{text}");
        used.push((ran, by_next));
        clear(&stage.gateway.world);
        if era != ClientEra::Modern {
            client.end_session();
        }
    }
    assert!(used.contains(&(1, true)) && used.contains(&(1, false)), "{used:?}");
}

#[test]
fn an_approval_in_the_last_moment_is_used_once_by_that_call_or_by_the_next() {
    const ROUNDS: u64 = 12;
    let stage = ConsentGateway::with("hold = \"700ms\"", "");
    let mut in_time = 0;
    for round in 0..ROUNDS {
        let text = format!("round {round}");
        let mut client = stage.client(ClientEra::BOTH[usize::from(round % 2 == 0)], json!({}));
        let begun = now();
        let mut call = client.open("tools/call", echo(&text));
        let id = open_ids(&stage.gateway.world).remove(0);
        let at = Duration::from_millis(640 + round * 8);
        pass(at.saturating_sub(now() - begun));
        approve(&stage.gateway, &id);
        let response = call.response();
        let reached = || stage.called().iter().filter(|called| **called == json!({"text": text})).count();
        if is_echo(&response, &text) {
            in_time += 1;
        } else {
            assert_eq!((reason_of(&response), reached()), ("awaiting_approval", 0), "{round}: {response}");
            assert!(echoed(&client.call("fx__echo", json!({"text": text})), &text), "{round}: the grant is there");
        }
        assert_eq!(reached(), 1, "round {round}");
    }
    assert!(0 < in_time && in_time < ROUNDS, "approved in time: {in_time} of {ROUNDS}");
    assert_eq!(stage.called().len() as u64, ROUNDS);
}

#[test]
fn a_client_that_hears_progress_and_gives_up_all_the_same_gets_its_refusal_before_that() {
    let stage = ConsentGateway::with("hold = \"500ms\"", "");
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, json!({}));
        let begun = now();
        let mut call = client.open("tools/call", echo_with_progress(&format!("{era:?}")));
        assert_eq!(call.next().unwrap()["method"], "notifications/progress", "{era:?}");
        assert_eq!(reason_of(&call.response()), "awaiting_approval", "{era:?}: progress does not lengthen the wait");
        assert!(now() - begun < PATIENCE, "{era:?}");
        clear(&stage.gateway.world);
    }
    assert_eq!(stage.called().len(), 0);
}

/// Sets up a server of which only `fx__echo` needs an approval.
fn one_that_asks(fake: Fake, more: &str) -> GatewaySetup {
    let rule = "[[policy.rules]]\nid = \"echo-asks\"\neffect = \"ask\"\ntools = [\"fx__echo\"]\n";
    let policy = format!("default = \"allow\"\n[policy.consent]\nper-minute = 100\n{LONG}");
    GatewaySetup::new().policy(&policy).fake("fx", &fake).toml(&format!("{rule}{more}"))
}

#[test]
fn a_deny_rule_that_comes_while_a_call_is_held_has_the_last_word() {
    let log_of = GatewaySetup::new();
    let log = InputLog::new(&log_of.world.path("work"), "fx");
    let fake = Fake::stdio("legacy").logging(&log);
    let gateway = one_that_asks(fake.clone(), "").start();
    gateway.wait_for_tools(&["fx__echo"]);
    let deny = "[[policy.rules]]\nid = \"stop\"\neffect = \"deny\"\ntools = [\"fx__echo\"]\n\
                arguments = [{ pointer = \"/text\", present = true }]\n";
    let (before, after) = (one_that_asks(fake.clone(), "").text(), one_that_asks(fake, deny).text());
    for era in ClientEra::BOTH {
        let mut client = gateway.client(era);
        let mut call = client.open("tools/call", echo(&format!("{era:?}")));
        let id = open_ids(&gateway.world).remove(0);
        let reloaded = gateway.reload(&after);
        assert!(reloaded.status.success(), "{}", crate::stage::process::said(&reloaded));
        approve(&gateway, &id);
        let response = call.response();
        assert_eq!(reason_of(&response), "denied", "{era:?}: {response}");
        assert!(gateway.reload(&before).status.success());
    }
    assert_eq!(log.count("tools/call"), 0);
}

#[test]
fn a_definition_that_changes_while_a_call_is_held_takes_the_call_with_it() {
    let place = GatewaySetup::new();
    let (log, patch) = (InputLog::new(&place.world.path("work"), "fx"), Patch::new(&place));
    let gateway = one_that_asks(patch.of(Fake::stdio("legacy").logging(&log)), "").start();
    gateway.wait_for_tools(&["fx__echo", "fx__mutate"]);
    let mut client = gateway.legacy();
    let mut call = client.open("tools/call", echo("x"));
    let id = open_ids(&gateway.world).remove(0);
    patch.write(&json!({"echo": {"description": "Does something else."}}));
    assert!(!gateway.modern().call("fx__mutate", json!({})).is_error());
    let response = call.response();
    assert!(response["result"]["isError"] == true || response["error"].is_object(), "{response}");
    let late = gateway.run(&["approve", &id]);
    assert!(!late.status.success(), "its approval is closed: {}", crate::stage::process::said(&late));
    assert_eq!(log.lines_with(&["tools/call", "\"name\":\"echo\""]).len(), 0);
}

#[test]
fn the_end_of_a_token_ends_its_held_calls() {
    let stage = ConsentGateway::with(LONG, "");
    let before = std::fs::read_to_string(&stage.gateway.config).unwrap();
    let without = before.replace("auth.tokens.second = { env = \"SECOND_TOKEN\" }\n", "");
    assert_ne!(before, without);
    for (round, era) in [ClientEra::LEGACY, ClientEra::LEGACY, ClientEra::Modern].into_iter().enumerate() {
        let mut client = stage.second(era, json!({}));
        let mut call = client.open("tools/call", echo(&format!("{round} {era:?}")));
        let id = open_ids(&stage.gateway.world).remove(0);
        assert!(call.next_within(Duration::from_millis(700)).is_err(), "{era:?}: the one before was not given up");
        assert!(stage.gateway.reload(&without).status.success());
        // A session ends with its token; a call without a session is refused.
        match call.next_within(PATIENCE) {
            Ok(Some(response)) => assert_eq!(reason_of(&response), "denied", "{era:?}: {response}"),
            Ok(None) => {}
            Err(error) => panic!("{era:?}: it is held still: {error}"),
        }
        let late = stage.gateway.run(&["approve", &id]);
        assert!(!late.status.success(), "{era:?}: its approval is closed: {}", crate::stage::process::said(&late));
        assert!(stage.gateway.reload(&before).status.success());
    }
    assert_eq!(stage.called().len(), 0);
}

#[test]
fn of_three_hundred_equal_calls_one_approval_makes_one() {
    let stage = ConsentGateway::with(LONG, "");
    let mut client = stage.client(ClientEra::Modern, json!({}));
    let calls: Vec<OpenCall> = (0..300).map(|_| client.open("tools/call", echo("same"))).collect();
    // Calls beyond the number of held calls are refused at once.
    let count = "outcome=\"awaiting_approval\",upstream=\"fx\"} 280";
    eventually("280 are refused", || stage.gateway.scrape().contains(count));
    let mut held = Vec::new();
    for mut call in calls {
        match call.next_within(Duration::from_millis(50)) {
            Ok(response) => assert_eq!(reason_of(&response.unwrap()), "awaiting_approval"),
            Err(_) => held.push(call),
        }
    }
    assert_eq!(held.len(), 20);
    // An approval of a refused call allows the next equal call; the first approval of a held call
    // makes that call.
    for id in listed(&stage.gateway.world) {
        approve(&stage.gateway, &id);
        pass(Duration::from_millis(300));
        if !stage.called().is_empty() {
            break;
        }
    }
    // Further calls wait for approvals of their own, and are denied.
    let mut made = 0;
    for mut call in held {
        let response = loop {
            match call.next_within(Duration::from_millis(100)) {
                Ok(response) => break response.unwrap(),
                Err(_) => clear(&stage.gateway.world),
            }
        };
        made += usize::from(is_echo(&response, "same"));
    }
    assert_eq!((made, stage.called().len()), (1, 1));
}

#[test]
fn at_the_stop_of_the_daemon_held_calls_get_their_refusal_and_nothing_waits_for_them() {
    let mut stage = ConsentGateway::of(GatewaySetup::new().server("legacy-sse = true"), LONG, "");
    let mut legacy = stage.client(ClientEra::LEGACY, json!({}));
    let mut modern = stage.second(ClientEra::Modern, json!({}));
    let (mut attached, mut old) = (attached(&stage, ClientEra::LEGACY), old(&stage));
    let mut calls = [
        legacy.open("tools/call", echo("legacy")),
        legacy.open("tools/call", echo_with_progress("legacy, begun")),
        modern.open("tools/call", echo("modern")),
        modern.open("tools/call", echo_with_progress("modern, begun")),
    ];
    attached.pipe().send(message("p", echo("pipe")).to_string().as_bytes());
    assert_eq!(old.post(&message("o", echo("old"))).0, 202);
    eventually("all wait", || pending(&stage).len() == 6);
    let begun = now();
    stage.gateway.signal(Signal::TERM);
    for call in &mut calls {
        assert_eq!(reason_of(&call.response()), "awaiting_approval");
    }
    let answer = attached.pipe().answer(&json!("p"), PATIENCE);
    assert_eq!(reason(&answer), "awaiting_approval", "{}", answer.raw);
    assert_eq!(reason_of(&old.message()), "awaiting_approval");
    assert!(stage.gateway.wait(PATIENCE).is_some_and(|status| status.success()));
    assert!(now() - begun < Duration::from_secs(20), "{:?}", now() - begun);
    assert_eq!(stage.called().len(), 0);
}
