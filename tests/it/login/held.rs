//! Calls that find their server waiting for a login: held until it is given, led to the page, refused when nobody gives it.

use super::*;
use crate::consent::TOKEN;
use crate::mcp::{Era, Mcp, Open};

/// Longer than any test.
const LONG: &str = "10m";
const MOMENT: Duration = Duration::from_millis(400);

/// A world whose server has listed its tools and waits for a login.
fn waiting(setup: Setup, hold: &str) -> World {
    let world = world_of(setup, "modern", 3600, hold);
    eventually("it waits for a login", || world.state() == "needs-login");
    world.log_in();
    world.gateway.wait_for_tools(&["docs__echo"]);
    log_out(&world);
    world
}

fn log_out(world: &World) {
    assert!(world.gateway.run(&["logout", "docs"]).status.success());
    eventually("it waits for a login again", || world.state() == "needs-login");
    world.gateway.wait_for_tools(&["docs__echo"]);
}

fn client(world: &World, era: Era, capabilities: Value) -> Mcp {
    Mcp::http_at(world.gateway.address, world.gateway.token(), era, "/mcp", capabilities)
}

fn pages() -> Value {
    json!({"elicitation": {"url": {}}})
}

fn echo(text: &str) -> Value {
    json!({"name": "docs__echo", "arguments": {"text": text}})
}

/// How often the server was called with that text.
fn called(world: &World, text: &str) -> usize {
    world.log.lines_with(&["\"method\":\"tools/call\"", &format!("{text:?}")]).len()
}

fn is_echo(response: &Value, text: &str) -> bool {
    response["result"]["content"][0]["text"] == text && response["result"]["isError"] != true
}

fn reason(response: &Value) -> &str {
    response["result"]["_meta"]["headend/refusal"]["reason"].as_str().unwrap_or_default()
}

fn waits(call: &mut Open) -> bool {
    call.next_within(MOMENT).is_err()
}

#[test]
fn a_held_call_goes_on_after_the_login_and_is_made_once() {
    let world = waiting(Setup::new(), LONG);
    for era in Era::BOTH {
        let text = format!("held {era:?}");
        let mut client = client(&world, era, json!({}));
        let mut params = echo(&text);
        params["_meta"] = json!({"progressToken": "mine"});
        let mut call = client.open("tools/call", params);
        let first = call.next().unwrap();
        assert_eq!(first["params"]["message"], "waiting for a login at docs", "{era:?}: {first}");
        assert!(waits(&mut call), "{era:?}");
        assert_eq!(called(&world, &text), 0, "{era:?}");
        world.log_in();
        let response = call.response();
        assert!(is_echo(&response, &text), "{era:?}: {response}\n{}", world.gateway.story());
        assert_eq!(called(&world, &text), 1, "{era:?}");
        log_out(&world);
    }
}

#[test]
fn a_call_that_was_held_in_vain_is_refused_with_the_command_and_no_link() {
    let world = waiting(Setup::new(), "900ms");
    let before = world.asked("no token");
    let began = Instant::now();
    let answer = world.gateway.modern().call("docs__echo", json!({"text": "in vain"}));
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(reason(&answer.message), "needs_login", "{}", answer.raw);
    assert_eq!(answer.result()["_meta"]["headend/refusal"]["login"]["command"], "headend login docs");
    assert!(!answer.raw.contains("http://"), "{}", answer.raw);
    assert_eq!((world.asked("no token"), called(&world, "in vain")), (before, 0), "the server is left alone");
    // A client that gave a call up is not made to wait as long again; one that withdraws it leaves nothing behind.
    drop(world.gateway.modern().open("tools/call", echo("given up")));
    world.log_in();
    assert_eq!(called(&world, "given up"), 0);
}

#[test]
fn a_legacy_client_is_led_to_the_page_by_one_call_and_hears_of_the_end() {
    let world = waiting(Setup::new(), LONG);
    let mut client = client(&world, Era::LEGACY, pages());
    let mut call = client.open("tools/call", echo("led"));
    let question = call.next().unwrap();
    let base = format!("http://{}", world.gateway.console_address().unwrap());
    assert_eq!((&question["method"], &question["params"]["mode"]), (&json!("elicitation/create"), &json!("url")));
    assert_eq!(question["params"]["url"], format!("{base}/upstreams/docs"), "{question}");
    let mut other = client.open("tools/call", echo("beside"));
    assert!(waits(&mut other), "one call leads there");
    client.respond(&question["id"], json!({"action": "accept"}));
    assert!(waits(&mut call), "it only means that the page is opened");
    world.log_in();
    let end = call.next().unwrap();
    assert_eq!(end["method"], "notifications/elicitation/complete", "{end}");
    assert_eq!(end["params"]["elicitationId"], question["params"]["elicitationId"]);
    assert!(is_echo(&call.response(), "led") && is_echo(&other.response(), "beside"));
    assert_eq!((called(&world, "led"), called(&world, "beside")), (1, 1));

    log_out(&world);
    let mut call = client.open("tools/call", echo("declined"));
    let question = call.next().unwrap();
    client.respond(&question["id"], json!({"action": "decline"}));
    assert_eq!(reason(&call.response()), "needs_login");
    let mut again = client.open("tools/call", echo("again"));
    assert!(waits(&mut again), "who declined is not asked again, and the call is held");
    assert_eq!(called(&world, "declined"), 0);
}

#[test]
fn a_modern_client_is_led_to_the_page_and_goes_on_with_the_same_call() {
    let world = waiting(Setup::new(), LONG);
    let mut client = client(&world, Era::Modern, pages());
    let asked = |client: &mut Mcp, text: &str| {
        let answer = client.call("docs__echo", json!({"text": text}));
        let result = answer.result();
        let question = result["inputRequests"]["gw.login"]["params"].clone();
        assert_eq!(question["mode"], "url", "{}", answer.raw);
        assert!(question["url"].as_str().unwrap().ends_with("/upstreams/docs"), "{}", answer.raw);
        let mut retry = echo(text);
        retry["requestState"] = result["requestState"].clone();
        retry
    };
    let mut retry = asked(&mut client, "led");
    retry["inputResponses"] = json!({"gw.login": {"action": "accept"}});
    let mut call = client.open("tools/call", retry);
    assert!(waits(&mut call), "it waits for the person on the page");
    world.log_in();
    let response = call.response();
    assert!(is_echo(&response, "led"), "{response}");
    assert_eq!(called(&world, "led"), 1);

    log_out(&world);
    let mut retry = asked(&mut client, "other");
    retry["inputResponses"] = json!({"gw.login": {"action": "accept"}});
    retry["arguments"] = json!({"text": "changed"});
    assert!(client.request("tools/call", retry).code().is_some(), "a state is good for its own call");
    let mut retry = asked(&mut client, "declined");
    retry["inputResponses"] = json!({"gw.login": {"action": "decline"}});
    assert_eq!(reason(&client.request("tools/call", retry).message), "needs_login");
    assert_eq!((called(&world, "declined"), called(&world, "changed")), (0, 0));
}

#[test]
fn where_another_caller_is_admitted_nobody_is_led_to_the_page() {
    let world = waiting(Setup::new().second_caller(TOKEN), "600ms");
    let tokens = [world.gateway.token().unwrap(), TOKEN.to_owned()];
    for (token, era) in tokens.iter().flat_map(|token| Era::BOTH.map(|era| (token, era))) {
        let mut client = Mcp::http_at(world.gateway.address, Some(token.clone()), era, "/mcp", pages());
        let answer = client.call("docs__echo", json!({"text": "a"}));
        assert_eq!(reason(&answer.message), "needs_login", "{era:?}: {}", answer.raw);
        assert!(!answer.raw.contains("http://") && answer.notices.is_empty(), "{era:?}: {}", answer.raw);
    }
}
