//! Tests of held calls and bounds: what they leave to others, when their own time begins, and which
//! requests are held.

use super::*;

fn sleep(text: &str) -> Value {
    json!({"name": "fx__sleep", "arguments": {"ms": 50, "text": text}})
}

#[test]
fn held_calls_take_no_slot_no_place_and_no_limit_and_their_time_begins_when_they_are_sent() {
    const HELD: usize = 3;
    let policy = format!(
        "default = \"allow\"\n[policy.consent]\nmax-open = 100\n{LONG}\n\
         [[policy.rules]]\nid = \"asks\"\neffect = \"ask\"\ntools = [\"fx__sleep\"]\n\
         [[policy.limits]]\nid = \"few\"\nupstreams = [\"fx\"]\nconcurrent = 1\nper-day = {}",
        2 * (HELD + 1)
    );
    let setup = GatewaySetup::new().second_caller(TOKEN).server("limits.in-flight-per-caller = 1").policy(&policy);
    let log = InputLog::new(&setup.world.path("work"), "fx");
    let fake = setup.fake("fx", &Fake::stdio("legacy").logging(&log));
    let gateway = fake.toml("max-in-flight = 1\ncall-timeout = \"2s\"\ncall-max = \"3s\"").start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = Mcp::http_at(gateway.address, Some(TOKEN.to_owned()), era, "/mcp", json!({}));
        let mut calls = Vec::new();
        for n in 1..=HELD {
            calls.push(client.open("tools/call", sleep(&format!("{n} {era:?}"))));
            eventually("it waits", || listed(&gateway.world).len() == n);
        }
        // The upstream's only slot, the caller's only slot and the limit's only call are free.
        assert_eq!(client.call("fx__echo", json!({"text": "free"})).text(), "free", "{era:?}");
        pass(Duration::from_millis(3100));
        for _ in 0..HELD {
            let sent = log.count("tools/call");
            approve(&gateway, &listed(&gateway.world)[0]);
            eventually("it is made", || log.count("tools/call") > sent);
            pass(Duration::from_millis(100));
        }
        for call in &mut calls {
            let response = call.response();
            assert_eq!(response["result"]["content"][0]["text"], "slept", "{era:?}: {response}");
        }
    }
    // Each call was counted once, so the day's limit is used up now.
    let mut client = Mcp::http_at(gateway.address, Some(TOKEN.to_owned()), ClientEra::Modern, "/mcp", json!({}));
    let refused = client.call("fx__echo", json!({"text": "one too many"}));
    assert_eq!(reason(&refused), "limited", "{}", refused.raw);
    assert_eq!(log.count("tools/call"), 2 * (HELD + 1));
}

#[test]
fn prompts_and_resources_are_held_like_tools() {
    let stage = ConsentGateway::with(LONG, "");
    for era in ClientEra::BOTH {
        let mut client = stage.client(era, json!({}));
        for (method, params) in [
            ("prompts/get", json!({"name": "fx__p", "arguments": {"a": "b"}})),
            ("resources/read", json!({"uri": "fx://doc/1"})),
        ] {
            let mut call = client.open(method, params);
            if let Ok(answer) = call.next_within(Duration::from_millis(300)) {
                panic!("{method} {era:?}: it is not held: {answer:?}");
            }
            approve_in(&stage.gateway.world);
            let response = call.response();
            assert!(response["result"].is_object(), "{method} {era:?}: {response}");
        }
    }
    let stage = ConsentGateway::with("hold = \"200ms\"", "");
    for (era, uri) in ClientEra::BOTH.into_iter().zip(["fx://doc/1", "fx://doc/2"]) {
        let answer = stage.client(era, json!({})).request("resources/read", json!({"uri": uri}));
        assert_eq!(answer.code(), Some(1003), "{era:?}: {}", answer.raw);
    }
}

#[test]
fn an_upstream_that_is_taken_away_takes_its_held_calls_along() {
    let setup =
        || GatewaySetup::new().policy(&format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\n{LONG}"));
    let with = || setup().fake("fx", &Fake::stdio("legacy"));
    let gateway = with().start();
    for era in ClientEra::BOTH {
        gateway.wait_for_tools(&["fx__echo"]);
        let mut call = gateway.client(era).open("tools/call", echo(&format!("{era:?}")));
        open_ids(&gateway.world);
        assert!(gateway.reload(&setup().text()).status.success());
        let response = call.next_within(PATIENCE).unwrap().unwrap();
        assert!(response["result"]["isError"] == true || response["error"].is_object(), "{era:?}: {response}");
        assert_eq!(listed(&gateway.world), [""; 0], "{era:?}");
        assert!(gateway.reload(&with().text()).status.success());
    }
}

#[test]
fn a_tool_that_its_profile_loses_while_a_call_is_held_is_not_called() {
    let place = GatewaySetup::new();
    let log = InputLog::new(&place.world.path("work"), "fx");
    let few = |tool: &str| {
        let policy = format!("default = \"ask\"\n[policy.consent]\nper-minute = 100\n{LONG}");
        let table = format!("[profiles.few]\ntools = {{ allow = [\"fx__{tool}\"] }}");
        GatewaySetup::new().policy(&policy).fake("fx", &Fake::stdio("legacy").logging(&log)).toml(&table)
    };
    let gateway = few("echo").start();
    gateway.wait_for_tools(&["fx__echo"]);
    for era in ClientEra::BOTH {
        let mut client = Mcp::http_at(gateway.address, gateway.token(), era, "/mcp/few", json!({}));
        let mut call = client.open("tools/call", echo(&format!("{era:?}")));
        let id = open_ids(&gateway.world).remove(0);
        assert!(gateway.reload(&few("env").text()).status.success());
        // The reload may have closed the approval.
        drop(gateway.run(&["approve", &id]));
        let response = call.next_within(PATIENCE).unwrap().unwrap();
        assert!(response["result"]["isError"] == true || response["error"].is_object(), "{era:?}: {response}");
        clear(&gateway.world);
        assert!(gateway.reload(&few("echo").text()).status.success());
    }
    assert_eq!(log.count("tools/call"), 0);
}
