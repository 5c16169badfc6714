//! Tests of every client request over `headend stdio`: alone, attached to a daemon, and two at
//! once.

use std::time::Duration;

use serde_json::json;

use crate::tools::harness::{Gateway, GatewaySetup};
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::eventually;
use crate::tools::stdio::Pipe;
use crate::tools::steps::faces::{TOOLS, everything_works};
use crate::tools::upstream::Fake;

#[test]
fn every_request_works_over_stdio_without_a_daemon() {
    for (era, upstream) in [
        (ClientEra::LEGACY, "legacy"),
        (ClientEra::LEGACY, "modern"),
        (ClientEra::Modern, "legacy"),
        (ClientEra::Modern, "modern"),
    ] {
        let (world, config) = GatewaySetup::new().fake("fx", &Fake::stdio(upstream)).write();
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
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("both")).start();
    gateway.wait_for_tools(TOOLS);
    let pid = pid_in(&gateway.legacy().call("fx__env", json!({})).text());
    for era in ClientEra::BOTH {
        let pipe = Pipe::start(&gateway.world, &gateway.config, &[]);
        let mut client = Mcp::stdio(pipe, era);
        everything_works(&mut client, era, false, "attached");
        let attached = pid_in(&client.call("fx__env", json!({})).text());
        assert_eq!(attached, pid, "{era:?}: the daemon's own upstream answers");
    }
}

#[test]
fn two_hosts_share_the_daemon_and_its_upstream_over_stdio() {
    let gateway = GatewaySetup::new().fake("fx", &Fake::stdio("legacy")).start();
    gateway.wait_for_tools(TOOLS);
    let start = || Mcp::stdio(Pipe::start(&gateway.world, &gateway.config, &[]), ClientEra::LEGACY);
    let (mut first, mut second) = (start(), start());
    let (a, b) = (first.call("fx__env", json!({})).text(), second.call("fx__env", json!({})).text());
    assert_eq!(pid_in(&a), pid_in(&b));
}

#[test]
fn an_upstream_can_be_given_on_the_command_line_and_served_transparently() {
    let server = Fake::http("both").spawn();
    let (world, config) = GatewaySetup::new().write();
    let argument = format!("up={}", server.url);
    let pipe = Pipe::start(&world, &config, &["--upstream", &argument, "--transparent"]);
    let mut client = Mcp::stdio(pipe, ClientEra::Modern);
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
