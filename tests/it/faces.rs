//! Tests of every client request over `headend stdio`: alone, attached to a daemon, and two at
//! once.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Gateway, Setup};
use crate::mcp::{Era, MODERN, Mcp, names};
use crate::process::eventually;
use crate::stdio::Pipe;
use crate::upstream::Fake;

const TOOLS: &[&str] = &["fx__echo", "fx__fail", "fx__sleep"];

#[test]
fn every_request_works_over_stdio_without_a_daemon() {
    for (era, upstream) in
        [(Era::LEGACY, "legacy"), (Era::LEGACY, "modern"), (Era::Modern, "legacy"), (Era::Modern, "modern")]
    {
        let (world, config) = Setup::new().fake("fx", &Fake::stdio(upstream)).write();
        let pipe = Pipe::start(&world, &config, &["--no-daemon"]);
        let mut client = Mcp::stdio(pipe, era);
        wait_for_echo(&mut client);
        everything_works(&mut client, era, false, upstream);
        let status = client.pipe().close(Duration::from_secs(60));
        assert!(status.is_some_and(|status| status.success()), "{era:?} {upstream}: ends well when its input ends");
    }
}

#[test]
fn every_request_works_over_stdio_attached_to_the_daemon() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(TOOLS);
    let pid = pid_in(&gateway.legacy().call("fx__env", json!({})).text());
    for era in Era::BOTH {
        let pipe = Pipe::start(&gateway.world, &gateway.config, &[]);
        let mut client = Mcp::stdio(pipe, era);
        everything_works(&mut client, era, false, "attached");
        let attached = pid_in(&client.call("fx__env", json!({})).text());
        assert_eq!(attached, pid, "{era:?}: the daemon's own upstream answers");
    }
}

#[test]
fn two_hosts_share_the_daemon_and_its_upstream_over_stdio() {
    let gateway = Setup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(TOOLS);
    let start = || Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), Era::LEGACY);
    let (mut first, mut second) = (start(), start());
    let (a, b) = (first.call("fx__env", json!({})).text(), second.call("fx__env", json!({})).text());
    assert_eq!(pid_in(&a), pid_in(&b));
}

#[test]
fn an_upstream_can_be_given_on_the_command_line_and_served_transparently() {
    let server = Fake::http("both").spawn();
    let (world, config) = Setup::new().write();
    let argument = format!("up={}", server.url);
    let pipe = Pipe::start(&world, &config, &["--upstream", &argument, "--transparent"]);
    let mut client = Mcp::stdio(pipe, Era::Modern);
    eventually("echo is listed bare", || client.tool_names().iter().any(|name| name == "echo"));
    assert_eq!(client.call("echo", json!({"text": "bare"})).text(), "bare");
}

/// Waits for all items, which a gateway alone lists as they arrive.
fn wait_for_echo(client: &mut Mcp) {
    eventually("echo is listed", || client.tool_names().iter().any(|name| name == "fx__echo"));
}

/// Returns the digits after `pid` in the answer of the tool `env`.
pub(crate) fn pid_in(text: &str) -> u32 {
    let at = text.find("pid").unwrap_or_else(|| panic!("no pid in {text}"));
    let digits = text[at..].trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap()
}

/// Returns the pid of the process behind an upstream that `fake-upstream` plays.
pub(crate) fn upstream_pid(gateway: &Gateway, name: &str) -> u32 {
    pid_in(&gateway.modern().call(&format!("{name}__env"), json!({})).text())
}

fn everything_works(client: &mut Mcp, era: Era, http: bool, at: &str) {
    let at = format!("{era:?} at {at}");
    greets(client, era, http, &at);
    lists(client, &at);
    calls(client, era, &at);
    refuses(client, era, http, &at);
}

fn greets(client: &mut Mcp, era: Era, http: bool, at: &str) {
    if era == Era::Modern {
        let answer = client.request("server/discover", json!({}));
        let versions = answer.result()["supportedVersions"].as_array().cloned().unwrap_or_default();
        assert!(versions.contains(&json!(MODERN)), "{at}: {}", answer.raw);
        assert!(answer.result()["capabilities"]["tools"].is_object(), "{at}: {}", answer.raw);
        let ping = client.request("ping", json!({}));
        assert_eq!(ping.code(), Some(-32601), "{at}: {}", ping.raw);
        assert!(!http || ping.status == 404, "{at}: {}", ping.status);
    } else {
        assert_eq!(client.greeting["serverInfo"]["name"], "headend", "{at}: {}", client.greeting);
        assert!(client.greeting["capabilities"]["tools"].is_object(), "{at}: {}", client.greeting);
        assert_eq!(client.request("ping", json!({})).result(), &json!({}), "{at}");
    }
}

fn lists(client: &mut Mcp, at: &str) {
    let tools = client.tool_names();
    assert!(TOOLS.iter().all(|tool| tools.iter().any(|name| name == tool)), "{at}: {tools:?}");
    assert!(names(&client.list("prompts/list", "prompts")).contains(&"fx__p".to_owned()), "{at}");
    let resources = client.list("resources/list", "resources");
    assert!(resources.iter().any(|resource| resource["uri"] == "fx://doc/1"), "{at}: {resources:?}");
    let templates = client.list("resources/templates/list", "resourceTemplates");
    assert!(templates.iter().any(|template| template["uriTemplate"] == "fx://doc/{id}"), "{at}: {templates:?}");
}

fn calls(client: &mut Mcp, era: Era, at: &str) {
    let echo = client.call("fx__echo", json!({"text": "grüße \"quoted\" \u{1f600}"}));
    assert_eq!(echo.text(), "grüße \"quoted\" \u{1f600}", "{at}");
    if era == Era::Modern {
        assert_eq!(echo.result()["resultType"], "complete", "{at}: {}", echo.raw);
    }
    let failed = client.call("fx__fail", json!({}));
    assert!(failed.is_error(), "{at}: {}", failed.raw);
    let prompt = client.request("prompts/get", json!({"name": "fx__p", "arguments": {"a": "blue"}}));
    assert!(prompt.result()["messages"].to_string().contains("blue"), "{at}: {}", prompt.raw);
    for uri in ["fx://doc/1", "fx://doc/77"] {
        let read = client.request("resources/read", json!({"uri": uri}));
        assert_eq!(read.result()["contents"][0]["uri"], uri, "{at}: {}", read.raw);
    }
    let reference = json!({"ref": {"type": "ref/prompt", "name": "fx__p"}, "argument": {"name": "a", "value": "b"}});
    let completion = client.request("completion/complete", reference);
    assert!(completion.result()["completion"]["values"].is_array(), "{at}: {}", completion.raw);
}

fn refuses(client: &mut Mcp, era: Era, http: bool, at: &str) {
    for (label, method, params) in [
        ("unknown tool", "tools/call", json!({"name": "fx__nope", "arguments": {}})),
        ("a tool by its upstream's name", "tools/call", json!({"name": "echo", "arguments": {}})),
        ("unknown prompt", "prompts/get", json!({"name": "fx__nope"})),
        ("no name", "tools/call", json!({"arguments": {}})),
    ] {
        assert_eq!(client.request(method, params).code(), Some(-32602), "{at}: {label}");
    }
    let unread = client.request("resources/read", json!({"uri": "nowhere://x"}));
    assert!(matches!(unread.code(), Some(-32002 | -32602)), "{at}: {}", unread.raw);
    let unknown = client.request("no/such/method", json!({}));
    assert_eq!(unknown.code(), Some(-32601), "{at}: {}", unknown.raw);
    if http {
        assert_eq!(unknown.status, if era == Era::Modern { 404 } else { 200 }, "{at}");
    }
}
