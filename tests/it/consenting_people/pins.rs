//! Tests of pins in `headend stdio` without a daemon, which need processes that share a database.

use serde_json::json;

use crate::tools::harness::GatewaySetup;
use crate::tools::mcp::{ClientEra, Mcp};
use crate::tools::process::{eventually, said};
use crate::tools::stdio::Pipe;
use crate::tools::steps::pins::{MARKER, lists, ok, open};
use crate::tools::upstream::{Fake, Patch};

mod many;

#[test]
fn pins_are_looked_at_and_approved_without_a_daemon() {
    let setup = GatewaySetup::new();
    let patch = Patch::new(&setup);
    let (world, config) = setup.fake("fx", &patch.of(Fake::stdio("both"))).write();
    let alone = || Mcp::stdio(Pipe::start(&world, &config, &["--no-daemon"]), ClientEra::Modern);
    let mut client = alone();
    eventually("echo is listed", || lists(&mut client, "fx__echo"));
    patch.write(&json!({"echo": {"description": MARKER}}));
    client.call("fx__mutate", json!({}));
    eventually("it leaves", || !lists(&mut client, "fx__echo"));
    let approved = world.run(&["pins", "approve", "fx__echo"]);
    assert!(approved.status.success(), "{}", said(&approved));
    let tail = world.run(&["audit", "tail", "-n", "1000", "--json"]);
    let is_approval = |line: &&str| line.contains(r#""event":"pin""#) && line.contains(r#""result":"pinned""#);
    let text = String::from_utf8_lossy(&tail.stdout);
    assert!(text.lines().any(|line| is_approval(&line) && line.contains("fx__echo")), "{text}");
    eventually("the running process takes it over", || lists(&mut client, "fx__echo"));
    drop(client);
    let mut client = alone();
    eventually("and the next one", || lists(&mut client, "fx__echo"));
}
